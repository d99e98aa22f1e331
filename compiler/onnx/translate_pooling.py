# SPDX-License-Identifier: Apache-2.0
"""Pooling and means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Operation, Reduction, Rounding
from systola.compiler.errors import ModelError
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
from systola.compiler.scope import gathered

MAX_COUNT = 1 << 22
"""Elements whose sum stays within 32 bits, with a margin."""
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
    if window.counts_differ(*value.grid):
        if not node.integer("count_include_pad", 0):
            return _average_inside(scope, node, source, value, quantisation, limits, window)
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


def _average_inside(
    scope: Scope,
    node: OnnxNode,
    source: Dequantised,
    value: Value,
    quantisation: Quantisation,
    limits: Limits,
    window: Window,
) -> Codes:
    """The mean of what lies inside the map, which the machine rounds half away from zero."""
    if not quantisation.same(source.quantisation):
        raise ModelError(
            "windows that reach over the edge need the same scale and zero point in the result, or "
            "count_include_pad"
        )
    result = scope.map_result(
        node.outputs[0], source.codes, (1, *window.out, value.channels), quantisation.unsigned
    )
    scope.inexact_channels += value.channels
    floor, ceiling = code_limits(quantisation, limits)
    scope.add(
        Pooling(
            operator=str(node),
            source=value,
            result=result.value,
            reduction=Reduction.AVERAGE,
            window=window,
            floor=floor,
            ceiling=ceiling,
        )
    )
    return result


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
class _Sums:
    """A pool that adds the elements of each window, and what becomes of the sums."""

    fit: Fit
    zero_point: int
    floor: int
    ceiling: int


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
    """The mean of windows that lie within the map.

    ONNX Runtime rounds half to even. Where means often lie between two results, one pool cannot do
    so, but two can: one counts the even results that a sum has reached, the other the odd ones, and
    in each of them the steps are at equal distances.
    """
    count = window.kernel[0] * window.kernel[1]
    if count > MAX_COUNT:
        raise ModelError(f"a mean of {count} elements is not supported")
    zero_point = source.quantisation.zero_point
    ends = (-128 - zero_point) * count, (127 - zero_point) * count
    floor, ceiling = code_limits(quantisation, limits)
    low, high = floor - quantisation.zero_point, ceiling - quantisation.zero_point

    def results(sums: NDArray[np.int64]) -> NDArray[np.int64]:
        codes = mean(sums, source.quantisation, quantisation, count)
        return np.clip(codes - quantisation.zero_point, low, high)

    scale = float(source.quantisation.scale) / (float(quantisation.scale) * count)
    steps = _steps(results, ends, low, high)
    one = fit_bias(_around(steps, results, ends, low, high), scale)
    result = scope.map_result(
        node.outputs[0], source.codes, (1, *window.out, value.channels), quantisation.unsigned
    )
    bias = -zero_point * count
    if one.differing > TOLERATED:
        parts = [
            _every_second(steps, low, parity, scale, ends, quantisation.zero_point)
            for parity in (0, 1)
        ]
        differing = sum(part.fit.differing for part in parts)
        if differing < one.differing:
            scope.inexact_channels += value.channels if differing else 0
            _add_two(scope, node, value, result.value, window, parts, bias, quantisation.zero_point)
            return result
    scope.inexact_channels += value.channels if one.differing else 0
    whole = _Sums(one, quantisation.zero_point, floor, ceiling)
    _add_sums(scope, node, value, result.value, window, whole, bias)
    return result


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


def _around(
    steps: NDArray[np.int64],
    results: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    ends: tuple[int, int],
    low: int,
    high: int,
) -> Wanted:
    """The sums on both sides of all steps: results in between follow."""
    sums = np.unique(np.concatenate([steps, steps - 1, ends]))
    sums = sums[(sums >= ends[0]) & (sums <= ends[1])]
    return Wanted(sums, results(sums), low, high)


def _every_second(
    steps: NDArray[np.int64],
    low: int,
    parity: int,
    scale: float,
    ends: tuple[int, int],
    zero_point: int,
) -> _Sums:
    """A pool that counts the results of one parity."""
    numbers = np.arange(low + 1, low + 1 + len(steps))
    chosen = (numbers % 2 == parity) & (steps >= ends[0]) & (steps <= ends[1])
    own = steps[chosen]
    # Of the results from 0 on: 2, 4, ... are the even ones, 1, 3, ... the odd ones.
    first = -(-(low + 1 - parity) // 2) + parity - 1
    reached = int(np.count_nonzero(steps[numbers % 2 == parity] < ends[0]))

    def results(sums: NDArray[np.int64]) -> NDArray[np.int64]:
        return first + reached + np.searchsorted(own, sums, "right")

    least, greatest = first + reached, first + reached + len(own)
    fit = fit_bias(_around(own, results, ends, least, greatest), scale / 2)
    # Half of the zero point keeps what is in between within int8.
    shift = zero_point // 2
    return _Sums(fit, shift, max(least + shift, -128), min(greatest + shift, 127))


def _add_two(
    scope: Scope,
    node: OnnxNode,
    value: Value,
    result: Value,
    window: Window,
    parts: list[_Sums],
    bias: int,
    zero_point: int,
) -> None:
    values: list[Value] = []
    for number, part in enumerate(parts):
        values.append(Value(f"{result.name} part {number}", result.shape))
        _add_sums(scope, node, value, values[-1], window, part, bias)
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


def _add_sums(
    scope: Scope,
    node: OnnxNode,
    value: Value,
    result: Value,
    window: Window,
    sums: _Sums,
    bias: int,
) -> None:
    scope.add(
        Pooling(
            operator=str(node),
            source=value,
            result=result,
            reduction=Reduction.SUM,
            window=window,
            output=scalar_requantisation(
                sums.fit.multiplier,
                sums.fit.shift,
                bias=bias + sums.fit.bias,
                rounding=Rounding.SINGLE,
                zero_point=sums.zero_point,
            ),
            floor=sums.floor,
            ceiling=sums.ceiling,
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
