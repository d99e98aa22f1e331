# SPDX-License-Identifier: Apache-2.0
"""Pooling and means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Operation, Reduction, Rounding
from systola.compiler.errors import ModelError
from systola.compiler.moves import gathered
from systola.compiler.onnx.entries import Codes, Dequantised, Limits, Pending
from systola.compiler.onnx.fitting import Fit, Wanted, fit_bias
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.multipliers import code_limits
from systola.compiler.onnx.numbers import Quantisation
from systola.compiler.onnx.scope import Scope
from systola.compiler.onnx.windows import read_window
from systola.compiler.operations import (
    Binary,
    Pooling,
    Scale,
    Value,
    Window,
    scalar_requantisation,
)
from systola.compiler.quantise import MAX_STEPS

MAX_COUNT = 1 << 22
"""Elements whose sum stays within 32 bits, with a margin."""
MAX_COUNTS = 1 << 12
"""Elements in a window that reaches over the edge."""
TOLERATED = 2
"""Sums that one pool may round otherwise before two are taken, which is twice the work."""

Mean = Callable[[NDArray[np.int64], Quantisation, Quantisation, int], NDArray[np.int64]]
"""Codes of means, before they are clamped: of sums less zero points, the quantisations of source
and result, and how many elements each sum has. It grows with the sums."""


def translate_max_pool(scope: Scope, node: OnnxNode) -> None:
    """MaxPool, of codes or of what they stand for."""
    source = scope.entry(node, 0)
    if isinstance(source, Dequantised) and source.curve is None:
        codes = _max_pool(scope, node, source.codes)
        scope.result(node, replace(source, codes=codes))
    elif isinstance(source, Codes):
        scope.result(node, _max_pool(scope, node, source))
    else:
        raise ModelError("its input must be quantised")


def _max_pool(scope: Scope, node: OnnxNode, source: Codes) -> Codes:
    window = read_window(node, _sizes(source.shape))
    value = scope.feature_map(node, source)
    result = scope.map_result(
        node.outputs[0], source, (1, *window.out, value.channels), source.unsigned
    )
    scope.add(
        Pooling(
            operator=str(node),
            source=value,
            result=result.value,
            reduction=Reduction.MAX,
            window=window,
        )
    )
    return result


def translate_average_pool(scope: Scope, node: OnnxNode) -> None:
    """AveragePool between DequantizeLinear and QuantizeLinear."""
    source = scope.dequantised(node, 0)
    window = read_window(node, _sizes(source.codes.shape))

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        return _average_pool(scope, node, source, quantisation, limits)

    out = window.out if len(source.codes.shape) == 4 else window.out[1:]
    scope.result(node, Pending((*source.codes.shape[:2], *out), finish))


def translate_qlinear_average_pool(scope: Scope, node: OnnxNode) -> None:
    """QLinearAveragePool, an operator of ONNX Runtime."""
    source, quantisation = _qlinear(scope, node)
    scope.result(node, _average_pool(scope, node, source, quantisation, Limits()))


def translate_global_average_pool(scope: Scope, node: OnnxNode) -> None:
    """GlobalAveragePool between DequantizeLinear and QuantizeLinear."""
    source = scope.dequantised(node, 0)
    sizes = _sizes(source.codes.shape)

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        return _global_average(scope, node, source, quantisation, limits)

    shape = (*source.codes.shape[:2], *(1 for _ in sizes))
    scope.result(node, Pending(shape, finish))


def translate_qlinear_global_average_pool(scope: Scope, node: OnnxNode) -> None:
    """QLinearGlobalAveragePool, an operator of ONNX Runtime."""
    source, quantisation = _qlinear(scope, node)
    scope.result(node, _global_average(scope, node, source, quantisation, Limits()))


def _qlinear(scope: Scope, node: OnnxNode) -> tuple[Dequantised, Quantisation]:
    if node.integer("channels_last", 0):
        raise ModelError("channels_last is not supported")
    source = Dequantised(scope.codes(node, 0), scope.quantisation(node, 1, 2))
    return source, scope.quantisation(node, 3, 4)


def _average_pool(
    scope: Scope,
    node: OnnxNode,
    source: Dequantised,
    quantisation: Quantisation,
    limits: Limits,
) -> Codes:
    window = read_window(node, _sizes(source.codes.shape))
    value = scope.feature_map(node, source.codes)
    if window.counts_differ(*value.grid) and node.integer("count_include_pad", 0):
        value, window = _padded(scope, node, source, value, window)
    return _average(scope, node, source, value, quantisation, limits, window, pool_mean)


def _padded(
    scope: Scope, node: OnnxNode, source: Dequantised, value: Value, window: Window
) -> tuple[Value, Window]:
    """The map with zeros around it as far as the windows reach, and the windows in it."""
    height, width = (
        (out - 1) * stride + (kernel - 1) * dilation + 1
        for out, stride, kernel, dilation in zip(
            window.out, window.stride, window.kernel, window.dilation, strict=True
        )
    )
    result = Value(f"{value.name} padded", (1, height, width, value.channels))
    move = Window(kernel=(1, 1), first=window.first, out=(height, width))
    fill = source.quantisation.zero_point
    channels = np.arange(value.channels, dtype=np.int64)
    scope.add(gathered(str(node), value, result, channels, fill, move))
    return result, replace(window, first=(0, 0))


def _global_average(
    scope: Scope,
    node: OnnxNode,
    source: Dequantised,
    quantisation: Quantisation,
    limits: Limits,
) -> Codes:
    _sizes(source.codes.shape)
    value = scope.feature_map(node, source.codes)
    window = Window(kernel=value.grid, out=(1, 1))
    return _average(scope, node, source, value, quantisation, limits, window, global_mean)


def global_mean(
    sums: NDArray[np.int64], source: Quantisation, result: Quantisation, count: int
) -> NDArray[np.int64]:
    """QLinearGlobalAveragePool: sums of integers, and one scale."""
    scale = source.scale / (result.scale * np.float32(count))
    return np.rint(sums.astype(np.float32) * scale).astype(np.int64) + result.zero_point


def pool_mean(
    sums: NDArray[np.int64], source: Quantisation, result: Quantisation, count: int
) -> NDArray[np.int64]:
    """QLinearAveragePool: sums of float32, which are taken to be exact, and divided twice."""
    offset = 128 if result.unsigned else 0
    total = sums.astype(np.float32) * source.scale
    steps = total / np.float32(count) / result.scale + np.float32(result.zero_point + offset)
    return np.rint(steps).astype(np.int64) - offset


@dataclass(frozen=True)
class _Averages:
    """What becomes of the sums of windows."""

    fits: tuple[Fit, ...]
    """By the number of elements in the sum: all from 1 on, or that of all windows."""
    biases: tuple[int, ...]
    """Zero points of as many elements."""
    zero_point: int
    floor: int
    ceiling: int

    @property
    def differing(self) -> int:
        """Sums with another result than ONNX Runtime's."""
        return sum(fit.differing for fit in self.fits)


