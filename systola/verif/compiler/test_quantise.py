# SPDX-License-Identifier: Apache-2.0
"""Tests of requantiser multipliers and of tables against LiteRT, at sums likely to differ."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.operations import Operations, Unary
from systola.compiler.quantise import (
    INT8,
    curve_table,
    exact_multipliers,
    relu_limits,
    requantise_table,
    to_float,
    to_int8,
)
from systola.compiler.tables import unary_table
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.seeds import random_seed

ALL_CODES = INT8.astype(np.int8).reshape(1, 256)
CHANNELS = 300


def fully_connected_of_sums(
    sums: NDArray[np.int64], scales: tuple[np.float32, NDArray[np.float32], np.float32]
) -> NDArray[np.int64]:
    """Return LiteRT's results for given sums, which are the biases of a layer with zero weights."""
    source_scale, weight_scale, result_scale = scales
    writer = ModelWriter()
    source = writer.tensor((1, 2), "int8", source_scale)
    result = writer.tensor((1, len(sums)), "int8", result_scale)
    weights = np.zeros((len(sums), 2), np.int8)
    writer.fully_connected(source, result, weights, sums.astype(np.int32), weight_scale)
    model = writer.content([source], [result])
    return interpret(model, np.zeros((1, 1, 2), np.int8))[0, 0].astype(np.int64)


