# SPDX-License-Identifier: Apache-2.0
"""Tests of functions of one element, with all int8 codes and many scales, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

KINDS = ("EXP", "LOG", "SQRT", "RSQRT", "GELU", "GELU approximate", "NEG")


@pytest.mark.parametrize("kind", KINDS)
def test_all_codes(kind: str) -> None:
    """Check a function for all codes and random scales against LiteRT.

    LiteRT refuses the root of a number below 0, so roots only get inputs from 0 on.
    """
    rng = np.random.default_rng(random_seed())
    x = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 256)
    for _ in range(15):
        scales = (10 ** rng.uniform(-3, -1, 2)).astype(np.float32)
        zero, other = (int(each) for each in rng.integers(-128, 128, 2))
        if kind == "NEG":
            scales, other = scales[[0, 0]], zero
        writer = ModelWriter()
        source = writer.tensor((1, 256), "int8", scales[0], -128 if "SQRT" in kind else zero)
        result = writer.tensor((1, 256), "int8", scales[1], other)
        options = {"approximate": "approximate" in kind} if kind.startswith("GELU") else {}
        writer.operator(kind.split()[0], [source], [result], **options)
        content = writer.content([source], [result])
        run = run_network(GoldenBackend(preset("small")), network_of(content), x)
        assert np.array_equal(run.y, interpret(content, x)), (scales, zero, other)


@pytest.mark.parametrize("slopes", [(1, 1, 1), (1, 1, 5), (3, 4, 5)])
def test_prelu(slopes: tuple[int, ...]) -> None:
    """Check PRELU with a single slope, with a slope for each channel, and for each element."""
    rng = np.random.default_rng(random_seed())
    for _ in range(5):
        scales = (10 ** rng.uniform(-2, -1, 3)).astype(np.float32)
        zeros = [int(each) for each in rng.integers(-128, 128, 3)]
        writer = ModelWriter()
        shape = (1, 3, 4, 5)
        source, result = (writer.tensor(shape, "int8", scales[n], zeros[n]) for n in (0, 1))
        values = rng.integers(-128, 128, slopes, np.int8)
        alpha = writer.tensor(slopes, "int8", scales[2], zeros[2], values)
        writer.operator("PRELU", [source, alpha], [result])
        content = writer.content([source], [result])
        x = rng.integers(-128, 128, (6, *shape), np.int8)
        run = run_network(GoldenBackend(preset("small")), network_of(content), x, batch=3)
        assert np.array_equal(run.y, interpret(content, x)), (scales, zeros)
