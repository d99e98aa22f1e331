# SPDX-License-Identifier: Apache-2.0
"""The translation of Softmax, which the host calculates."""

from __future__ import annotations

import math
from collections.abc import Callable

from systola.compiler.errors import ModelError
from systola.compiler.host_stage import (
    Dequantise,
    HostStage,
    QuantisedSoftmax,
    RealSoftmax,
)
from systola.compiler.onnx.entries import Codes, Dequantised, HostArray, Limits, Pending
from systola.compiler.onnx.layout import plain, stored
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.numbers import Quantisation
from systola.compiler.onnx.scope import Scope, value_shape
from systola.compiler.operations import Value
from systola.compiler.quantised_softmax import fits_float32
from systola.compiler.shape_checks import checked_axis

ALONG_ONE_AXIS = 13
"""First version of ONNX's standard operators in which Softmax goes along a single axis.

In earlier versions it goes over the given axis and all later ones together.
"""


def translate_softmax(scope: Scope, node: OnnxNode) -> None:
    """Translate Softmax after DequantizeLinear to work of the host; the result is float32 if no
    QuantizeLinear follows, else codes.
    """
    source = scope.entry(node, 0)
    if isinstance(source, HostArray) and source.value.dtype == "float32":
        _on_numbers(scope, node, source)
        return
    source = scope.dequantised(node, 0)

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        if limits != Limits():
            raise ModelError("an activation behind it is not supported")
        return _on_codes(scope, node, source, quantisation, scope.opset)

    scope.result(node, Pending(source.codes.shape, finish, numbers=lambda: _numbers(scope, node)))


def _numbers(scope: Scope, node: OnnxNode) -> HostArray:
    """Add the host's operations for Softmax of a quantised tensor; return the float32 result."""
    source = scope.dequantised(node, 0)
    codes = source.codes
    value = scope.arranged(node, codes, range(len(codes.shape)), codes.shape, to_host=True)
    real = Value(f"{value.name} in float32", codes.shape, "float32")
    function = Dequantise(float(source.quantisation.scale), source.quantisation.zero_point)
    scope.add(HostStage(operator=str(node), sources=(value,), result=real, function=function))
    return _on_numbers(scope, node, HostArray(real))


def _on_numbers(scope: Scope, node: OnnxNode, source: HostArray) -> HostArray:
    shape = source.value.shape
    axis = _axis(node, len(shape), scope.opset)
    if scope.opset >= ALONG_ONE_AXIS and axis != len(shape) - 1:
        raise ModelError("of float32 along another axis than the last it is not supported")
    result = Value(node.outputs[0], shape, "float32")
    function = RealSoftmax(math.prod(shape[axis:]))
    scope.add(
        HostStage(operator=str(node), sources=(source.value,), result=result, function=function)
    )
    entry = HostArray(result)
    scope.result(node, entry)
    return entry


def translate_qlinear_softmax(scope: Scope, node: OnnxNode) -> None:
    """Translate QLinearSoftmax, an operator of ONNX Runtime on codes, to work of the host."""
    source = Dequantised(scope.codes(node, 0), scope.quantisation(node, 1, 2))
    quantisation = scope.quantisation(node, 3, 4)
    # ONNX Runtime takes the low 32 bits of this number.
    opset = (node.integer("opset", scope.opset) + (1 << 31)) % (1 << 32) - (1 << 31)
    scope.result(node, _on_codes(scope, node, source, quantisation, opset))


def _axis(node: OnnxNode, rank: int, opset: int) -> int:
    return checked_axis(node.integer("axis", -1 if opset >= ALONG_ONE_AXIS else 1), rank)


def _on_codes(
    scope: Scope,
    node: OnnxNode,
    source: Dequantised,
    quantisation: Quantisation,
    opset: int,
) -> Codes:
    codes = source.codes
    if codes.unsigned != quantisation.unsigned:
        raise ModelError("its result must be of the type of its input")
    rank = len(codes.shape)
    axis = _axis(node, rank, opset)
    order = tuple(range(rank))
    length = math.prod(codes.shape[axis:])
    if opset >= ALONG_ONE_AXIS:
        order = (*order[:axis], *order[axis + 1 :], axis)
        length = codes.shape[axis]
    scales = float(source.quantisation.scale), float(quantisation.scale)
    if not fits_float32(length, *scales):
        raise ModelError(
            f"a Softmax of rows of length {length}, to codes of the scale {scales[1]:.3g}, has no "
            "defined result in ONNX Runtime: it goes beyond float32"
        )
    shape = value_shape(codes.shape, order)
    value = scope.arranged(node, codes, order, shape, to_host=True)
    result = Value(node.outputs[0], shape)
    function = QuantisedSoftmax(length, *scales, quantisation.zero_point)
    scope.add(HostStage(operator=str(node), sources=(value,), result=result, function=function))
    layout = stored(codes.shape, order) if opset >= ALONG_ONE_AXIS else plain(codes.shape)
    return Codes(result, codes.shape, layout, quantisation.unsigned)


Translator = Callable[[Scope, OnnxNode], None]
SOFTMAX: dict[str, Translator] = {
    "Softmax": translate_softmax,
    "QLinearSoftmax": translate_qlinear_softmax,
}
