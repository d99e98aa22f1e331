# SPDX-License-Identifier: Apache-2.0
"""The translation of an ONNX model to operations for the machine and the host.

The results equal ONNX Runtime 1.31 on the CPU with all its optimisations (ORT_ENABLE_ALL). These
optimisations merge DequantizeLinear, an operator and QuantizeLinear into one QLinear operator.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import numpy as np

from systola.compiler.errors import ModelError, result_name
from systola.compiler.host_stage import Dequantise, FlipSign, HostFunction, HostStage, LookUp
from systola.compiler.onnx.by_channel import BY_CHANNEL
from systola.compiler.onnx.entries import Codes, Dequantised, HostArray, Limits, Pending
from systola.compiler.onnx.layout import plain
from systola.compiler.onnx.model import OnnxInput, OnnxModel, OnnxNode
from systola.compiler.onnx.reader import inferred_shapes, read_onnx
from systola.compiler.onnx.scope import Scope
from systola.compiler.onnx.translate_arithmetic import ARITHMETIC
from systola.compiler.onnx.translate_constants import CONSTANTS
from systola.compiler.onnx.translate_curves import CURVES
from systola.compiler.onnx.translate_linear import LINEAR
from systola.compiler.onnx.translate_moves import MOVES
from systola.compiler.onnx.translate_places import PLACES
from systola.compiler.onnx.translate_pooling import POOLING
from systola.compiler.onnx.translate_quantisation import translate_dequantize, translate_quantize
from systola.compiler.onnx.translate_reduce import REDUCTIONS
from systola.compiler.onnx.translate_softmax import SOFTMAX
from systola.compiler.onnx.translate_views import VIEWS
from systola.compiler.operations import Value
from systola.compiler.partition import Translation
from systola.compiler.printable import printable
from systola.compiler.translation import refusals, translate_all

TRANSLATORS: Mapping[str, Callable[[Scope, OnnxNode], None]] = {
    "QuantizeLinear": translate_quantize,
    "DequantizeLinear": translate_dequantize,
    **LINEAR,
    **POOLING,
    **ARITHMETIC,
    **BY_CHANNEL,
    **CURVES,
    **REDUCTIONS,
    **PLACES,
    **SOFTMAX,
    **MOVES,
    **VIEWS,
    **CONSTANTS,
}


def translate_onnx(content: bytes) -> Translation:
    """Translate the content of an .onnx file to operations.

    Raises ModelError with the number, operator and name of each unsupported node.
    """
    model = read_onnx(content)
    repeat = _repeat(model)
    if repeat > 1:
        try:
            return translate_model(model, repeat, inferred_shapes(content))
        except ModelError:
            # An operator may mix the samples that the model takes at once. So the model is
            # translated again, with all of them as a single sample.
            pass
    return translate_model(model, 1)


def translate_model(
    model: OnnxModel, repeat: int, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Translation:
    """Translate a model to operations, without operations that its outputs do not need.

    `repeat` is the number of samples that the model takes at once. `shapes` has shapes of results
    by name, as far as the package `onnx` can infer them.
    """
    if not model.inputs or not model.outputs:
        raise ModelError("the model has no inputs or no outputs")
    scope = Scope(model.opset, repeat, shapes)
    for name, constant in model.constants.items():
        scope.define(name, constant)
    inputs = tuple(_input(scope, each) for each in model.inputs)
    translate_all(scope, _needed(model), TRANSLATORS)
    outputs = tuple(_output(scope, name) for name in model.outputs)
    return Translation(inputs, outputs, tuple(scope.items), scope.repeat, scope.inexact_channels)


def refused_nodes(model: OnnxModel, results: Mapping[str, OnnxInput]) -> dict[str, str]:
    """Return the reason of each refusal, by number, operator and name of the refused node as one
    text.

    A node is not refused just because it takes a result of a refused node. If such a result is in
    `results`, the node is translated with this result as an input of the model. Otherwise the node
    is passed over.
    """
    scope = Scope(model.opset, 1)
    for name, constant in model.constants.items():
        scope.define(name, constant)
    tensors = {**results, **{each.name: each for each in model.inputs}}

    def given(tensor: Hashable) -> bool:
        if tensor not in tensors:
            return False
        try:
            _input(scope, tensors[str(tensor)])
        except ModelError:
            return False
        return True

    unknown = [each.name for each in model.inputs if not given(each.name)]
    return refusals(scope, _needed(model), TRANSLATORS, unknown, given)


def _repeat(model: OnnxModel) -> int:
    """Return the number of samples that the model takes at once.

    If all inputs have at least three dimensions and the same first size, the number is this size;
    else it is 1.
    """
    sizes = {each.shape[0] if len(each.shape) > 2 else 1 for each in model.inputs}
    return sizes.pop() if len(sizes) == 1 else 1


def _needed(model: OnnxModel) -> list[OnnxNode]:
    """Return the nodes on which the outputs of a model depend, in the model's order."""
    wanted = set(model.outputs)
    needed: list[OnnxNode] = []
    for node in reversed(model.nodes):
        if wanted & set(node.outputs):
            wanted.update(name for name in node.inputs if name)
            needed.append(node)
    return needed[::-1]


def _input(scope: Scope, given: OnnxInput) -> Value:
    shape = given.shape if scope.repeat == 1 else (1, *given.shape[1:])
    value = Value(given.name, shape, given.dtype)
    scope.add_input(value)
    match given.dtype:
        case "int8":
            scope.define(given.name, Codes(value, shape, plain(shape), False))
        case "uint8":
            codes = Value(f"{given.name} as int8", shape)
            user = f"input '{printable(given.name)}'"
            _on_host(scope, user, value, codes, FlipSign("int8"))
            scope.define(given.name, Codes(codes, shape, plain(shape), True))
        case "float32" | "int32" | "int64":
            scope.define(given.name, HostArray(value))
        case _:
            raise ModelError(
                f"the input {given.name!r} is {given.dtype}, supported are float32, int8, uint8, "
                "int32 and int64"
            )
    return value


def _output(scope: Scope, name: str) -> Value:
    """Return the value of an output of the model, with the elements in the order of the tensor's
    shape.

    Operations that make this value are added if needed.
    """
    try:
        return _given_output(scope, name)
    except ModelError as error:
        raise ModelError(str(error), {result_name(name): str(error)}) from None


def _given_output(scope: Scope, name: str) -> Value:
    user = f"output '{printable(name)}'"
    entry = scope.named(name)
    if isinstance(entry, Pending) and entry.numbers and entry.limits == Limits():
        entry = entry.numbers()
    if isinstance(entry, HostArray):
        return entry.value
    codes = entry.codes if isinstance(entry, Dequantised) else entry
    if not isinstance(codes, Codes):
        raise ModelError(f"the output {name!r} is not quantised: a QuantizeLinear is missing")
    value = scope.arranged(user, codes, range(len(codes.shape)), codes.shape, to_host=True)
    if isinstance(entry, Dequantised):
        quantisation = entry.quantisation
        function: HostFunction = Dequantise(float(quantisation.scale), quantisation.zero_point)
        if entry.curve is not None:
            function = LookUp(entry.curve.astype(np.float32))
        return _on_host(scope, user, value, Value(name, codes.shape, "float32"), function)
    if codes.unsigned:
        return _on_host(scope, user, value, Value(name, codes.shape, "uint8"), FlipSign("uint8"))
    return value


def _on_host(
    scope: Scope, operator: str, source: Value, result: Value, function: HostFunction
) -> Value:
    scope.add(HostStage(operator=operator, sources=(source,), result=result, function=function))
    return result
