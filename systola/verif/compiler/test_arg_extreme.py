# SPDX-License-Identifier: Apache-2.0
"""ARG_MAX and ARG_MIN along any axis, with elements that are there several times."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from systola.arch.config import preset
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed


@pytest.mark.parametrize("axis", [1, 2, -1])
@pytest.mark.parametrize("target", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("kind", ["ARG_MAX", "ARG_MIN"])
def test_first_place(kind: str, dtype: str, target: str, axis: int) -> None:
    writer = ModelWriter()
    shape = (1, 4, 3, 7)
    scale = None if dtype == "float32" else 0.1
    source = writer.tensor(shape, dtype, scale)
    result = writer.tensor(tuple(np.delete(shape, axis).tolist()), target)
    axes = writer.tensor((1,), "int32", data=np.array([axis], np.int32))
    options = {"outputType": getattr(schema.TensorType, target.upper())}
    writer.operator(kind, [source, axes], [result], **options)
    content = writer.content([source], [result])
    x = np.random.default_rng(random_seed()).integers(0, 5, (6, *shape)).astype(dtype)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x)
    expected = interpret(content, x)
    assert run.y.dtype == expected.dtype
    assert np.array_equal(run.y, expected)
