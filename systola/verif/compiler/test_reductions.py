# SPDX-License-Identifier: Apache-2.0
"""Tests of MEAN, SUM, REDUCE_MAX and REDUCE_MIN over any axes of values of any rank."""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.errors import ModelError
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

SHAPES = ((7,), (4, 6), (3, 5, 4))
_SCALES = {"MEAN": 0.03, "SUM": 0.4}
LARGER = ((1, 5, 3), (1, 4, 3, 5), (2, 3, 4, 5), (1, 3, 2, 4, 5))


def all_axes(rank: int) -> list[tuple[int, ...]]:
    return [tuple(axis for axis in range(rank) if bits >> axis & 1) for bits in range(1, 1 << rank)]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "kind", ["MEAN", "REDUCE_MAX", "REDUCE_MIN", pytest.param("SUM", marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize(
    "shape", [*SHAPES, *(pytest.param(each, marks=pytest.mark.thorough) for each in LARGER)]
)
def test_any_axes(shape: tuple[int, ...], kind: str, keep: bool) -> None:
    rng = np.random.default_rng(random_seed())
    every = all_axes(len(shape))
    # The two values of `keep` share the combinations of axes: each value gets every other one.
    for axes in every[int(keep) :: 2]:
        reduced = [1 if axis in axes else size for axis, size in enumerate(shape)]
        kept = [size for axis, size in enumerate(shape) if axis not in axes]
        scale = _SCALES.get(kind, 0.1)
        writer = ModelWriter()
        source = writer.tensor(shape, "int8", 0.1, 6)
        result = writer.tensor(tuple(reduced if keep else kept), "int8", scale, 6)
        numbers = writer.tensor((len(axes),), "int32", data=np.array(axes, np.int32))
        writer.operator(kind, [source, numbers], [result], keepDims=keep)
        content = writer.content([source], [result])
        x = rng.integers(-128, 128, (2, *shape), np.int8)
        run = run_network(GoldenBackend(preset("small")), network_of(content), x, batch=2)
        assert np.array_equal(run.y, interpret(content, x)), axes


def test_mean_without_scales() -> None:
    """Check a MEAN of tensors without scales: LiteRT divides 0 by 0, and gives results of 0."""
    writer = ModelWriter()
    source, result = writer.tensor((1, 3, 4, 5)), writer.tensor((1, 1, 4, 5))
    axes = writer.tensor((1,), "int32", data=np.array([1], np.int32))
    writer.operator("MEAN", [source, axes], [result], keepDims=True)
    content = writer.content([source], [result])
    x = np.random.default_rng(random_seed()).integers(-128, 128, (2, 1, 3, 4, 5), np.int8)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x, batch=2)
    assert np.array_equal(run.y, interpret(content, x))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("zero", "result_zero", "scale"),
    [
        (0, 0, 0.4),
        (6, 7, 0.1),
        pytest.param(-128, 0, 1.7, marks=pytest.mark.thorough),
        pytest.param(100, 127, 0.05, marks=pytest.mark.thorough),
    ],
)
def test_sums_as_litert_has_them(dtype: str, zero: int, result_zero: int, scale: float) -> None:
    """Check a SUM with results that lie half-way between two codes, or beyond all codes."""
    least = np.iinfo(np.dtype(dtype)).min
    writer = ModelWriter()
    source = writer.tensor((1, 5, 4), dtype, 0.1, zero + 128 + least)
    result = writer.tensor((1, 1, 4), dtype, scale, result_zero + 128 + least)
    axes = writer.tensor((1,), "int32", data=np.array([1], np.int32))
    writer.operator("SUM", [source, axes], [result], keepDims=True)
    content = writer.content([source], [result])
    rng = np.random.default_rng(random_seed())
    x = rng.integers(least, least + 256, (20, 1, 5, 4)).astype(dtype)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x, batch=20)
    assert np.array_equal(run.y, interpret(content, x))


@pytest.mark.parametrize(("scale", "zero"), [(0.1, 6), (0.4, -1)])
def test_sums_that_stay_on_the_host(scale: float, zero: int) -> None:
    writer = ModelWriter()
    source, result = (
        writer.tensor((1, 5, 4), "int8", 0.1, 6),
        writer.tensor((1, 1, 4), "int8", scale, zero),
    )
    axes = writer.tensor((1,), "int32", data=np.array([1], np.int32))
    writer.operator("SUM", [source, axes], [result], keepDims=True)
    with pytest.raises(ModelError, match="a sum"):
        network_of(writer.content([source], [result]))
