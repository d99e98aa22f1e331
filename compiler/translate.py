# SPDX-License-Identifier: Apache-2.0
"""From the graph of a network to operations for the machine and what the host does around them.

Results equal those of ai-edge-litert 2.3.0 (BUILTIN_REF) byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from systola.compiler.errors import ModelError, located
from systola.compiler.graph import Graph, Operator
from systola.compiler.host_stage import (
    VIEWS,
    HostStage,
    dequantize_stage,
    quantize_stage,
    softmax_stage,
)
from systola.compiler.operations import Operations
from systola.compiler.scope import Scope
from systola.compiler.translate_arithmetic import (
    OPERATIONS,
    translate_binary,
    translate_curve,
    translate_leaky_relu,
    translate_rescale,
)
from systola.compiler.translate_convolution import (
    translate_convolution,
    translate_depthwise,
    translate_fully_connected,
    translate_pad,
)
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
    **dict.fromkeys(("QUANTIZE", "RELU", "RELU6"), translate_rescale),
    **dict.fromkeys(VIEWS, translate_reshape),
    "TRANSPOSE": translate_transpose,
    "SPLIT": translate_split,
    "UNPACK": translate_unpack,
    "STRIDED_SLICE": translate_strided_slice,
    "CONCATENATION": translate_concatenation,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": translate_lstm,
}


def translate(graph: Graph) -> tuple[tuple[HostStage, ...], Operations, tuple[HostStage, ...]]:
    """What the host does first, the operations of the machine, and what the host does last.

    Operators that the output does not need are left out. Raises ModelError, with number and kind
    of the operator, for what is not supported.
    """
    operators = _needed(graph)
    inputs, output = list(graph.inputs), graph.outputs[0]
    before, operators = _host_first(graph, operators, inputs)
    after, operators, output = _host_last(graph, operators, output)
    # With several inputs of different first dimensions the first tensor that is missing one tells.
    shape = graph.tensors[graph.inputs[0]].shape
    scope = Scope(graph, shape[0] if len(shape) > 1 else 1)
    values = tuple(scope.define(number) for number in inputs)
    for operator in operators:
        with located(operator, ModelError):
            _translate(scope, operator)
    if not any(node.result is scope.define(output) for node in scope.nodes) and (
        output not in inputs
    ):
        raise ModelError("the output is not what an operator calculates")
    operations = Operations(
        values,
        scope.define(output),
        tuple(scope.nodes),
        shape[0] if len(shape) > 1 else 1,
        scope.inexact_channels,
    )
    return tuple(before), operations, tuple(after)


def _translate(scope: Scope, operator: Operator) -> None:
    translator = TRANSLATORS.get(operator.kind)
    if translator is None:
        raise ModelError("this kind of operator is not supported")
    translator(scope, operator)


def _needed(graph: Graph) -> list[Operator]:
    """The operators that the output depends on."""
    wanted = set(graph.outputs)
    needed: list[Operator] = []
    for operator in reversed(graph.operators):
        if wanted & set(operator.outputs):
            wanted.update(operator.inputs)
            needed.append(operator)
    return needed[::-1]


def _host_first(
    graph: Graph, operators: list[Operator], inputs: list[int]
) -> tuple[list[HostStage], list[Operator]]:
    """Takes QUANTIZE from float32 and changes of shape off the front; changes `inputs`."""
    stages: list[HostStage] = []
    while operators and len(inputs) == 1:
        operator = operators[0]
        users = [other for other in operators if inputs[0] in other.inputs]
        if users != [operator] or operator.inputs[0] != inputs[0] or len(operator.outputs) != 1:
            break
        source, result = graph.tensors[inputs[0]], graph.tensors[operator.outputs[0]]
        if operator.kind == "QUANTIZE" and source.dtype == "float32":
            with located(operator, ModelError):
                stages.append(quantize_stage(operator, source, result))
        elif operator.kind not in VIEWS or source.size != result.size:
            break
        inputs[0] = operator.outputs[0]
        operators = operators[1:]
    return stages, operators


def _host_last(
    graph: Graph, operators: list[Operator], output: int
) -> tuple[list[HostStage], list[Operator], int]:
    """Takes SOFTMAX, DEQUANTIZE and changes of shape off the end; the output before them."""
    stages: list[HostStage] = []
    while operators:
        operator = operators[-1]
        if operator.outputs != (output,) or not operator.inputs:
            break
        source, result = graph.tensors[operator.inputs[0]], graph.tensors[output]
        if operator.kind in ("SOFTMAX", "DEQUANTIZE"):
            make = softmax_stage if operator.kind == "SOFTMAX" else dequantize_stage
            with located(operator, ModelError):
                stages.append(make(operator, source, result))
        elif operator.kind not in VIEWS or source.size != result.size:
            break
        output = operator.inputs[0]
        operators = operators[:-1]
    return stages[::-1], operators, output
