# SPDX-License-Identifier: Apache-2.0
"""The translation of TensorFlow Lite's poolings and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from systola.arch.isa import Reduction
from systola.compiler.errors import ModelError
from systola.compiler.lower.pooling import reciprocal
from systola.compiler.moves import check_size, moved
from systola.compiler.operations import (
    Convolution,
    Pooling,
    Requantisation,
    Reshape,
    Value,
    Window,
    scalar_requantisation,
)
from systola.compiler.quantise import relu_limits
from systola.compiler.shape_checks import checked_axis
from systola.compiler.tflite.element_moves import reduced_shape
from systola.compiler.tflite.fully_connected import fused_activation, multiplier
from systola.compiler.tflite.graph import Operator, Tensor
from systola.compiler.tflite.scope import (
    Scope,
    check_maps,
    one_result,
    same_quantisation,
)
from systola.compiler.tflite.translate_arithmetic import complement, with_inverted_sign
from systola.compiler.tflite.translate_convolution import check_shape, read_window

MAX_TAPS = 1 << 12
"""Largest number of elements in a window of AVERAGE_POOL_2D of uint8 or int16."""
MAX_COUNT = 1 << 22
"""Largest number of elements in one mean or sum of int8; any such sum is within 32 bits."""


def translate_pool(scope: Scope, operator: Operator) -> None:
    """Translate MAX_POOL_2D and AVERAGE_POOL_2D of int8 to a pool."""
    one_result(operator, 1)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    same_quantisation(source_tensor, result_tensor)
    window = read_pool(operator, source, result)
    floor, ceiling = relu_limits(
        fused_activation(operator), result_tensor.scale, result_tensor.zero_point
    )
    largest = operator.kind == "MAX_POOL_2D"
    unsigned = source_tensor.unsigned and not largest
    scope.add(
        Pooling(
            operator=str(operator),
            result=result,
            source=source,
            reduction=Reduction.MAX if largest else Reduction.AVERAGE,
            window=window,
            averages=_unsigned_averages(window) if unsigned else (),
            floor=floor,
            ceiling=ceiling,
        )
    )


def read_pool(operator: Operator, source: Value, result: Value) -> Window:
    """Return the window of a pooling.

    Raises ModelError if the shapes of `source` and `result` do not fit this window.
    """
    check_maps(source, result)
    options = operator.options
    kernel = (int(options.get("FilterHeight", 0)), int(options.get("FilterWidth", 0)))
    window = read_window(operator, source, result, kernel)
    check_shape(result, (1, *window.out, source.channels))
    return window


def _unsigned_averages(window: Window) -> tuple[Requantisation, ...]:
    """Return the requantisations from sums to averages; item i is for sums of i + 1 codes.

    The codes are int8, but were uint8 in the file, where sums are never below 0. To round halves as
    LiteRT does there, a bias adds 128 to the sum for each code.
    """
    taps = window.kernel[0] * window.kernel[1]
    if taps > MAX_TAPS:
        raise ModelError(f"windows of {taps} taps of uint8 are not supported")
    return tuple(
        replace(reciprocal(count), bias=np.array([128 * count], np.int32), zero_point=-128)
        for count in range(1, taps + 1)
    )


def translate_mean(scope: Scope, operator: Operator) -> None:
    """Translate MEAN of int8 along any axes: to a convolution with weights of 1 if the channels are
    among the axes, otherwise to a pool.
    """
    source, source_tensor, result, result_tensor, axes = _reduction(scope, operator)
    count = _count(source, axes)
    if len(source_tensor.scales) or len(result_tensor.scales):
        q, shift = _mean_multiplier(source_tensor.scale / result_tensor.scale, count)
        bias = -source_tensor.zero_point * count
        zero_point = result_tensor.zero_point
        output = scalar_requantisation(q, shift, bias=bias, zero_point=zero_point)
    else:
        # If neither tensor has a scale, LiteRT multiplies the sums by 0, so all results are 0.
        output = scalar_requantisation(0, 0)
    total = _add_sum(scope, operator, source, axes, output, f"{result.name} kept")
    scope.add(Reshape(operator=str(operator), result=result, source=total))


def translate_sum(scope: Scope, operator: Operator) -> None:
    """Translate SUM to the same operations as MEAN, if the result has another scale or zero point
    than the source.

    For such a SUM LiteRT takes the bytes of int8 codes as uint8, but keeps the zero points. So the
    sign bit of int8 codes is inverted before the sum, and the sign bit of the results after it.
    Raises ModelError if source and result have the same scale and zero point.
    """
    source, source_tensor, result, result_tensor, axes = _reduction(scope, operator)
    count = _count(source, axes)
    before = source_tensor.scale, source_tensor.zero_point
    after = result_tensor.scale, result_tensor.zero_point
    if before == after:
        raise ModelError("a sum with the scale and zero point of its input wraps around")
    inverted = not source_tensor.unsigned
    offset = 128 if inverted else 0
    zero_point = result_tensor.zero_point - offset
    if zero_point < -128:
        raise ModelError("a sum of int8 with a zero point below 0 is not supported")
    q, shift = multiplier(source_tensor.scale / result_tensor.scale)
    bias = (offset - source_tensor.zero_point) * count
    output = scalar_requantisation(q, shift, bias=bias, zero_point=zero_point)
    if inverted:
        source = with_inverted_sign(scope, operator, source)
    total = _add_sum(scope, operator, source, axes, output, f"{result.name} kept")
    if inverted:
        total = with_inverted_sign(scope, operator, total)
    scope.add(Reshape(operator=str(operator), result=result, source=total))


def _count(source: Value, axes: frozenset[int]) -> int:
    """Return the number of elements of `source` in each mean or sum along `axes`.

    Raises ModelError if there are more than MAX_COUNT.
    """
    count = math.prod(source.shape[axis] for axis in axes)
    if count > MAX_COUNT:
        raise ModelError(f"a mean or sum of {count} elements is not supported")
    return count


def _add_sum(
    scope: Scope,
    operator: Operator,
    source: Value,
    axes: frozenset[int],
    output: Requantisation,
    name: str,
) -> Value:
    """Add an operation that sums `source` along `axes` and requantises the sums; return the result.

    The operation is a convolution with ones if the channels are among `axes`, else a pool.
    """
    window, taken = _reduced_pixels(scope, operator, source, axes)
    if len(source.shape) - 1 in axes:
        total = Value(name, (1, *window.out, 1))
        ones = np.ones((*window.kernel, source.channels, 1), np.int8)
        scope.add(
            Convolution(
                operator=str(operator),
                result=total,
                source=taken,
                weights=ones,
                counts=False,
                window=window,
                fill=0,
                output=output,
            )
        )
    else:
        total = Value(name, (1, *window.out, source.channels))
        scope.add(
            Pooling(
                operator=str(operator),
                result=total,
                source=taken,
                reduction=Reduction.SUM,
                window=window,
                output=output,
            )
        )
    return total


def translate_reduce_extreme(scope: Scope, operator: Operator) -> None:
    """Translate REDUCE_MAX and REDUCE_MIN of int8, along any axes, to a pool."""
    source, source_tensor, result, result_tensor, axes = _reduction(scope, operator)
    same_quantisation(source_tensor, result_tensor)
    last = len(source.shape) - 1
    if last in axes:
        # A pool cannot reduce the channels, the last axis. So axes are transposed, and the last
        # axis that is not reduced becomes the channels. If all axes are reduced, there is one
        # channel.
        kept = [axis for axis in range(last) if axis not in axes]
        channels = kept[-1:]
        order = (*kept[:-1], *sorted(axes), *channels)
        sizes = [source.shape[axis] for axis in order]
        shape = (*sizes, 1) if not channels else tuple(sizes)
        source = _transposed(scope, operator, source, order, shape)
        axes = frozenset(range(len(kept[:-1]), len(shape) - 1))
    smallest = operator.kind == "REDUCE_MIN"
    if smallest:
        source = complement(scope, operator, source)
    window, taken = _reduced_pixels(scope, operator, source, axes)
    extreme = Value(f"{result.name} kept", (1, *window.out, source.channels))
    scope.add(
        Pooling(
            operator=str(operator),
            result=extreme,
            source=taken,
            reduction=Reduction.MAX,
            window=window,
        )
    )
    if smallest:
        extreme = complement(scope, operator, extreme)
    scope.add(Reshape(operator=str(operator), result=result, source=extreme))


def _reduction(
    scope: Scope, operator: Operator
) -> tuple[Value, Tensor, Value, Tensor, frozenset[int]]:
    """Return the source, its tensor, the result, its tensor, and the axes of a reduction."""
    one_result(operator, 2)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    rank = len(source.shape)
    if rank == 0:
        raise ModelError("its input has no axes")
    axes = {
        checked_axis(axis, rank) for axis in scope.whole_numbers(operator, 1).reshape(-1).tolist()
    }
    if (
        not axes
        or result_tensor.shape
        != reduced_shape(source_tensor.shape, axes, keep=bool(operator.options.get("KeepDims")))
        or (0 in axes and scope.repeat > 1)
    ):
        raise ModelError(
            f"it makes shape {result.shape} of shape {source.shape} along axes {sorted(axes)}"
        )
    return source, source_tensor, result, result_tensor, frozenset(axes)


def _transposed(
    scope: Scope, operator: Operator, source: Value, order: Sequence[int], shape: tuple[int, ...]
) -> Value:
    """Add a move that transposes `source`, and return its result, of shape `shape`.

    `order` has the axes of `source` in their new order.
    """
    check_size(source)
    result = Value(f"{source.name} for {operator}", shape)
    positions = np.arange(source.pixels * source.channels).reshape(source.shape)
    scope.add(*moved(str(operator), source, result, positions.transpose(order).reshape(shape)))
    return result


def _mean_multiplier(scale: float, count: int) -> tuple[int, int]:
    """Return the multiplier and shift by which LiteRT makes a mean of a sum of `count` codes.

    They stand for scale / count. LiteRT divides the multiplier of `scale` by `count`, after a shift
    to the left by up to 32 bits, for precision.
    """
    q, shift = multiplier(scale)
    bits = min(count.bit_length() - 1, 32, 31 + shift)
    if bits < 0 or shift - bits < -31:
        raise ModelError(f"its effective scale {scale:.6g} is too small")
    return (q << bits) // count, shift - bits


def _reduced_pixels(
    scope: Scope, operator: Operator, source: Value, axes: frozenset[int]
) -> tuple[Window, Value]:
    """Return a window over all pixels that become one pixel, and `source` as a map for this window.

    Elements along `axes` become one pixel, channels apart. The map is `source` itself, or made of
    `source` by operations that are added to the scope.
    """
    sizes = source.shape[:-1]
    along = [axis for axis, size in enumerate(sizes) if size > 1 and axis in axes]
    if not along:
        height, width, kernel = 1, source.pixels, (1, 1)
    else:
        between = sizes[along[0] : along[-1] + 1]
        outer, inner = math.prod(sizes[: along[0]]), math.prod(sizes[along[-1] + 1 :])
        count = math.prod(between)
        if math.prod(sizes[axis] for axis in along) != count or min(outer, inner) > 1:
            kept = [axis for axis in range(len(sizes)) if axis not in along]
            count = math.prod(sizes[axis] for axis in along)
            outer, inner = source.pixels // count, 1
            order, shape = (*kept, *along, len(sizes)), (1, outer, count, source.channels)
            source = _transposed(scope, operator, source, order, shape)
        height, width, kernel = (
            (outer, count, (1, count)) if inner == 1 else (count, inner, (count, 1))
        )
        if outer == inner == 1:
            height, width = source.grid
            kernel = (height, width)
    shape = (1, height, width, source.channels)
    taken = source
    if source.shape != shape:
        taken = Value(f"{source.name} for {operator}", shape)
        scope.add(Reshape(operator=str(operator), result=taken, source=source))
    return Window(kernel=kernel, out=(height // kernel[0], width // kernel[1])), taken
