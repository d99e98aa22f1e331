# SPDX-License-Identifier: Apache-2.0
"""The mean of each window of a map of codes, rounded as ONNX Runtime rounds it.

Codes are quantised numbers. ONNX Runtime calculates the mean in float32, the machine in integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Reduction, Rounding
from systola.compiler.errors import ModelError
from systola.compiler.exact_sum import exact_sum
from systola.compiler.onnx.entries import Limits
from systola.compiler.onnx.fitting import Fit, Wanted, fit_bias, nearest_multiplier
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.multipliers import code_limits
from systola.compiler.onnx.numbers import Quantisation
from systola.compiler.onnx.scope import Scope
from systola.compiler.operations import Pooling, Value, Window, scalar_requantisation
from systola.compiler.quantise import MAX_STEPS

MAX_COUNT = 1 << 22
"""Largest number of elements of a mean. With more, their sum might need more than 32 bits."""
MAX_COUNTS = 1 << 12
"""Largest number of elements of a window that reaches over the edge of the map.

Each number of elements inside the map, from 1 on, takes a requantisation of its own.
"""
TOLERATED = 2
"""Number of sums that a single pooling may always round differently from ONNX Runtime.

If more sums would differ, and fewer with two poolings, two are used, with twice the work.
"""

Mean = Callable[[NDArray[np.int64], Quantisation, Quantisation, int], NDArray[np.int64]]
"""Type of a function that computes the codes of means; a larger sum never has a smaller code.

The arguments are, in order: sums of codes less zero points, the quantisations of source and result,
and the number of elements in each sum. The codes are not clamped to int8.
"""


def global_mean(
    sums: NDArray[np.int64], source: Quantisation, result: Quantisation, count: int
) -> NDArray[np.int64]:
    """Calculate means as QLinearGlobalAveragePool does: the integer sum times one float32 scale,
    which contains the division by `count`.
    """
    scale = source.scale / (result.scale * np.float32(count))
    return np.rint(sums.astype(np.float32) * scale).astype(np.int64) + result.zero_point


def pool_mean(
    sums: NDArray[np.int64], source: Quantisation, result: Quantisation, count: int
) -> NDArray[np.int64]:
    """Calculate means as QLinearAveragePool does, in float32: the scaled sum is divided by `count`,
    then by the result's scale.

    ONNX Runtime may round while it adds up the elements. Here the sums are exact.
    """
    offset = 128 if result.unsigned else 0
    total = sums.astype(np.float32) * source.scale
    steps = total / np.float32(count) / result.scale + np.float32(result.zero_point + offset)
    return np.rint(steps).astype(np.int64) - offset


def real_mean(
    sums: NDArray[np.int64], source: Quantisation, result: Quantisation, count: int
) -> NDArray[np.int64]:
    """Calculate means as two operators do: the first makes a mean in float32, and then
    QuantizeLinear makes its code.
    """
    total = sums.astype(np.float32) * source.scale
    steps = np.rint(total / np.float32(count) / result.scale)
    return steps.astype(np.int64) + result.zero_point


@dataclass(frozen=True)
class _Averages:
    """A set of requantisations that turn the sums of windows into means."""

    fits: tuple[Fit, ...]
    """Multipliers, shifts and biases for sums of 1, 2, ... elements; only one of each if all
    windows lie inside the map.
    """
    biases: tuple[int, ...]
    """Biases that subtract the source's zero point once for each element of a sum; one for each of
    `fits`.
    """
    zero_point: int
    floor: int
    ceiling: int

    @property
    def differing(self) -> int:
        """Return the number of sums with a mean that differs from ONNX Runtime's mean."""
        return sum(fit.differing for fit in self.fits)


