# SPDX-License-Identifier: Apache-2.0
"""Tests of CAST between all types, with numbers that the target type cannot hold."""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network

NUMBERS = {
    "float32": [-3.7, 300.2, 127.5, 128, -128.5, -129.9, 1e10, -1e20, 0.5, 255.9],
    "int32": [-129, 128, 255, 256, 70000, -70000, 2**31 - 1, -(2**31), 0, 1],
    "int64": [-129, 128, 255, 256, 2**40 + 7, -(2**40), 2**63 - 1, 0, 1],
    "int8": list(range(-128, 128)),
    "uint8": list(range(256)),
}


@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "int32", "int64", "float32", "bool"])
@pytest.mark.parametrize("source", NUMBERS)
def test_cast(source: str, target: str) -> None:
    writer = ModelWriter()
    x = np.array(NUMBERS[source]).astype(source)
    tensors = [writer.tensor((1, x.size), kind) for kind in (source, target)]
    writer.operator("CAST", tensors[:1], tensors[1:])
    content = writer.content(tensors[:1], tensors[1:])
    samples = x.reshape(1, 1, -1)
    run = run_network(GoldenBackend(preset("small")), network_of(content), samples)
    expected = interpret(content, samples)
    assert run.y.dtype == expected.dtype
    assert np.array_equal(run.y, expected)


def test_pixels_to_codes() -> None:
    """Check a model that turns pixels of uint8 into codes of int8 by way of float32."""
    writer = ModelWriter()
    pixels, floats = writer.tensor((1, 256), "uint8"), writer.tensor((1, 256), "float32")
    codes, result = writer.tensor((1, 256), "int8", 0.7, -9), writer.tensor((1, 256), "int8", 0.4)
    writer.operator("CAST", [pixels], [floats])
    writer.operator("QUANTIZE", [floats], [codes])
    writer.operator("RELU", [codes], [result])
    content = writer.content([pixels], [result])
    x = np.arange(256, dtype=np.uint8).reshape(1, 1, -1)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x)
    assert np.array_equal(run.y, interpret(content, x))
