# SPDX-License-Identifier: Apache-2.0
"""The translation of convolutions and products with constant weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.layer import Layer
from systola.compiler.moves import check_moves, gathered
from systola.compiler.onnx.entries import Codes, Dequantised, Entry, Limits, Pending, Weights
from systola.compiler.onnx.layout import Layout, plain
from systola.compiler.onnx.linear import Linear, LinearOutput, limited, linear_output
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.numbers import Quantisation
from systola.compiler.onnx.scope import Scope
from systola.compiler.onnx.windows import read_window
from systola.compiler.operations import (
    Concatenation,
    Convolution,
    DepthwiseConvolution,
    Product,
    Requantisation,
    Slice,
    Value,
    Window,
)
from systola.compiler.wide_weights import repeated, weight_parts, widened

MAX_WEIGHTS = 1 << 28
TOLERATED = 1e-3
"""Largest rounding error of a bias that still counts as exact, in units of the sums."""


def translate_conv(scope: Scope, node: OnnxNode) -> None:
    """Translate Conv between DequantizeLinear and QuantizeLinear to convolutions."""
    source = scope.dequantised(node, 0)
    weights = _dequantised_weights(scope, node, 1)
    linear = _convolution(node, source, weights, scope.optional(node, 2))
    shape = _convolution_shape(scope, node, linear)

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        return _add_convolution(scope, node, linear, quantisation, limits)

    scope.result(node, Pending(shape, finish))


def translate_qlinear_conv(scope: Scope, node: OnnxNode) -> None:
    """Translate QLinearConv, an operator on codes, to convolutions."""
    source = Dequantised(scope.codes(node, 0), scope.quantisation(node, 1, 2))
    weights = _weights(scope, node, 3, 4, 5, axis=0)
    linear = _convolution(node, source, weights, scope.optional(node, 8))
    quantisation = scope.quantisation(node, 6, 7)
    scope.result(node, _add_convolution(scope, node, linear, quantisation, Limits()))


def translate_matmul(scope: Scope, node: OnnxNode) -> None:
    """Translate MatMul between DequantizeLinear and QuantizeLinear to a product."""
    source = scope.dequantised(node, 0)
    linear = _product(source, _dequantised_weights(scope, node, 1), 1.0, None, transposed=False)
    _define_product(scope, node, linear)


def translate_qlinear_matmul(scope: Scope, node: OnnxNode) -> None:
    """Translate QLinearMatMul, an operator on codes, to a product."""
    source = Dequantised(scope.codes(node, 0), scope.quantisation(node, 1, 2))
    weights = _weights(scope, node, 3, 4, 5, axis=1)
    linear = _product(source, weights, 1.0, None, transposed=False)
    quantisation = scope.quantisation(node, 6, 7)
    scope.result(node, _add_product(scope, node, linear, quantisation, Limits()))


def translate_gemm(scope: Scope, node: OnnxNode) -> None:
    """Translate Gemm between DequantizeLinear and QuantizeLinear to a product."""
    source = scope.dequantised(node, 0)
    bias = scope.optional(node, 2)
    if bias is not None and node.number("beta", 1.0) != 1.0:
        raise ModelError("a bias with a beta other than 1 is not supported")
    _define_product(
        scope, node, _gemm(scope, node, source, _dequantised_weights(scope, node, 1), bias)
    )


def translate_qgemm(scope: Scope, node: OnnxNode) -> None:
    """Translate QGemm, an operator of ONNX Runtime on codes, to a product."""
    source = Dequantised(scope.codes(node, 0), scope.quantisation(node, 1, 2))
    weights = _weights(scope, node, 3, 4, 5, axis=1 - node.integer("transB", 0))
    linear = _gemm(scope, node, source, weights, scope.optional(node, 6))
    if scope.optional(node, 7) is None:
        raise ModelError("a result of float32 is not supported")
    quantisation = scope.quantisation(node, 7, 8)
    scope.result(node, _add_product(scope, node, linear, quantisation, Limits()))


def _define_product(scope: Scope, node: OnnxNode, linear: Linear) -> None:
    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        return _add_product(scope, node, linear, quantisation, limits)

    scope.result(node, Pending((*linear.source.shape[:-1], linear.weights.shape[-1]), finish))


def _weights(scope: Scope, node: OnnxNode, codes: int, scale: int, zero: int, axis: int) -> Weights:
    """Return the weights of a QLinear operator, with their scales and zero points.

    `codes`, `scale` and `zero` are the numbers of the node's inputs for these, counted from 0.
    Several scales belong to the indices along `axis` of the weights.
    """
    array = scope.constant(node, codes)
    scales, zero_points, _ = scope.scales(node, scale, zero, str(array.dtype))
    return Weights(array, scales, zero_points, axis)


def _dequantised_weights(scope: Scope, node: OnnxNode, position: int) -> Weights:
    entry = scope.entry(node, position)
    if not isinstance(entry, Weights):
        raise ModelError(f"its input {position} must come from a DequantizeLinear of constants")
    return entry


def _centred(weights: Weights, axis: int) -> NDArray[np.int64]:
    """Return the codes of weights with their zero points subtracted.

    Raises ModelError unless there is one scale for all weights, or one for each index along `axis`.
    """
    codes = weights.codes
    if str(codes.dtype) not in ("int8", "uint8") or codes.size > MAX_WEIGHTS or codes.size == 0:
        raise ModelError(f"weights of {codes.dtype} and shape {codes.shape} are not supported")
    if weights.scales.size > 1 and weights.axis % max(codes.ndim, 1) != axis:
        raise ModelError("the scales of its weights are not along the dimension of the results")
    if weights.scales.size not in (1, codes.shape[axis]):
        raise ModelError(
            f"its {weights.scales.size} scales do not fit weights of shape {codes.shape}"
        )
    shape = [1] * codes.ndim
    if weights.scales.size > 1:
        shape[axis] = -1
    return codes.astype(np.int64) - weights.zero_points.reshape(shape)


def _bias(bias: Entry | None, count: int, scales: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return an operator's bias for each of `count` channels, in units of the operator's sums.

    ONNX Runtime adds the int32 codes of a bias to the sums and ignores the bias's scale. So a bias
    in int32 is refused if its scale differs from the sums' scale.
    """
    match bias:
        case None:
            return np.zeros(count, np.int64)
        case Weights() if bias.codes.dtype == np.int32:
            if bias.zero_points.any() or not _alike(bias.scales, scales):
                raise ModelError("its bias has another scale than its sums, or a zero point")
            values = bias.codes.astype(np.int64)
        case Weights():
            values = _bias_codes(bias.numbers, count, scales)
        case np.ndarray() if bias.dtype == np.int32:
            values = bias.astype(np.int64)
        case np.ndarray() if bias.dtype == np.float32:
            values = _bias_codes(bias.astype(np.float32), count, scales)
        case _:
            raise ModelError("its bias must be a constant of int32 or float32")
    if values.size not in (1, count) or (values.ndim > 0 and values.shape[-1] != values.size):
        raise ModelError(f"its bias should have {count} values, not shape {values.shape}")
    return np.broadcast_to(values.reshape(-1), (count,))


