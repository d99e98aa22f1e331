# SPDX-License-Identifier: Apache-2.0
"""The translation of means, sums, maxima and minima along any axes of a tensor.

Codes are quantised numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from systola.arch.isa import Reduction
from systola.compiler.errors import ModelError
from systola.compiler.host_stage import HostStage, LookUp, RealMean
from systola.compiler.onnx.averages import MAX_COUNT, add_average, doubtful, real_mean
from systola.compiler.onnx.entries import Codes, Dequantised, HostArray, Limits, Pending
from systola.compiler.onnx.layout import plain, stored
from systola.compiler.onnx.linear import Linear, limited, linear_output
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.numbers import CODES, Quantisation
from systola.compiler.onnx.scope import Scope
from systola.compiler.operations import Convolution, Pooling, Value, Window
from systola.compiler.shape_checks import checked_axis


def translate_reduce_mean(scope: Scope, node: OnnxNode) -> None:
    """Translate ReduceMean after DequantizeLinear; if no QuantizeLinear follows, the host
    calculates the mean in float32.
    """
    source = scope.dequantised(node, 0)
    shape = source.codes.shape
    found = _axes(scope, node, shape)
    if found is None:
        scope.result(node, source)
        return
    axes, kept = found

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        return _add_mean(scope, node, source, axes, kept, quantisation, limits)

    def numbers() -> HostArray:
        return _mean_of_numbers(scope, node, source, axes, kept)

    scope.result(node, Pending(kept, finish, numbers=numbers))


def translate_reduce_sum(scope: Scope, node: OnnxNode) -> None:
    """Translate ReduceSum between DequantizeLinear and QuantizeLinear, along any axes."""
    source = scope.dequantised(node, 0)
    shape = source.codes.shape
    found = _axes(scope, node, shape)
    if found is None:
        scope.result(node, source)
        return
    axes, kept = found
    count = math.prod(shape[axis] for axis in axes)

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        # The sum of `count` numbers is the mean of numbers that are `count` times as large.
        larger = replace(source.quantisation, scale=source.quantisation.scale * np.float32(count))
        as_mean = replace(source, quantisation=larger)
        return _add_mean(scope, node, as_mean, axes, kept, quantisation, limits)

    scope.result(node, Pending(kept, finish))


def _axes(
    scope: Scope, node: OnnxNode, shape: tuple[int, ...]
) -> tuple[set[int], tuple[int, ...]] | None:
    """Return the axes along which a node reduces its input, and the shape of the result.

    Returns None if the node has no axes and noop_with_empty_axes, so that it changes nothing.
    """
    if "axes" in node.attributes:
        given = list(node.integers("axes"))
    elif scope.optional(node, 1) is not None:
        given = scope.integers(node, 1)
    else:
        given = []
    if not given and node.integer("noop_with_empty_axes", 0):
        return None
    axes = {checked_axis(axis, len(shape)) for axis in given} or set(range(len(shape)))
    if 0 in axes and shape[0] > 1:
        raise ModelError("a reduction over samples is not supported")
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    if not node.integer("keepdims", 1):
        kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    return axes, kept


def translate_reduce_extreme(scope: Scope, node: OnnxNode) -> None:
    """Translate ReduceMax and ReduceMin after DequantizeLinear to a pool, along any axes."""
    source = scope.entry(node, 0)
    if not isinstance(source, Dequantised):
        raise ModelError("its input must come from a DequantizeLinear")
    shape = source.codes.shape
    found = _axes(scope, node, shape)
    if found is None:
        scope.result(node, source)
        return
    axes, kept = found
    if not bool((np.diff(source.numbers) >= 0).all()):
        raise ModelError("of a function that falls it is not supported")
    smallest = node.kind == "ReduceMin"
    # Numbers never fall from one code to the next, so the largest code stands for the largest
    # number. For ReduceMin, complements of codes are used in place of codes.
    codes = source.codes
    if smallest:
        codes = scope.look_up(node, codes, -1 - CODES, codes.unsigned)
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    order = (*rest[:-1], *sorted(axes), *rest[-1:])
    count = math.prod(shape[axis] for axis in axes)
    channels = shape[rest[-1]] if rest else 1
    outer = math.prod(shape) // (count * channels)
    value = scope.arranged(node, codes, order, (1, outer, count, channels))
    result = Value(node.outputs[0], (1, outer, 1, channels))
    scope.add(
        Pooling(
            operator=str(node),
            source=value,
            result=result,
            reduction=Reduction.MAX,
            window=Window(kernel=(1, count), out=(outer, 1)),
        )
    )
    extreme = Codes(result, kept, plain(kept), codes.unsigned)
    if smallest:
        extreme = scope.look_up(node, extreme, -1 - CODES, codes.unsigned)
    scope.result(node, replace(source, codes=extreme))


def _mean_of_numbers(
    scope: Scope, node: OnnxNode, source: Dequantised, axes: set[int], kept: tuple[int, ...]
) -> HostArray:
    """Add the host's operations for a mean in float32, and return the mean."""
    shape = source.codes.shape
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    along = [axis for axis in wide if axis in axes]
    between = [axis for axis in wide if along and along[0] <= axis <= along[-1]]
    if along != between:
        raise ModelError(f"a mean of float32 along axes {sorted(axes)} of {shape} is not supported")
    outer = math.prod(shape[: along[0]]) if along else 1
    count = math.prod(shape[axis] for axis in along)
    inner = math.prod(shape) // (outer * count)
    value = scope.arranged(node, source.codes, range(len(shape)), shape, to_host=True)
    real = Value(f"{value.name} in float32", shape, "float32")
    result = Value(node.outputs[0], kept, "float32")
    for before, after, function in (
        (value, real, LookUp(source.numbers)),
        (real, result, RealMean((outer, count, inner))),
    ):
        scope.add(HostStage(operator=str(node), sources=(before,), result=after, function=function))
    return HostArray(result)


