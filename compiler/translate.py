# SPDX-License-Identifier: Apache-2.0
"""From the graph of a TensorFlow Lite model to operations for the machine and the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from systola.compiler.errors import ModelError, located
from systola.compiler.graph import Graph, Operator, Tensor
from systola.compiler.partition import Translation
from systola.compiler.scope import Scope
from systola.compiler.semantics import Semantics
from systola.compiler.translate_arithmetic import (
    OPERATIONS,
    translate_binary,
    translate_curve,
    translate_leaky_relu,
    translate_quantize,
    translate_rescale,
)
from systola.compiler.translate_convolution import (
    translate_convolution,
    translate_depthwise,
    translate_fully_connected,
    translate_pad,
)
from systola.compiler.translate_host import translate_dequantize, translate_softmax
from systola.compiler.translate_lstm import translate_lstm
from systola.compiler.translate_pooling import translate_mean, translate_pool
from systola.compiler.translate_views import (
    translate_concatenation,
    translate_reshape,
    translate_split,
    translate_strided_slice,
    translate_transpose,
    translate_unpack,
)

TRANSLATORS: Mapping[str, Callable[[Scope, Operator], None]] = {
    "CONV_2D": translate_convolution,
    "DEPTHWISE_CONV_2D": translate_depthwise,
    "FULLY_CONNECTED": translate_fully_connected,
    "PAD": translate_pad,
    "MAX_POOL_2D": translate_pool,
    "AVERAGE_POOL_2D": translate_pool,
    "MEAN": translate_mean,
    **dict.fromkeys(OPERATIONS, translate_binary),
    "LOGISTIC": translate_curve,
    "TANH": translate_curve,
    "LEAKY_RELU": translate_leaky_relu,
    "QUANTIZE": translate_quantize,
    "DEQUANTIZE": translate_dequantize,
    **dict.fromkeys(("RELU", "RELU6"), translate_rescale),
    "SOFTMAX": translate_softmax,
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), translate_reshape),
    "TRANSPOSE": translate_transpose,
    "SPLIT": translate_split,
    "UNPACK": translate_unpack,
    "STRIDED_SLICE": translate_strided_slice,
    "CONCATENATION": translate_concatenation,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": translate_lstm,
}


def translate(graph: Graph, semantics: Semantics = Semantics.LITERT_2) -> Translation:
    """The operations of a network, those left out that its outputs do not need.

    Their results equal those of the interpreter that `semantics` names.

    Raises ModelError, with number and kind of the operator, for what is not supported.
    """
    if not graph.inputs or not graph.outputs:
        raise ModelError("the model has no inputs or no outputs")
    for number in graph.inputs:
        _check_input(graph.tensors[number])
    operators = _needed(graph)
    repeat = _repeat(graph, operators)
    scope = Scope(graph, repeat, semantics)
    inputs = tuple(scope.define(number) for number in graph.inputs)
    for operator in operators:
        with located(operator, ModelError):
            _translate(scope, operator)
    outputs = tuple(scope.define(number) for number in graph.outputs)
    calculated = {*inputs, *(item.result for item in scope.items)}
    if not calculated.issuperset(outputs):
        raise ModelError("an output is not what an operator calculates")
    return Translation(inputs, outputs, tuple(scope.items), repeat, scope.inexact_channels)


def _check_input(tensor: Tensor) -> None:
    if tensor.dtype not in ("int8", "int32", "float32"):
        raise ModelError(
            f"the input '{tensor.name}' is {tensor.dtype}, supported are int8, int32 and float32"
        )
    if tensor.size == 0:
        raise ModelError(f"the input has the shape {tensor.shape}, which is empty")


def _repeat(graph: Graph, operators: list[Operator]) -> int:
    """Samples in one of the model's: the first dimension, where all that is calculated has it."""
    numbers = {*graph.inputs, *(number for operator in operators for number in operator.outputs)}
    shapes = [graph.tensors[number].shape for number in numbers]
    sizes = {shape[0] if len(shape) > 1 else 1 for shape in shapes}
    return sizes.pop() if len(sizes) == 1 else 1


def _translate(scope: Scope, operator: Operator) -> None:
    translator = TRANSLATORS.get(operator.kind)
    if translator is None:
        raise ModelError("this kind of operator is not supported")
    translator(scope, operator)


def _needed(graph: Graph) -> list[Operator]:
    """The operators that the outputs depend on."""
    wanted = set(graph.outputs)
    needed: list[Operator] = []
    for operator in reversed(graph.operators):
        if wanted & set(operator.outputs):
            wanted.update(operator.inputs)
            needed.append(operator)
    return needed[::-1]