def _alike(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    """Return whether two arrays of scales are equal except for rounding errors.

    An array with a single scale is compared with each scale of the other array.
    """
    if 1 not in (a.size, b.size) and a.size != b.size:
        return False
    return bool(np.allclose(a, b, rtol=1e-5, atol=0))


def _bias_codes(
    numbers: NDArray[np.float32], count: int, scales: NDArray[np.float32]
) -> NDArray[np.int64]:
    if numbers.size not in (1, count):
        raise ModelError(f"its bias should have {count} values, not shape {numbers.shape}")
    with np.errstate(over="ignore"):
        codes = np.rint(numbers.reshape(-1) / scales)
    if not bool((np.abs(codes) < 2.0**31).all()):
        raise ModelError("its bias does not fit 32 bits")
    return codes.astype(np.int64)


def _convolution(
    node: OnnxNode, source: Dequantised, weights: Weights, bias: Entry | None
) -> Linear:
    codes = _centred(weights, 0) if weights.codes.ndim in (3, 4) else None
    if codes is None or codes.ndim != len(source.codes.shape):
        raise ModelError(f"weights of shape {weights.codes.shape} do not fit {source.codes.shape}")
    if codes.ndim == 3:
        codes = codes[:, :, np.newaxis, :]
    scales = source.quantisation.scale * weights.scales
    return Linear(
        source.codes,
        source.quantisation,
        codes.transpose(2, 3, 1, 0),
        scales,
        _bias(bias, codes.shape[0], scales),
    )


def _gemm(
    scope: Scope, node: OnnxNode, source: Dequantised, weights: Weights, bias: Entry | None
) -> Linear:
    if node.integer("transA", 0):
        raise ModelError("transA is not supported")
    if len(source.codes.shape) != 2:
        raise ModelError(f"an input of shape {source.codes.shape} is not supported")
    alpha = node.number("alpha", 1.0)
    if alpha != 1 and isinstance(bias, Weights) and node.kind == "Gemm":
        # With an alpha other than 1, ONNX Runtime calculates Gemm in float32, so the bias may have
        # another scale than the sums.
        bias = bias.numbers
    linear = _product(source, weights, alpha, bias, transposed=node.integer("transB", 0) != 0)
    if isinstance(bias, np.ndarray) and bias.dtype == np.float32:
        steps = bias.astype(np.float64) / linear.scales
        scope.inexact_channels += int(np.count_nonzero(np.abs(steps - linear.bias) > TOLERATED))
    return linear


def _product(
    source: Dequantised, weights: Weights, alpha: float, bias: Entry | None, *, transposed: bool
) -> Linear:
    shape = weights.codes.shape
    if len(shape) < 2 or math.prod(shape[:-2]) != 1:
        raise ModelError(f"weights of shape {shape} are not supported, only matrices")
    first = len(shape) - 2
    codes = _centred(weights, first if transposed else first + 1).reshape(shape[-2:])
    codes = codes.T if transposed else codes
    if len(source.codes.shape) < 2 or source.codes.shape[-1] != codes.shape[0]:
        raise ModelError(f"weights of shape {shape} do not fit {source.codes.shape}")
    if not 0 < alpha < np.inf:
        raise ModelError(f"an alpha of {alpha} is not supported")
    scales = np.float32(alpha) * source.quantisation.scale * weights.scales
    return Linear(
        source.codes, source.quantisation, codes, scales, _bias(bias, codes.shape[1], scales)
    )


def _repeated(scope: Scope, node: OnnxNode, value: Value, count: int) -> Value:
    """Add operations that put `count` copies of all channels one after another; return the new
    value.
    """
    result, items = repeated(str(node), value, count)
    for item in items:
        scope.add(item)
    return result


def _add_product(
    scope: Scope, node: OnnxNode, linear: Linear, quantisation: Quantisation, limits: Limits
) -> Codes:
    k, n = linear.weights.shape
    output = linear_output(scope, linear, quantisation, limits)
    value, weights = _rows(scope, node, linear.source, linear.weights)
    source = scope.reshaped(node, value, (math.prod(linear.source.shape) // k, k))
    parts = weight_parts(weights)
    source = _repeated(scope, node, source, len(parts))
    requantisation = output.requantisation
    layer = Layer(
        weights=np.ascontiguousarray(np.concatenate(parts)),
        bias=requantisation.bias,
        multiplier=requantisation.multiplier,
        shift=requantisation.shift,
        rounding=requantisation.rounding,
        zero_point=requantisation.zero_point,
        function=requantisation.function,
        ceiling=requantisation.ceiling,
    )
    shape = (*linear.source.shape[:-1], n)
    result = Value(node.outputs[0], shape)
    scope.add(Product(operator=str(node), source=source, result=result, layer=layer))
    codes = Codes(result, shape, plain(shape), quantisation.unsigned)
    return limited(scope, node, codes, output)


def _rows(
    scope: Scope, node: OnnxNode, source: Codes, weights: NDArray[np.int64]
) -> tuple[Value, NDArray[np.int64]]:
    """Return the source of a product as a value, and the weights in the order of its stored
    elements.

    If each row of the source is stored in one piece, only the weights are reordered. Otherwise
    operations that move the source's elements are added.
    """
    layout = source.layout.divided(source.shape)
    if layout is not None:
        *outer, inner = layout.axes(source.shape)
        rows = sum(len(parts) for parts in outer)
        if layout.order[:rows] == tuple(range(rows)):
            # The rows are stored one after another, so the elements of a row may stay in any order:
            # the weights are put into the same order.
            factors = tuple(layout.factors[part] for part in inner)
            order = tuple(part - rows for part in layout.order[rows:])
            return source.value, weights[Layout(factors, order).numbers]
    axes = range(len(source.shape))
    return scope.arranged(node, source, axes, source.shape), weights


def _convolution_shape(scope: Scope, node: OnnxNode, linear: Linear) -> tuple[int, ...]:
    shape = linear.source.shape
    window = _window(scope, node, linear)
    out = window.out if len(shape) == 4 else window.out[1:]
    return (1, linear.weights.shape[-1], *out)


def _window(scope: Scope, node: OnnxNode, linear: Linear) -> Window:
    height, width = linear.weights.shape[:2]
    shape = linear.source.shape
    if shape[0] != 1:
        raise ModelError(f"an input of shape {shape} is not supported")
    return read_window(node, shape[2:], (height, width)[4 - len(shape) :])


def _add_convolution(
    scope: Scope, node: OnnxNode, linear: Linear, quantisation: Quantisation, limits: Limits
) -> Codes:
    groups = node.integer("group", 1)
    source = scope.feature_map(node, linear.source)
    _, _, inputs, outputs = linear.weights.shape
    if groups < 1 or outputs % groups or inputs * groups != source.channels:
        raise ModelError(
            f"weights for {inputs} channels and {groups} groups do not fit {source.channels}"
        )
    window = _window(scope, node, linear)
    output = linear_output(scope, linear, quantisation, limits)
    fill = linear.quantisation.zero_point
    result = scope.map_result(
        node.outputs[0], linear.source, (1, *window.out, outputs), quantisation.unsigned
    )
    if inputs == 1 and groups > 1 and len(weight_parts(linear.weights)) == 1:
        if outputs != groups:
            source = _copies(scope, node, source, outputs // groups, fill)
        scope.add(
            DepthwiseConvolution(
                operator=str(node),
                source=source,
                result=result.value,
                weights=linear.weights[:, :, 0, :].astype(np.int8),
                window=window,
                fill=fill,
                output=output.requantisation,
            )
        )
    else:
        _add_groups(scope, node, source, result.value, linear.weights, window, fill, groups, output)
    return limited(scope, node, result, output)


def _copies(scope: Scope, node: OnnxNode, source: Value, count: int, fill: int) -> Value:
    """Add an operation that puts `count` copies of each channel side by side; return its result."""
    channels = count * source.channels
    check_moves(source.channels, channels)
    result = Value(f"{source.name} for {node}", (*source.shape[:-1], channels))
    origin = np.repeat(np.arange(source.channels, dtype=np.int64), count)
    scope.add(gathered(str(node), source, result, origin, fill))
    return result


def _add_groups(
    scope: Scope,
    node: OnnxNode,
    source: Value,
    result: Value,
    weights: NDArray[np.int64],
    window: Window,
    fill: int,
    groups: int,
    output: LinearOutput,
) -> None:
    """Add a convolution for each group of channels.

    With several groups, add also operations that cut the source into groups and join the results.
    """
    inputs, outputs = weights.shape[2], weights.shape[3] // groups
    results: list[Value] = []
    for group in range(groups):
        here = slice(group * outputs, (group + 1) * outputs)
        part, target = source, result
        if groups > 1:
            part = Value(f"{source.name} group {group}", (*source.shape[:-1], inputs))
            target = Value(f"{result.name} group {group}", (*result.shape[:-1], outputs))
            scope.add(
                Slice(operator=str(node), source=source, result=part, axis=3, start=group * inputs)
            )
        taken, items, codes = widened(str(node), part, weights[..., here])
        for item in items:
            scope.add(item)
        scope.add(
            Convolution(
                operator=str(node),
                source=taken,
                result=target,
                weights=codes,
                window=window,
                fill=fill,
                output=_channels(output.requantisation, here),
            )
        )
        results.append(target)
    if groups > 1:
        scope.add(Concatenation(operator=str(node), result=result, parts=tuple(results), axis=3))


def _channels(output: Requantisation, here: slice) -> Requantisation:
    return Requantisation(
        bias=output.bias[here],
        multiplier=output.multiplier[here],
        shift=output.shift[here],
        rounding=output.rounding,
        zero_point=output.zero_point,
        function=output.function,
        ceiling=output.ceiling,
    )


Translator = Callable[[Scope, OnnxNode], None]
LINEAR: dict[str, Translator] = {
    "Conv": translate_conv,
    "QLinearConv": translate_qlinear_conv,
    "MatMul": translate_matmul,
    "QLinearMatMul": translate_qlinear_matmul,
    "Gemm": translate_gemm,
    "QGemm": translate_qgemm,
}