def _add_mean(
    scope: Scope,
    node: OnnxNode,
    source: Dequantised,
    axes: set[int],
    kept: tuple[int, ...],
    quantisation: Quantisation,
    limits: Limits,
) -> Codes:
    """Add operations for a mean, and return the mean.

    A mean over channels is a convolution with weights of 1, any other mean is a pool.
    """
    shape = source.codes.shape
    if len(shape) > 4:
        raise ModelError(f"a mean over {shape} is not supported")
    order, value = scope.natural(node, source.codes)
    missing = 4 - len(order)
    value = scope.reshaped(
        node, value, (*(1 for _ in range(missing)), *(shape[axis] for axis in order))
    )
    places = {order.index(axis) + missing for axis in axes}
    if value.shape[0] != 1:
        raise ModelError(f"a mean over {shape} is not supported")
    _, height, width, channels = value.shape
    kernel = (height if 1 in places else 1, width if 2 in places else 1)
    window = Window(kernel=kernel, out=(height // kernel[0], width // kernel[1]))
    whole = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    layout = stored(whole, order)
    count = math.prod(shape[axis] for axis in axes)
    if count > MAX_COUNT:
        raise ModelError(f"a mean of {count} elements is not supported")
    result = Value(node.outputs[0], (1, *window.out, 1 if 3 in places else channels))
    codes = Codes(result, kept, layout, quantisation.unsigned)
    if 3 not in places:
        of_source = source.quantisation
        add_average(scope, node, value, result, window, of_source, quantisation, limits, real_mean)
        return codes
    weights = np.ones((*kernel, channels, 1), np.int64)
    scales = np.full(1, source.quantisation.scale / np.float32(count), np.float32)
    linear = Linear(source.codes, source.quantisation, weights, scales, np.zeros(1, np.int64))
    inexact = scope.inexact_channels
    output = linear_output(scope, linear, quantisation, limits)
    if doubtful(source.quantisation, quantisation, count):
        scope.inexact_channels = inexact + 1
    scope.add(
        Convolution(
            operator=str(node),
            source=value,
            result=result,
            weights=weights.astype(np.int8),
            counts=False,
            window=window,
            fill=0,
            output=output.requantisation,
        )
    )
    return limited(scope, node, codes, output)


Translator = Callable[[Scope, OnnxNode], None]
REDUCTIONS: dict[str, Translator] = {
    "ReduceMean": translate_reduce_mean,
    "ReduceSum": translate_reduce_sum,
    **dict.fromkeys(("ReduceMax", "ReduceMin"), translate_reduce_extreme),
}
