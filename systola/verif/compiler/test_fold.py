# SPDX-License-Identifier: Apache-2.0
"""Tests of constants that a model itself quantises or dequantises."""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

CONSTANTS = {
    "float32": np.array([-9.0, -0.5, 0.0049, 0.0051, 1.0], np.float32),
    "int8": np.array([-128, -3, 0, 9, 127], np.int8),
}


@pytest.mark.parametrize(
    "kinds", [("QUANTIZE",), ("QUANTIZE", "QUANTIZE"), ("QUANTIZE", "DEQUANTIZE", "QUANTIZE")]
)
@pytest.mark.parametrize("dtype", CONSTANTS)
def test_constants(kinds: tuple[str, ...], dtype: str) -> None:
    """Check the sum of an input and a constant that operators make from another constant."""
    data = CONSTANTS[dtype]
    writer = ModelWriter()
    source, result = (writer.tensor((1, 5), "int8", scale, -3) for scale in (0.07, 0.1))
    scale = 0.013 if dtype == "int8" else None
    constant = writer.tensor(data.shape, dtype, scale, data=data)
    for number, kind in enumerate(kinds):
        made = (
            writer.tensor(data.shape, "float32")
            if kind == "DEQUANTIZE"
            else writer.tensor(data.shape, "int8", 0.01 * (number + 1), 5)
        )
        writer.operator(kind, [constant], [made])
        constant = made
    writer.operator("ADD", [source, constant], [result])
    content = writer.content([source], [result])
    x = np.random.default_rng(random_seed()).integers(-128, 128, (4, 1, 5), np.int8)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x)
    assert np.array_equal(run.y, interpret(content, x))
