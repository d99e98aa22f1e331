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
"""Largest number of elements in a window of an averaging of uint8 or int16."""
MAX_COUNT = 1 << 22
"""Largest number of elements of a mean or sum, so that the sum stays within 32 bits."""


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
    """Return the windows of a pooling; raise ModelError if its maps do not fit the windows."""
    check_maps(source, result)
    options = operator.options
    kernel = (int(options.get("FilterHeight", 0)), int(options.get("FilterWidth", 0)))
    window = read_window(operator, source, result, kernel)
    check_shape(result, (1, *window.out, source.channels))
    return window


def _unsigned_averages(window: Window) -> tuple[Requantisation, ...]:
    """Return the requantisations that average sums of 1, 2, ... codes of int8 as if they were
    uint8.

    A bias adds 128 for each code, so halves are rounded as in sums of uint8, which are never below
    0.
    """
    taps = window.kernel[0] * window.kernel[1]
    if taps > MAX_TAPS:
        raise ModelError(f"windows of {taps} taps of uint8 are not supported")
    return tuple(
        replace(reciprocal(count), bias=np.array([128 * count], np.int32), zero_point=-128)
        for count in range(1, taps + 1)
    )


def translate_mean(scope: Scope, operator: Operator) -> None:
    """Translate MEAN along any axes: along the channels to a product with ones, else to a pool."""
    source, source_tensor, result, result_tensor, axes = _reduction(scope, operator)
    count = _count(source, axes)
    if len(source_tensor.scales) or len(result_tensor.scales):
        q, shift = _mean_multiplier(source_tensor.scale / result_tensor.scale, count)
        bias = -source_tensor.zero_point * count
        zero_point = result_tensor.zero_point
        output = scalar_requantisation(q, shift, bias=bias, zero_point=zero_point)
    else:
        # For tensors without scales, LiteRT multiplies the sums by 0, so all results are 0.
        output = scalar_requantisation(0, 0)
    total = _add_sum(scope, operator, source, axes, output, f"{result.name} kept")
    scope.add(Reshape(operator=str(operator), result=result, source=total))


def translate_sum(scope: Scope, operator: Operator) -> None:
    """Translate SUM between different scales in the same way as MEAN.

    LiteRT then takes all codes as uint8, even codes of int8, and does not change the zero points.
    So codes of int8 get their sign bit inverted, before the sum and after it.
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
    """Return the number of elements of each mean or sum; raise ModelError if they are too many."""
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
    """Add the operation that sums `source` along `axes`, and return the requantised sums.

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
    """Translate REDUCE_MAX and REDUCE_MIN along any axes to a pool."""
    source, source_tensor, result, result_tensor, axes = _reduction(scope, operator)
    same_quantisation(source_tensor, result_tensor)
    last = len(source.shape) - 1
    if last in axes:
        # If the channels are reduced, the last axis that is kept becomes the channels. If no axis
        # is kept, there is one channel.
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
    """Return the source and the result of a reduction, each with its tensor, and the axes."""
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
    """Return `source` with its axes in another order, as a value of shape `shape`."""
    check_size(source)
    result = Value(f"{source.name} for {operator}", shape)
    positions = np.arange(source.pixels * source.channels).reshape(source.shape)
    scope.add(*moved(str(operator), source, result, positions.transpose(order).reshape(shape)))
    return result


def _mean_multiplier(scale: float, count: int) -> tuple[int, int]:
    """Return LiteRT's multiplier and shift of a mean, with the multiplier divided by `count`.

    Before the division LiteRT shifts the multiplier to the left by up to 32 bits, for precision.
    """
    q, shift = multiplier(scale)
    bits = min(count.bit_length() - 1, 32, 31 + shift)
    if bits < 0 or shift - bits < -31:
        raise ModelError(f"its effective scale {scale:.6g} is too small")
    return (q << bits) // count, shift - bits


def _reduced_pixels(
    scope: Scope, operator: Operator, source: Value, axes: frozenset[int]
) -> tuple[Window, Value]:
    """Return a window over the pixels that become one pixel, and the map under the window."""
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