@pytest.mark.parametrize("kind", ["any", "powers of two", "thirds"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_multipliers_at_the_steps(kind: str, per_channel: bool) -> None:
    rng = np.random.default_rng(random_seed())
    compared = 0
    for _ in range(40):
        if kind == "any":
            source, result = (np.float32(10 ** rng.uniform(-3, -0.5)) for _ in range(2))
            weight = (10 ** rng.uniform(-4, -1, CHANNELS)).astype(np.float32)
        else:
            source, result = (np.float32(2.0 ** -rng.integers(1, 8)) for _ in range(2))
            weight = (2.0 ** -rng.integers(1, 10, CHANNELS)).astype(np.float32)
            if kind == "thirds":
                result = np.float32(3 * result)
        if not per_channel:
            weight = weight[:1]
        scale = np.broadcast_to(
            np.float64(source) * weight.astype(np.float64) / np.float64(result), CHANNELS
        )
        if scale.max() >= 128:
            continue
        # At each of these sums the result changes from one code to the next, or does so one sum
        # away. If scales are powers of two, such a sum lies half-way between two codes.
        steps = rng.integers(1, 128, CHANNELS)
        sums = np.ceil((steps - 0.5) / scale).astype(np.int64) + rng.integers(-1, 2, CHANNELS)
        sums = np.minimum(sums, 1 << 20) * rng.choice([-1, 1], CHANNELS)
        limit = np.full(CHANNELS, 1 << 20)
        multiplier, shift, exact = exact_multipliers(scale, -limit, limit)
        assert exact.all()
        q, r = multiplier.astype(np.int64), -shift.astype(np.int64)
        left = np.maximum(-r, 0)
        r = np.maximum(r, 0)
        ours = np.clip(((sums << left) * q + (1 << (30 + r))) >> (31 + r), -128, 127)
        theirs = fully_connected_of_sums(sums, (source, weight, result))
        assert np.array_equal(ours, theirs)
        compared += CHANNELS
    assert compared > 5 * CHANNELS


def test_multipliers_say_when_none_is_exact() -> None:
    # Some sums up to 2^30 are so close to a change of the result that no multiplier of 31 bits is
    # exact for all of them.
    scale, limit = np.full(1, 0.7 * 2.0**-22), np.full(1, 1 << 30)
    multiplier, shift, exact = exact_multipliers(scale, -limit, limit)
    assert not exact[0]
    assert float(multiplier[0]) * 2.0 ** (int(shift[0]) - 31) == pytest.approx(scale[0], rel=1e-9)


def test_multipliers_of_extreme_scales() -> None:
    limit = np.full(1, 1000)
    multiplier, _, exact = exact_multipliers(np.full(1, 2.0**-60), -limit, limit)
    assert exact[0]
    assert multiplier[0] * 1000 < 1 << 61
    for wrong in (-1.0, np.inf, np.nan):
        with pytest.raises(ModelError, match="positive"):
            exact_multipliers(np.full(1, wrong), -limit, limit)
    with pytest.raises(ModelError, match="too large"):
        exact_multipliers(np.full(1, 128.0), -limit, limit)


def one_operator(
    kind: str,
    x: NDArray[np.generic],
    source: tuple[str, float | None, int],
    result: tuple[str, float | None, int],
) -> NDArray[np.generic]:
    writer = ModelWriter()
    tensors = [writer.tensor(x.shape, *entry) for entry in (source, result)]
    writer.operator(kind, tensors[:1], tensors[1:])
    return interpret(writer.content(tensors[:1], tensors[1:]), x[np.newaxis])[0]


def test_tables_and_conversions() -> None:
    rng = np.random.default_rng(random_seed())
    for _ in range(60):
        scale, zero_point = (
            float(np.float32(10 ** rng.uniform(-3, -0.5))),
            int(rng.integers(-128, 128)),
        )
        out_scale = float(np.float32(scale * 10 ** rng.uniform(-0.9, 0.9)))
        out_zero = int(rng.integers(-128, 128))
        source, result = ("int8", scale, zero_point), ("int8", out_scale, out_zero)

        for kind, fixed in (("LOGISTIC", (1 / 256, -128)), ("TANH", (1 / 128, 0))):
            theirs = one_operator(kind, ALL_CODES, source, ("int8", *fixed))
            assert np.array_equal(theirs[0], curve_table(kind, scale, zero_point, *fixed))

        theirs = one_operator("QUANTIZE", ALL_CODES, source, result)
        ours = requantise_table(scale, zero_point, out_scale, out_zero)
        assert np.array_equal(theirs[0], ours)
        for kind in ("RELU", "RELU6"):
            theirs = one_operator(kind, ALL_CODES, source, result)
            limits = relu_limits(kind, out_scale, out_zero)
            ours = requantise_table(scale, zero_point, out_scale, out_zero, limits)
            assert np.array_equal(theirs[0], ours)

        halves = (np.arange(-300, 300) / 2).astype(np.float32) * np.float32(scale)
        theirs = one_operator("QUANTIZE", halves.reshape(1, -1), ("float32", None, 0), source)
        assert np.array_equal(theirs[0], to_int8(halves, scale, zero_point))
        theirs = one_operator("DEQUANTIZE", ALL_CODES, source, ("float32", None, 0))
        assert np.array_equal(theirs[0], to_float(ALL_CODES[0], scale, zero_point))


@pytest.mark.parametrize(
    "kind", ["HARD_SWISH", "ABS", "LEAKY_RELU", "RELU_N1_TO_1", "RELU_0_TO_1", "RELU6", "QUANTIZE"]
)
def test_all_codes(kind: str) -> None:
    rng = np.random.default_rng(random_seed())
    for _ in range(60):
        scales = 10 ** rng.uniform(-2, -0.5, 2)
        zero_points = rng.integers(-128, 128, 2)
        writer = ModelWriter()
        tensors = [
            writer.tensor((1, 256), "int8", np.float32(scale), int(zero_point))
            for scale, zero_point in zip(scales, zero_points, strict=True)
        ]
        writer.operator(kind, tensors[:1], tensors[1:])
        content = writer.content(tensors[:1], tensors[1:])
        (stage,) = network_of(content).stages
        assert isinstance(stage, Operations)
        (node,) = stage.nodes
        assert isinstance(node, Unary)
        expected = interpret(content, ALL_CODES[np.newaxis])
        assert np.array_equal(unary_table(node), expected.reshape(-1)), (scales, zero_points)


@pytest.mark.parametrize(("kind", "fixed"), [("LOGISTIC", (1 / 256, -128)), ("TANH", (1 / 128, 0))])
def test_curves_of_infinite_numbers(kind: str, fixed: tuple[float, int]) -> None:
    """Check LOGISTIC and TANH for an input scale so large that codes become infinite in float32."""
    scale, zero_point = 1e38, -49
    theirs = one_operator(kind, ALL_CODES, ("int8", scale, zero_point), ("int8", *fixed))
    assert np.array_equal(theirs[0], curve_table(kind, scale, zero_point, *fixed))
