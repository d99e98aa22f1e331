# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR to larger and smaller maps, with all its options."""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

SIZES = [
    ((4, 5), (8, 10)),
    ((4, 5), (7, 3)),
    ((1, 6), (3, 1)),
    ((5, 7), (5, 7)),
    ((3, 2), (17, 31)),
]


@pytest.mark.parametrize(
    "options", [{}, {"alignCorners": True}, {"halfPixelCenters": True}], ids=str
)
@pytest.mark.parametrize(("size", "out"), SIZES)
def test_bilinear(size: tuple[int, int], out: tuple[int, int], options: dict[str, bool]) -> None:
    writer = ModelWriter()
    shape = (1, *size, 3)
    tensors = [writer.tensor(each, "int8", 0.1, 7) for each in (shape, (1, *out, 3))]
    wanted = writer.tensor((2,), "int32", data=np.array(out, np.int32))
    writer.operator("RESIZE_BILINEAR", [tensors[0], wanted], tensors[1:], **options)
    content = writer.content(tensors[:1], tensors[1:])
    rng = np.random.default_rng(random_seed())
    x = rng.integers(-128, 128, (4, *shape), np.int8)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x)
    assert np.array_equal(run.y, interpret(content, x))