def _average(
    scope: Scope,
    node: OnnxNode,
    source: Dequantised,
    value: Value,
    quantisation: Quantisation,
    limits: Limits,
    window: Window,
    mean: Mean,
) -> Codes:
    """The mean of what of each window lies within the map.

    ONNX Runtime rounds half to even. Where means often lie between two results, one pool cannot do
    so, but two can: one counts the even results that a sum has reached, the other the odd ones, and
    in each of them the steps are at equal distances.
    """
    taps = window.kernel[0] * window.kernel[1]
    counts = range(1, taps + 1) if window.counts_differ(*value.grid) else range(taps, taps + 1)
    if taps > (MAX_COUNT if len(counts) == 1 else MAX_COUNTS):
        raise ModelError(f"a mean of {taps} elements is not supported")
    floor, ceiling = code_limits(quantisation, limits)

    def averages(parity: int | None) -> _Averages:
        """Of all results; with a parity, of half of them."""
        fits = tuple(
            _fit(source.quantisation, quantisation, (floor, ceiling), count, mean, parity)
            for count in counts
        )
        biases = tuple(-source.quantisation.zero_point * count for count in counts)
        if parity is None:
            return _Averages(fits, biases, quantisation.zero_point, floor, ceiling)
        # Half of the zero point keeps what is in between within int8.
        half = quantisation.zero_point // 2
        low, high = (
            max(-128, min((end - quantisation.zero_point + parity) // 2 + half, 127))
            for end in (floor, ceiling)
        )
        return _Averages(fits, biases, half, low, high)

    result = scope.map_result(
        node.outputs[0], source.codes, (1, *window.out, value.channels), quantisation.unsigned
    )
    whole = averages(None)
    parts = averages(0), averages(1)
    differing = min(whole.differing, sum(part.differing for part in parts))
    if whole.differing <= max(TOLERATED, differing):
        differing = whole.differing
        _add_averages(scope, node, value, result.value, window, whole)
    else:
        _add_two(scope, node, value, result.value, window, parts, quantisation.zero_point)
    doubtful = mean is pool_mean and any(
        _doubtful(source.quantisation, quantisation, count) for count in counts
    )
    scope.inexact_channels += value.channels if differing or doubtful else 0
    return result


def _doubtful(source: Quantisation, result: Quantisation, count: int) -> bool:
    """Whether a mean may be so near to the middle of two results that the rounding of sums in
    float32, which depends on all elements, makes one or the other of it."""
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
    """For means of `count` elements; with a parity, the number of results of that parity."""
    ends = (-128 - source.zero_point) * count, (127 - source.zero_point) * count
    low, high = (limit - quantisation.zero_point for limit in limits)
    scale = float(source.scale) / (float(quantisation.scale) * count)

    def results(sums: NDArray[np.int64]) -> NDArray[np.int64]:
        codes = mean(sums, source, quantisation, count)
        return np.clip(codes - quantisation.zero_point, low, high)

    steps = _steps(results, ends, low, high)
    sums = np.unique(np.concatenate([steps, steps - 1, ends]))
    sums = sums[(sums >= ends[0]) & (sums <= ends[1])]
    if parity is None:
        return fit_bias(Wanted(sums, results(sums), low, high), scale)
    # 2 k is k even ones and k odd ones, 2 k + 1 is one odd one more.
    half = (results(sums) + parity) // 2
    return fit_bias(Wanted(sums, half, (low + parity) // 2, (high + parity) // 2), scale / 2)


def _steps(
    results: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    ends: tuple[int, int],
    low: int,
    high: int,
) -> NDArray[np.int64]:
    """For each result above `low` the least sum within `ends` that has at least that result.

    Those that no sum reaches have a step behind the last sum.
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
    # 2^20 * 2^29 / 2^31 = 2^18 for each, and back.
    scope.add(
        Binary(
            operator=str(node),
            result=result,
            operation=Operation.ADD,
            a=values[0],
            b=values[1],
            scale_a=Scale(parts[0].zero_point, 1 << 29),
            scale_b=Scale(parts[1].zero_point, 1 << 29),
            output=scalar_requantisation(
                1 << 30, -17, rounding=Rounding.SINGLE, zero_point=zero_point
            ),
        )
    )


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


def _sizes(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) not in (3, 4):
        raise ModelError(f"a feature map of shape {shape} is not supported")
    return shape[2:]


Translator = Callable[[Scope, OnnxNode], None]
POOLING: dict[str, Translator] = {
    "MaxPool": translate_max_pool,
    "AveragePool": translate_average_pool,
    "QLinearAveragePool": translate_qlinear_average_pool,
    "GlobalAveragePool": translate_global_average_pool,
    "QLinearGlobalAveragePool": translate_qlinear_global_average_pool,
}
