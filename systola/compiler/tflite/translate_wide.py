# SPDX-License-Identifier: Apache-2.0
"""The translation of operators on int16 with weights of int8, to the machine's 16-bit modes.

The machine adds products in 32 bits, but LiteRT in 64. So a layer is refused if its sums could need
more than 32 bits. The host splits int16 inputs into rows of low bytes and rows of high bytes, and
joins such rows of results. While it joins them, it also clamps results if the operator has a fused
activation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from systola.arch.isa import Operation, Rounding
from systola.compiler.errors import ModelError
from systola.compiler.halves import FromSums, Halves, Whole, Windows
from systola.compiler.host_stage import Rearrange
from systola.compiler.lower.pooling import reciprocal
from systola.compiler.operations import (
    Binary,
    Curve,
    Requantisation,
    Scale,
    Value,
    WideProduct,
    Window,
    scalar_requantisation,
)
from systola.compiler.quantise import quantise_multiplier, to_single
from systola.compiler.semantics import Semantics
from systola.compiler.shape_checks import MOST_ELEMENTS
from systola.compiler.tflite.fully_connected import check_symmetric, fused_activation, multiplier
from systola.compiler.tflite.graph import Operator, Tensor, need_type
from systola.compiler.tflite.scope import (
    Scope,
    check_maps,
    one_result,
    same_quantisation,
)
from systola.compiler.tflite.translate_arithmetic import (
    MOST_SUM_SCALE,
    OPERATIONS,
    check_broadcast,
)
from systola.compiler.tflite.translate_convolution import check_shape, read_window, upsampled
from systola.compiler.tflite.translate_host import check_same_shape
from systola.compiler.tflite.translate_pooling import MAX_TAPS, read_pool
from systola.compiler.tflite.wide_curves import WIDE_CURVES, curve_tables

WIDE_ADD_BITS = 15
"""Number of bits by which LiteRT's ADD and SUB of int16 shift operands left before scaling them."""
INT16 = np.iinfo(np.int16)
_REDUCED_LIMIT, _REDUCED_MOST = 0x7FFF0000, 0x7FFF
"""Limit from which a multiplier of 31 bits has no rounded form of 15 bits, and the multiplier of 15
bits that LiteRT takes from this limit on.
"""


def wide_fully_connected(scope: Scope, operator: Operator) -> None:
    """Translate FULLY_CONNECTED of int16 to a matrix product."""
    source, _, result, _ = _ends(scope, operator)
    weights = _weights(scope, operator, 2)
    assert weights.data is not None
    n, k = weights.shape
    size = source.pixels * source.channels
    if size % k or result.pixels * result.channels != size // k * n:
        raise ModelError(f"weights of {k} inputs do not fit a tensor of shape {source.shape}")
    _add_product(scope, operator, source, weights.data.T.astype(np.int64), weights, 0, k)


def wide_convolution(scope: Scope, operator: Operator) -> None:
    """Translate CONV_2D of int16 to a matrix product.

    The host first lays out the elements of each window as a row of the matrix.
    """
    source, _, result, _ = _ends(scope, operator)
    check_maps(source, result)
    weights = _weights(scope, operator, 4)
    assert weights.data is not None
    n, height, width, channels = weights.shape
    if channels != source.channels:
        raise ModelError(f"weights of {channels} channels do not fit {source.channels}")
    window = read_window(operator, source, result, (height, width))
    check_shape(result, (1, *window.out, n))
    rows = _windows(scope, operator, source, window)
    values = weights.data.astype(np.int64).reshape(n, -1).T
    _add_product(scope, operator, rows, values, weights, 0, len(values))


