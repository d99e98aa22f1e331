# SPDX-License-Identifier: Apache-2.0
"""The translation of operators that apply another function to the elements of each channel.

In each channel the function is a straight line, or two lines that meet at 0. A line is a depthwise
convolution of one tap. Its weight, bias and multiplier give ONNX Runtime's result for every code,
which is a quantised number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Rounding
from systola.compiler.errors import ModelError
from systola.compiler.exact_sum import exact_sum
from systola.compiler.onnx.entries import Codes, Dequantised, Limits, Pending, Weights
from systola.compiler.onnx.layout import stored
from systola.compiler.onnx.line_fit import Line, WantedLine, fit_line
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.multipliers import code_limits
from systola.compiler.onnx.numbers import CODES, Quantisation
from systola.compiler.onnx.scope import Scope
from systola.compiler.onnx.translate_arithmetic import translate_binary
from systola.compiler.operations import DepthwiseConvolution, Requantisation, Value, Window

Numbers = NDArray[np.float32]
_RANKS = (2, 3, 4)


def translate_batch_normalization(scope: Scope, node: OnnxNode) -> None:
    """Translate BatchNormalization between DequantizeLinear and QuantizeLinear to a depthwise
    convolution.
    """
    source = scope.dequantised(node, 0)
    channels = _channels(source)
    parameters: list[Numbers] = []
    for position in range(1, 5):
        given = scope.constant(node, position)
        if given.dtype != np.float32 or given.shape != (channels,):
            raise ModelError(f"its input {position} must be {channels} numbers of float32")
        parameters.append(given.astype(np.float32))
    if node.integer("training_mode", 0) or any(node.outputs[1:]):
        raise ModelError("training is not supported")
    scale, bias, mean, variance = parameters
    with np.errstate(all="ignore"):
        # These calculations in float32 have ONNX Runtime's order, so that they are rounded alike.
        root = np.sqrt(variance + np.float32(node.number("epsilon", 1e-5)))
        slopes = (np.float32(1) / root * scale).astype(np.float32)
        offsets = (bias - mean * slopes).astype(np.float32)

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        with np.errstate(all="ignore"):
            numbers = slopes[:, np.newaxis] * source.numbers + offsets[:, np.newaxis]
        used = np.ones_like(CODES, np.bool_)
        lines = _lines(source, quantisation, numbers, used, slopes, offsets)
        result = _map_result(scope, node, source.codes, quantisation)
        value = _add_lines(scope, node, result, source.codes, lines, quantisation)
        return _limited(scope, node, value, quantisation, limits)

    scope.result(node, Pending(source.codes.shape, finish))


def translate_prelu(scope: Scope, node: OnnxNode) -> None:
    """Translate PRelu to a table if it has one constant slope, and to a sum of two parts if each
    channel has a slope.

    One part is for the positive numbers, the other for the negative numbers times their slopes.
    """
    entry = scope.entry(node, 1)
    slopes = entry.numbers if isinstance(entry, Weights) else entry
    if not isinstance(slopes, np.ndarray) or slopes.size == 1:
        translate_binary(scope, node)
        return
    source = scope.dequantised(node, 0)
    channels = _channels(source)
    by_channel = (channels, *(1,) * (len(source.codes.shape) - 2))
    if slopes.dtype != np.float32 or slopes.shape not in (by_channel, (1, *by_channel)):
        raise ModelError(f"slopes of shape {slopes.shape} are not one number for each channel")
    each = slopes.reshape(channels).astype(np.float32)

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        zero = source.quantisation.zero_point
        with np.errstate(all="ignore"):
            numbers = each[:, np.newaxis] * source.numbers
        lines = _lines(source, quantisation, numbers, zero >= CODES, each, np.zeros_like(each))
        above = quantisation.codes(np.maximum(source.numbers, np.float32(0)))
        codes = source.codes
        positive = scope.look_up(node, codes, above, quantisation.unsigned)
        negative = scope.look_up(node, codes, np.minimum(CODES, zero), codes.unsigned)
        bent = _map_result(scope, node, negative, quantisation)
        bent = _add_lines(scope, node, bent, negative, lines, quantisation)
        other = scope.stored_like(node, positive, bent.layout, bent.value.shape)
        result = Value(node.outputs[0], bent.value.shape)
        # For each element, at least one of the two parts is the code of 0. So their sum is exact.
        of_zero = quantisation.zero_point
        scope.add(exact_sum(str(node), result, (other, bent.value), (of_zero, of_zero), of_zero))
        whole = Codes(result, bent.shape, bent.layout, bent.unsigned)
        return _limited(scope, node, whole, quantisation, limits)

    scope.result(node, Pending(source.codes.shape, finish))


def _channels(source: Dequantised) -> int:
    shape = source.codes.shape
    if len(shape) not in _RANKS or shape[0] != 1:
        raise ModelError(f"a tensor of shape {shape} is not supported")
    return shape[1]


def _lines(
    source: Dequantised,
    quantisation: Quantisation,
    numbers: Numbers,
    used: NDArray[np.bool_],
    slopes: Numbers,
    offsets: Numbers,
) -> list[Line]:
    """Return a straight line for each channel, from the codes of the source to the codes of the
    result.

    `numbers`, channels x codes of the source, has slope * x + offset for a code that stands for the
    number x. The results are the codes of `numbers`. Only codes marked in `used` need the right
    result. Raises ModelError if no line gives all of these results.
    """
    if not bool(np.isfinite(numbers).all()):
        raise ModelError("its numbers are not finite")
    step = float(quantisation.scale)
    ratio = float(source.quantisation.scale) / step
    zero = source.quantisation.zero_point
    least, most = -128 - quantisation.zero_point, 127 - quantisation.zero_point
    lines: list[Line] = []
    for row, slope, offset in zip(numbers, slopes.tolist(), offsets.tolist(), strict=True):
        results = quantisation.codes(row) - quantisation.zero_point
        start = offset / step - slope * ratio * zero
        line = fit_line(WantedLine(results, used, least, most, slope * ratio, start))
        if line is None:
            raise ModelError("some numbers lie in the middle of two codes, and even ones are taken")
        lines.append(line)
    return lines


def _map_result(scope: Scope, node: OnnxNode, codes: Codes, quantisation: Quantisation) -> Codes:
    """Return a new tensor with the shape of `codes` in the model, stored as a map with the channels
    last.
    """
    shape = codes.shape
    axes = (0, *range(2, len(shape)), 1)
    rows, columns = ((1, 1), (1, shape[-1]), shape[2:])[len(shape) - 2]
    value = Value(f"{node.outputs[0]} by channel", (1, rows, columns, shape[1]))
    return Codes(value, shape, stored(shape, axes), quantisation.unsigned)


def _add_lines(
    scope: Scope,
    node: OnnxNode,
    result: Codes,
    source: Codes,
    lines: list[Line],
    quantisation: Quantisation,
) -> Codes:
    """Add the depthwise convolution of one tap that applies `lines`, one for each channel, to
    `source`.

    It makes `result`, which is also returned.
    """
    weights = np.array([line.weight for line in lines], np.int8).reshape(1, 1, -1)
    scope.add(
        DepthwiseConvolution(
            operator=str(node),
            source=scope.stored_like(node, source, result.layout, result.value.shape),
            result=result.value,
            weights=weights,
            window=Window(kernel=(1, 1), out=result.value.grid),
            fill=0,
            output=Requantisation(
                bias=np.array([line.bias for line in lines], np.int32),
                multiplier=np.array([line.multiplier for line in lines], np.int32),
                shift=np.array([line.shift for line in lines], np.int32),
                rounding=Rounding.SINGLE,
                zero_point=quantisation.zero_point,
            ),
        )
    )
    return result


def _limited(
    scope: Scope, node: OnnxNode, codes: Codes, quantisation: Quantisation, limits: Limits
) -> Codes:
    """Return `codes` clamped to `limits`, the bounds of a Relu or Clip after the operator.

    Adds a look-up in a table for this, unless the limits allow all codes.
    """
    low, high = code_limits(quantisation, limits)
    if (low, high) == (-128, 127):
        return codes
    return scope.look_up(node, codes, np.clip(CODES, low, high), codes.unsigned)


Translator = Callable[[Scope, OnnxNode], None]
BY_CHANNEL: dict[str, Translator] = {
    "BatchNormalization": translate_batch_normalization,
    "PRelu": translate_prelu,
}
