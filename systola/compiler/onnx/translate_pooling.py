# SPDX-License-Identifier: Apache-2.0
"""The translation of ONNX's operators for pooling. Codes are quantised numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from systola.arch.isa import Reduction
from systola.compiler.errors import ModelError
from systola.compiler.host_stage import HostStage, LookUp, QuantiseEven, RealAveragePool
from systola.compiler.moves import check_size
from systola.compiler.onnx.averages import Mean, add_average, global_mean, pool_mean
from systola.compiler.onnx.entries import Codes, Dequantised, Limits, Pending
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.multipliers import code_limits
from systola.compiler.onnx.numbers import CODES, Quantisation
from systola.compiler.onnx.scope import Scope
from systola.compiler.onnx.windows import read_window
from systola.compiler.operations import (
    Pooling,
    Value,
    Window,
)


def translate_max_pool(scope: Scope, node: OnnxNode) -> None:
    """Translate MaxPool and GlobalMaxPool, of codes or of the numbers for which codes stand."""
    source = scope.entry(node, 0)
    if isinstance(source, Dequantised) and bool((np.diff(source.numbers) >= 0).all()):
        # Numbers never fall from one code to the next, so the largest code stands for the largest
        # number.
        codes = _max_pool(scope, node, source.codes)
        scope.result(node, replace(source, codes=codes))
    elif isinstance(source, Codes):
        scope.result(node, _max_pool(scope, node, source))
    else:
        raise ModelError("its input must be quantised")


def _max_pool(scope: Scope, node: OnnxNode, source: Codes) -> Codes:
    sizes = _sizes(source.shape)
    value = scope.feature_map(node, source)
    everything = Window(kernel=value.grid, out=(1, 1))
    window = everything if node.kind == "GlobalMaxPool" else read_window(node, sizes)
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
    """Translate AveragePool between DequantizeLinear and QuantizeLinear to a pool.

    If a function of one number comes before AveragePool, the host calculates the mean.
    """
    source = _numbers(scope, node)
    window = read_window(node, _sizes(source.codes.shape))

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        if source.curve is not None:
            return _average_on_host(scope, node, source, quantisation, limits, window)
        return _average_pool(scope, node, source, quantisation, limits)

    out = window.out if len(source.codes.shape) == 4 else window.out[1:]
    scope.result(node, Pending((*source.codes.shape[:2], *out), finish))


def _numbers(scope: Scope, node: OnnxNode) -> Dequantised:
    """Return the entry of a node's first input, float32 numbers that are a function of codes.

    Raises ModelError for any other input.
    """
    source = scope.entry(node, 0)
    if not isinstance(source, Dequantised):
        raise ModelError("its input must come from a DequantizeLinear")
    return source


def _average_on_host(
    scope: Scope,
    node: OnnxNode,
    source: Dequantised,
    quantisation: Quantisation,
    limits: Limits,
    window: Window,
) -> Codes:
    """Add the host's operations for a mean in float32, as ONNX Runtime calculates it.

    The machine can average only codes. This is wrong if the numbers are not proportional to the
    codes less their zero point.
    """
    value = scope.feature_map(node, source.codes)
    shape = (1, *window.out, value.channels)
    real = Value(f"{value.name} in float32", value.shape, "float32")
    mean = Value(f"{node.outputs[0]} in float32", shape, "float32")
    result = scope.map_result(node.outputs[0], source.codes, shape, quantisation.unsigned)
    pool = RealAveragePool(
        window.kernel,
        window.stride,
        window.dilation,
        window.first,
        window.out,
        node.integer("count_include_pad", 0) != 0,
    )
    rounding = QuantiseEven(float(quantisation.scale), quantisation.zero_point)
    for before, behind, function in (
        (value, real, LookUp(source.numbers)),
        (real, mean, pool),
        (mean, result.value, rounding),
    ):
        scope.add(
            HostStage(operator=str(node), sources=(before,), result=behind, function=function)
        )
    low, high = code_limits(quantisation, limits)
    if (low, high) == (-128, 127):
        return result
    return scope.look_up(node, result, np.clip(CODES, low, high), quantisation.unsigned)


def translate_qlinear_average_pool(scope: Scope, node: OnnxNode) -> None:
    """Translate QLinearAveragePool, an operator of ONNX Runtime on codes, to a pool."""
    source, quantisation = _qlinear(scope, node)
    scope.result(node, _average_pool(scope, node, source, quantisation, Limits()))


def translate_global_average_pool(scope: Scope, node: OnnxNode) -> None:
    """Translate GlobalAveragePool between DequantizeLinear and QuantizeLinear to a pool.

    If a function of one number comes before GlobalAveragePool, the host calculates the mean.
    """
    source = _numbers(scope, node)
    sizes = _sizes(source.codes.shape)

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        if source.curve is not None:
            kernel = (*(1 for _ in range(2 - len(sizes))), *sizes)
            window = Window(kernel=(kernel[0], kernel[1]), out=(1, 1))
            return _average_on_host(scope, node, source, quantisation, limits, window)
        return _global_average(scope, node, source, quantisation, limits)

    shape = (*source.codes.shape[:2], *(1 for _ in sizes))
    scope.result(node, Pending(shape, finish))


def translate_qlinear_global_average_pool(scope: Scope, node: OnnxNode) -> None:
    """Translate QLinearGlobalAveragePool, an operator of ONNX Runtime on codes, to a pool."""
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
    return _mean(scope, node, source, value, quantisation, limits, window, pool_mean)


def _padded(
    scope: Scope, node: OnnxNode, source: Dequantised, value: Value, window: Window
) -> tuple[Value, Window]:
    """Return a map with a border of zeros as wide as windows reach, and the windows on this new
    map.
    """
    height, width = (
        (out - 1) * stride + (kernel - 1) * dilation + 1
        for out, stride, kernel, dilation in zip(
            window.out, window.stride, window.kernel, window.dilation, strict=True
        )
    )
    result = Value(f"{value.name} padded", (1, height, width, value.channels))
    check_size(value, result)
    origin = np.full(result.shape, -1, np.int64)
    inside = np.arange(value.pixels * value.channels).reshape(value.shape)
    top, left = -window.first[0], -window.first[1]
    # Pixels at the end of the map that no window reaches are left out.
    inside = inside[:, : height - top, : width - left]
    origin[:, top : top + inside.shape[1], left : left + inside.shape[2]] = inside
    scope.move(node, value, result, origin, source.quantisation.zero_point)
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
    return _mean(scope, node, source, value, quantisation, limits, window, global_mean)


def _mean(
    scope: Scope,
    node: OnnxNode,
    source: Dequantised,
    value: Value,
    quantisation: Quantisation,
    limits: Limits,
    window: Window,
    mean: Mean,
) -> Codes:
    result = scope.map_result(
        node.outputs[0], source.codes, (1, *window.out, value.channels), quantisation.unsigned
    )
    of_source = source.quantisation
    add_average(scope, node, value, result.value, window, of_source, quantisation, limits, mean)
    return result


def _sizes(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) not in (3, 4):
        raise ModelError(f"a feature map of shape {shape} is not supported")
    return shape[2:]


Translator = Callable[[Scope, OnnxNode], None]
POOLING: dict[str, Translator] = {
    **dict.fromkeys(("MaxPool", "GlobalMaxPool"), translate_max_pool),
    "AveragePool": translate_average_pool,
    "QLinearAveragePool": translate_qlinear_average_pool,
    "GlobalAveragePool": translate_global_average_pool,
    "QLinearGlobalAveragePool": translate_qlinear_global_average_pool,
}