def wide_depthwise(scope: Scope, operator: Operator) -> None:
    """Translate DEPTHWISE_CONV_2D of int16 like a full convolution.

    A result channel has weights of 0 for all channels of the source but its own.
    """
    source, _, result, _ = _ends(scope, operator)
    check_maps(source, result)
    weights = _weights(scope, operator, 4)
    assert weights.data is not None
    one, height, width, channels = weights.shape
    if one != 1 or channels == 0 or channels % source.channels:
        raise ModelError(f"weights of {channels} channels do not fit {source.channels}")
    if height * width * source.channels * channels > MOST_ELEMENTS:
        raise ModelError(f"a depthwise convolution of {channels} channels is not supported")
    window = read_window(operator, source, result, (height, width))
    check_shape(result, (1, *window.out, channels))
    values = np.zeros((height, width, source.channels, channels), np.int64)
    number = np.arange(channels)
    values[:, :, number // (channels // source.channels), number] = weights.data[0]
    rows = _windows(scope, operator, source, window)
    matrix = values.reshape(-1, channels)
    _add_product(scope, operator, rows, matrix, weights, 3, height * width)


def wide_transpose_conv(scope: Scope, operator: Operator) -> None:
    """Translate TRANSPOSE_CONV of int16 to a convolution over the source, spread out with zeros.

    The host puts in the zeros, and lays out the windows as rows of a matrix product.
    """
    one_result(operator, 3)
    source, _ = scope.source(operator, 2, "int16")
    result, _ = scope.result(operator, dtype="int16")
    check_maps(source, result)
    weights = _weights(scope, operator, 4)
    assert weights.data is not None
    origin, window = upsampled(scope, operator, source, result, weights)
    wide = Value(f"{source.name} for {operator}", origin.shape, "int16")
    scope.host(operator, Rearrange(origin.reshape(-1)), wide, source)
    rows = _windows(scope, operator, wide, window)
    values = weights.data[:, ::-1, ::-1].astype(np.int64).reshape(result.channels, -1).T
    _add_product(scope, operator, rows, values, weights, 0, len(values), source_position=2)


def wide_average(scope: Scope, operator: Operator) -> None:
    """Translate AVERAGE_POOL_2D of int16 to a matrix product with weights of 1.

    The host lays out the elements (taps) of each window as a row. The sum of a row, times a
    multiplier of 31 bits just above 1 / taps, differs from the average by 2^-15 at most. An average
    of up to MAX_TAPS taps is either a half or farther than this from a half, so it is rounded
    correctly. `reciprocal` explains how halves are rounded.
    """
    one_result(operator, 1)
    _check_semantics(scope)
    source, source_tensor = scope.source(operator, dtype="int16")
    result, result_tensor = scope.result(operator, dtype="int16")
    same_quantisation(source_tensor, result_tensor)
    window = read_pool(operator, source, result)
    taps = window.kernel[0] * window.kernel[1]
    if taps > MAX_TAPS or window.counts_differ(*source.grid):
        raise ModelError(
            f"averages of int16 of {taps} elements, of fewer at the edge of a map, are not "
            "supported: windows must have one number of elements"
        )
    if result.pixels * result.channels * taps > MOST_ELEMENTS:
        raise ModelError(f"{result.pixels} windows of {taps} pixels of int16 are not supported")
    positions = np.arange(source.pixels * source.channels).reshape(source.shape[1:])
    windows = sliding_window_view(positions, window.kernel, (0, 1))
    origin = windows[:: window.stride[0], :: window.stride[1]].reshape(-1, taps)
    rows = Value(f"windows for {operator}", origin.shape, "int16")
    scope.host(operator, Rearrange(origin.reshape(-1)), rows, source)
    made = _made(result, 1)
    scope.add(
        WideProduct(
            operator=str(operator),
            result=made,
            source=_halves(scope, operator, rows, taps),
            weights=np.ones((taps, 1), np.int8),
            output=reciprocal(taps),
            taps=0,
        )
    )
    _add_whole(scope, operator, made, result, result_tensor)


def wide_refused(scope: Scope, operator: Operator) -> None:
    """Refuse an operator that the machine lacks for int16: raise ModelError with the reason."""
    if operator.kind == "MAX_POOL_2D":
        raise ModelError("the machine finds the largest of int8, not of int16")
    raise ModelError(
        "LiteRT takes it for int16 from 256 numbers with 512 places from one to the next, the "
        "machine has 128 places there"
    )


def wide_binary(scope: Scope, operator: Operator) -> None:
    """Translate ADD, SUB and MUL of int16 to a Binary of int16, for the machine."""
    one_result(operator, 2)
    _check_semantics(scope)
    result, result_tensor = scope.result(operator, dtype="int16")
    tensors = [scope.tensor(operator, position) for position in range(2)]
    for tensor in (*tensors, result_tensor):
        need_type("operand", tensor, "int16")
        _check_centred(tensor)
    shapes = [
        scope.source(operator, position, "int16")[0].shape if tensor.data is None else tensor.shape
        for position, tensor in enumerate(tensors)
    ]
    operands: list[Value | NDArray[np.int8]] = []
    for position, tensor in enumerate(tensors):
        if tensor.data is None:
            value, _ = scope.source(operator, position, "int16")
            if value.shape != result.shape:
                raise ModelError("operands of int16 in other shapes than the result's")
            operands.append(_halves(scope, operator, value, result.channels))
        else:
            check_broadcast(result, *(np.zeros(shape, np.int8) for shape in shapes))
            spread = np.broadcast_to(tensor.data, result.shape)[np.newaxis]
            halves = Halves(result.channels)(np.ascontiguousarray(spread))[0]
            operands.append(np.ascontiguousarray(halves))
    operation = OPERATIONS[operator.kind]
    if operation == Operation.MULTIPLY:
        scales = Scale(0), Scale(0)
        product = to_single(tensors[0].scale * tensors[1].scale)
        scale = to_single(product / result_tensor.scale)
    else:
        if _powers_of_two(operator, (*tensors, result_tensor)):
            raise ModelError("scales that are powers of two have rules of their own for int16")
        common = 2 * max(tensor.scale for tensor in tensors)
        pairs = [quantise_multiplier(tensor.scale / common) for tensor in tensors]
        scales = Scale(0, pairs[0][0], -pairs[0][1]), Scale(0, pairs[1][0], -pairs[1][1])
        scale = common / (2**WIDE_ADD_BITS * result_tensor.scale)
        if scale >= MOST_SUM_SCALE:
            raise ModelError(f"its effective scale {scale:.6g} is too large")
    q, shift = multiplier(scale)
    made = _made(result, result.channels)
    scope.add(
        Binary(
            operator=str(operator),
            result=made,
            operation=operation,
            a=operands[0],
            b=operands[1],
            scale_a=scales[0],
            scale_b=scales[1],
            output=scalar_requantisation(q, shift),
            wide=True,
        )
    )
    _add_whole(scope, operator, made, result, result_tensor)


def wide_curve(scope: Scope, operator: Operator) -> None:
    """Translate a function of one element of int16, one of WIDE_CURVES, to a Curve.

    LiteRT has 513 numbers for such a function, and takes straight lines between them.
    """
    one_result(operator, 1)
    _check_semantics(scope)
    source, source_tensor = scope.source(operator, dtype="int16")
    result, result_tensor = scope.result(operator, dtype="int16")
    for tensor in (source_tensor, result_tensor):
        _check_centred(tensor)
    check_same_shape(source, result)
    made = _made(result, result.channels)
    scope.add(
        Curve(
            operator=str(operator),
            result=made,
            source=_halves(scope, operator, source, source.channels),
            tables=curve_tables(operator, source_tensor, result_tensor),
        )
    )
    _add_whole(scope, operator, made, result, result_tensor)


WIDE_TRANSLATORS: Mapping[str, Callable[[Scope, Operator], None]] = {
    "FULLY_CONNECTED": wide_fully_connected,
    "CONV_2D": wide_convolution,
    "DEPTHWISE_CONV_2D": wide_depthwise,
    "TRANSPOSE_CONV": wide_transpose_conv,
    **dict.fromkeys(OPERATIONS, wide_binary),
    **dict.fromkeys(WIDE_CURVES, wide_curve),
    "AVERAGE_POOL_2D": wide_average,
    **dict.fromkeys(("LOGISTIC", "TANH", "MAX_POOL_2D"), wide_refused),
}
"""Map from a kind of operator to its translator for int16."""


def _powers_of_two(operator: Operator, tensors: tuple[Tensor, ...]) -> bool:
    """Return whether LiteRT requantises by shifts alone.

    This is so if all scales are powers of two, unless the option PotScaleInt16 forbids it.
    """
    chosen = bool(operator.options.get("PotScaleInt16", True))
    return chosen and all(np.frexp(tensor.scale)[0] == 0.5 for tensor in tensors)


def _check_semantics(scope: Scope) -> None:
    if scope.semantics is not Semantics.LITERT_2:
        raise ModelError("int16 has the semantics litert-2 only")


def _check_centred(tensor: Tensor) -> None:
    if tensor.zero_points.any():
        raise ModelError(f"tensor '{tensor.name}' of int16 has a zero point other than 0")


def _ends(scope: Scope, operator: Operator) -> tuple[Value, Tensor, Value, Tensor]:
    """Return the source, its tensor, the result and its tensor, of an operator with weights."""
    one_result(operator, 2)
    return (*scope.source(operator, 0, "int16"), *scope.result(operator, dtype="int16"))


def _weights(scope: Scope, operator: Operator, rank: int) -> Tensor:
    weights = scope.tensor(operator, 1)
    need_type("weights", weights, "int8")
    if weights.data is None or len(weights.shape) != rank or not weights.size:
        raise ModelError(f"its weights must be constants of {rank} dimensions")
    check_symmetric(weights)
    return weights


def _windows(scope: Scope, operator: Operator, source: Value, window: Window) -> Value:
    """Return a matrix, each row of which has the elements of one window of `source`.

    A host stage makes it. If each window is a single pixel, in order, `source` itself is returned.
    """
    each = Window(kernel=(1, 1), dilation=window.dilation, out=source.grid)
    if window == each:
        return source
    elements = window.kernel[0] * window.kernel[1] * source.channels
    count = window.out[0] * window.out[1]
    if count * elements > MOST_ELEMENTS:
        raise ModelError(f"{count} windows of {elements} elements of int16 are not supported")
    result = Value(f"windows for {operator}", (count, elements), "int16")
    function = Windows(window.kernel, window.stride, window.dilation, window.first, window.out)
    scope.host(operator, function, result, source)
    return result


def _halves(scope: Scope, operator: Operator, source: Value, length: int) -> Value:
    """Return the bytes of `source`, an int16 value, in the form that the machine takes.

    For each `length` elements there is a row of low bytes, then a row of high bytes. A host stage
    makes them, unless `scope.halves` has them already.
    """
    if (source, length) not in scope.halves:
        rows = source.pixels * source.channels // length
        result = Value(f"{source.name} in rows of {length}", (rows, 2, length))
        scope.host(operator, Halves(length), result, source)
        scope.halves[source, length] = result
    return scope.halves[source, length]


def _made(result: Value, length: int) -> Value:
    rows = result.pixels * result.channels // length
    return Value(f"{result.name} in rows of {length}", (rows, 2, length))


def _add_whole(
    scope: Scope, operator: Operator, made: Value, result: Value, tensor: Tensor
) -> None:
    """Add the host stage that makes `result`, an int16 value, from `made`.

    `made` has the machine's rows of low and high bytes. The stage also applies the operator's fused
    activation.
    """
    floor, ceiling = _limits(fused_activation(operator), tensor)
    scope.host(operator, Whole(floor, ceiling), result, made)
    if (floor, ceiling) == (INT16.min, INT16.max):
        scope.halves[result, made.channels] = made


def _limits(activation: str, tensor: Tensor) -> tuple[int, int]:
    if activation == "NONE":
        return INT16.min, INT16.max
    most = int(np.floor(np.float32(6) / np.float32(tensor.scale) + np.float32(0.5)))
    return 0, min(most, INT16.max) if activation == "RELU6" else INT16.max


def _add_product(
    scope: Scope,
    operator: Operator,
    source: Value,
    values: NDArray[np.int64],
    weights: Tensor,
    axis: int,
    taps: int,
    source_position: int = 0,
) -> None:
    """Add the matrix product of the rows of `source` and `values`, and the host stages around it.

    `values` has the weights, elements of a row x results. `weights` is their tensor in the file,
    where the results are along `axis`. `taps` is the number of weights of a result that may be
    other than 0.
    """
    _check_semantics(scope)
    k, n = values.shape
    result, result_tensor = scope.result(operator, dtype="int16")
    source_tensor = scope.tensor(operator, source_position)
    for tensor in (source_tensor, result_tensor):
        _check_centred(tensor)
    if len(weights.scales) not in (1, n) or (len(weights.scales) > 1 and weights.axis != axis):
        raise ModelError("its weights need one scale, or one for each output")
    bias = scope.optional(operator, 3 if operator.kind == "TRANSPOSE_CONV" else 2)
    biases = np.zeros(n, np.int64)
    narrow = operator.options.get("QuantizedBiasType") == "INT32"
    if bias is not None:
        # The option QuantizedBiasType chooses biases of int32, otherwise LiteRT takes int64.
        need_type("bias", bias, "int32" if narrow else "int64")
        if bias.data is None or bias.size != n:
            raise ModelError(f"its bias should have {n} values, not shape {bias.shape}")
        biases = bias.data.reshape(n).astype(np.int64)
    most = np.abs(values).sum(axis=0) * -int(INT16.min) + np.minimum(np.abs(biases), 1 << 40)
    if int(most.max()) >= (1 << 31) - (1 << 15):
        raise ModelError("its sums of int16 need more than 32 bits")
    scales = np.broadcast_to(
        source_tensor.scale * weights.channel_scales / result_tensor.scale, (n,)
    )
    # LiteRT scales the sums of FULLY_CONNECTED in float64. Only the host can do this, so the
    # machine returns the sums.
    sums = operator.kind == "FULLY_CONNECTED"
    pairs = [(0, 0) if sums else _multiplier(float(scale), narrow=narrow) for scale in scales]
    made = _made(result, n)
    if sums:
        made = Value(f"sums for {result.name}", (2 * made.shape[0], 2, n))
    scope.add(
        WideProduct(
            operator=str(operator),
            result=made,
            source=_halves(scope, operator, source, k),
            weights=np.ascontiguousarray(values.astype(np.int8)),
            output=Requantisation(
                bias=biases.astype(np.int32),
                multiplier=np.array([q for q, _ in pairs], np.int32),
                shift=np.array([shift for _, shift in pairs], np.int32),
                rounding=Rounding.DOUBLE if narrow and not sums else Rounding.SINGLE,
            ),
            taps=taps,
            sums=sums,
        )
    )
    if sums:
        function = FromSums(np.array(scales), *_limits(fused_activation(operator), result_tensor))
        scope.host(operator, function, result, made)
    else:
        _add_whole(scope, operator, made, result, result_tensor)


def _multiplier(scale: float, *, narrow: bool) -> tuple[int, int]:
    """Return the multiplier and shift with which LiteRT multiplies sums by `scale`.

    They stand for multiplier * 2^(shift - 31), as in Layer. With `narrow`, LiteRT has sums of 32
    bits and multipliers of 31. Otherwise it has sums of 64 bits and rounds multipliers to 15 bits.
    """
    q, shift = multiplier(scale)
    if narrow:
        return q, shift
    reduced = (q + (1 << 15)) >> 16 if q < _REDUCED_LIMIT else _REDUCED_MOST
    return reduced << 16, shift