def add_average(
    scope: Scope,
    node: OnnxNode,
    value: Value,
    result: Value,
    window: Window,
    source: Quantisation,
    quantisation: Quantisation,
    limits: Limits,
    mean: Mean,
) -> None:
    """Add the operations for the mean over the part of each window that lies inside the map.

    ONNX Runtime rounds halves to even, which one pooling cannot do. If this matters for many sums,
    the results of two poolings are added. The first pooling counts the even numbers up to the mean,
    the second the odd numbers. The count of a pooling grows at equal distances of the sums, so one
    multiplier serves for the pooling.
    """
    taps = window.kernel[0] * window.kernel[1]
    counts = range(1, taps + 1) if window.counts_differ(*value.grid) else range(taps, taps + 1)
    if taps > (MAX_COUNT if len(counts) == 1 else MAX_COUNTS):
        raise ModelError(f"a mean of {taps} elements is not supported")
    floor, ceiling = code_limits(quantisation, limits)

    def averages(parity: int | None) -> _Averages:
        """Return the requantisations that make means.

        With a parity they make another result: the count of even (0) or odd (1) numbers up to the
        mean.
        """
        fits = tuple(
            _fit(source, quantisation, (floor, ceiling), count, mean, parity) for count in counts
        )
        biases = tuple(-source.zero_point * count for count in counts)
        if parity is None:
            return _Averages(fits, biases, quantisation.zero_point, floor, ceiling)
        # The results of the two poolings have half of the zero point each, so that they stay within
        # int8.
        half = quantisation.zero_point // 2
        low, high = (
            max(-128, min((end - quantisation.zero_point + parity) // 2 + half, 127))
            for end in (floor, ceiling)
        )
        return _Averages(fits, biases, half, low, high)

    whole = averages(None)
    parts = averages(0), averages(1)
    differing = min(whole.differing, sum(part.differing for part in parts))
    if whole.differing <= max(TOLERATED, differing):
        differing = whole.differing
        _add_averages(scope, node, value, result, window, whole)
    else:
        _add_two(scope, node, value, result, window, parts, quantisation.zero_point)
    near = mean is not global_mean and any(
        doubtful(source, quantisation, count) for count in counts
    )
    scope.inexact_channels += value.channels if differing or near else 0


def doubtful(source: Quantisation, result: Quantisation, count: int) -> bool:
    """Return whether some means may depend on the rounding of ONNX Runtime's sums in float32.

    This is so if a mean is near the middle of two codes. The rounding of its sum depends on all
    elements, so the mean may become either code.
    """
    scale = float(source.scale) / (float(result.scale) * count)
    middles = np.arange(-MAX_STEPS, MAX_STEPS) + 0.5
    sums = np.rint(middles / scale)
    noise = (count + 4) * 2.0**-24 * (np.abs(middles) + 128 + abs(result.zero_point))
    reachable = np.abs(sums) <= (128 + abs(source.zero_point)) * count
    return bool((reachable & (np.abs(sums * scale - middles) < noise)).any())


def _fit(
    source: Quantisation,
    quantisation: Quantisation,
    limits: tuple[int, int],
    count: int,
    mean: Mean,
    parity: int | None,
) -> Fit:
    """Return the requantisation that comes closest to ONNX Runtime's means of `count` elements.

    With a parity it makes another result: the count of even (0) or odd (1) numbers up to the mean.
    """
    ends = (-128 - source.zero_point) * count, (127 - source.zero_point) * count
    low, high = (limit - quantisation.zero_point for limit in limits)
    scale = float(source.scale) / (float(quantisation.scale) * count)
    nearest_multiplier(scale)  # raises ModelError for a scale that no multiplier can express

    def results(sums: NDArray[np.int64]) -> NDArray[np.int64]:
        codes = mean(sums, source, quantisation, count)
        return np.clip(codes - quantisation.zero_point, low, high)

    steps = _steps(results, ends, low, high)
    sums = np.unique(np.concatenate([steps, steps - 1, ends]))
    sums = sums[(sums >= ends[0]) & (sums <= ends[1])]
    if parity is None:
        return fit_bias(Wanted(sums, results(sums), low, high), scale)
    # From 1 to 2 k there are k even and k odd numbers. From 1 to 2 k + 1 there is one more odd
    # number.
    half = (results(sums) + parity) // 2
    return fit_bias(Wanted(sums, half, (low + parity) // 2, (high + parity) // 2), scale / 2)


def _steps(
    results: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    ends: tuple[int, int],
    low: int,
    high: int,
) -> NDArray[np.int64]:
    """Return for each result, `low` + 1 to `high`, the least sum that has this result or a larger
    one.

    `ends` has the least and the greatest sum. For a result that no sum reaches, the returned number
    is the greatest sum + 1.
    """
    wanted = np.arange(low + 1, high + 1)
    below = np.full(wanted.shape, ends[0] - 1)
    above = np.full(wanted.shape, ends[1] + 1)
    for _ in range((ends[1] - ends[0] + 2).bit_length() + 1):
        middle = (below + above) // 2
        inside = np.clip(middle, *ends)
        reached = (results(inside) >= wanted) & (middle >= ends[0]) | (middle > ends[1])
        above = np.where(reached, middle, above)
        below = np.where(reached, below, middle)
    return above


def _add_two(
    scope: Scope,
    node: OnnxNode,
    value: Value,
    result: Value,
    window: Window,
    parts: tuple[_Averages, _Averages],
    zero_point: int,
) -> None:
    values: list[Value] = []
    for number, part in enumerate(parts):
        values.append(Value(f"{result.name} part {number}", result.shape))
        _add_averages(scope, node, value, values[-1], window, part)
    zero_points = parts[0].zero_point, parts[1].zero_point
    scope.add(exact_sum(str(node), result, (values[0], values[1]), zero_points, zero_point))


def _add_averages(
    scope: Scope, node: OnnxNode, value: Value, result: Value, window: Window, averages: _Averages
) -> None:
    outputs = tuple(
        scalar_requantisation(
            fit.multiplier,
            fit.shift,
            bias=bias + fit.bias,
            rounding=Rounding.SINGLE,
            zero_point=averages.zero_point,
        )
        for fit, bias in zip(averages.fits, averages.biases, strict=True)
    )
    several = len(outputs) > 1
    scope.add(
        Pooling(
            operator=str(node),
            source=value,
            result=result,
            reduction=Reduction.AVERAGE if several else Reduction.SUM,
            window=window,
            output=outputs[0],
            averages=outputs if several else (),
            floor=averages.floor,
            ceiling=averages.ceiling,
        )
    )
