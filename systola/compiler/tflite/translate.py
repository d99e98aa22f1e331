# SPDX-License-Identifier: Apache-2.0
"""The translation of a TensorFlow Lite model to operations for the machine and the host.

For each kind of operator there is a translator, a function that adds the operations for one
operator to a Scope.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from systola.compiler.errors import ModelError, located, result_name
from systola.compiler.operations import Value
from systola.compiler.partition import Item, Translation
from systola.compiler.semantics import Semantics
from systola.compiler.tflite.activations import without_rare_activations
from systola.compiler.tflite.dilated import dilated_convolutions
from systola.compiler.tflite.element_moves import ELEMENT_MOVES
from systola.compiler.tflite.float_curves import (
    FLOAT_CURVES,
    FLOAT_ONLY,
    translate_float_curve,
)
from systola.compiler.tflite.fold import fold_constants
from systola.compiler.tflite.graph import Graph, Operator, Tensor
from systola.compiler.tflite.scope import Scope
from systola.compiler.tflite.translate_arithmetic import (
    OPERATIONS,
    TABLES,
    translate_binary,
    translate_extreme,
    translate_prelu,
    translate_quantize,
    translate_rescale,
    translate_table,
)
from systola.compiler.tflite.translate_convolution import (
    translate_convolution,
    translate_depthwise,
    translate_fully_connected,
    translate_transpose_conv,
)
from systola.compiler.tflite.translate_host import (
    translate_cast,
    translate_dequantize,
    translate_embedding_lookup,
    translate_flip_sign,
    translate_gather,
    translate_softmax,
    translate_whole_numbers,
)
from systola.compiler.tflite.translate_lstm import translate_lstm
from systola.compiler.tflite.translate_matmul import translate_batch_matmul
from systola.compiler.tflite.translate_moves import (
    translate_concatenation,
    translate_move,
    translate_pack,
    translate_reshape,
)
from systola.compiler.tflite.translate_places import translate_arg_extreme
from systola.compiler.tflite.translate_pooling import (
    translate_mean,
    translate_pool,
    translate_reduce_extreme,
    translate_sum,
)
from systola.compiler.tflite.translate_resize import translate_resize_bilinear
from systola.compiler.tflite.translate_wide import WIDE_TRANSLATORS
from systola.compiler.tflite.unsigned import FLIP_SIGN, without_unlike, without_unsigned
from systola.compiler.translation import refusals, translate_all
from systola.compiler.whole_numbers import WHOLE_NUMBERS

INPUT_TYPES = ("int8", "uint8", "int16", "int32", "int64", "float32")
TRANSLATORS: Mapping[str, Callable[[Scope, Operator], None]] = {
    **dict.fromkeys(WHOLE_NUMBERS, translate_whole_numbers),
    **dict.fromkeys(ELEMENT_MOVES, translate_move),
    "CONV_2D": translate_convolution,
    "DEPTHWISE_CONV_2D": translate_depthwise,
    "TRANSPOSE_CONV": translate_transpose_conv,
    "FULLY_CONNECTED": translate_fully_connected,
    "BATCH_MATMUL": translate_batch_matmul,
    "MAX_POOL_2D": translate_pool,
    "AVERAGE_POOL_2D": translate_pool,
    "MEAN": translate_mean,
    "SUM": translate_sum,
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN"), translate_reduce_extreme),
    **dict.fromkeys(OPERATIONS, translate_binary),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), translate_extreme),
    **dict.fromkeys(TABLES, translate_table),
    **dict.fromkeys(FLOAT_ONLY, translate_float_curve),
    "PRELU": translate_prelu,
    "RESIZE_BILINEAR": translate_resize_bilinear,
    "QUANTIZE": translate_quantize,
    "DEQUANTIZE": translate_dequantize,
    "CAST": translate_cast,
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), translate_arg_extreme),
    **dict.fromkeys(("RELU", "RELU6"), translate_rescale),
    "SOFTMAX": translate_softmax,
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), translate_reshape),
    "GATHER": translate_gather,
    "EMBEDDING_LOOKUP": translate_embedding_lookup,
    "CONCATENATION": translate_concatenation,
    "PACK": translate_pack,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": translate_lstm,
}


def _of_any_type(kind: str) -> Callable[[Scope, Operator], None]:
    """Return a translator for a `kind` of operator that may have inputs of several types.

    The returned function looks at the type of an operator's input, int16, float32 or another, and
    calls the translator for the kind and this type.
    """

    def translate_one(scope: Scope, operator: Operator) -> None:
        last = len(operator.inputs) - 1
        position = min(2, last) if kind == "TRANSPOSE_CONV" else 0
        dtype = scope.tensor(operator, position).dtype if last >= 0 else ""
        if dtype == "int16" and kind in WIDE_TRANSLATORS:
            WIDE_TRANSLATORS[kind](scope, operator)
        elif dtype == "float32" and kind in FLOAT_CURVES:
            translate_float_curve(scope, operator)
        else:
            TRANSLATORS[kind](scope, operator)

    return translate_one


_ALL_TRANSLATORS = {
    **TRANSLATORS,
    **{kind: _of_any_type(kind) for kind in (*WIDE_TRANSLATORS, *FLOAT_CURVES)},
    FLIP_SIGN: translate_flip_sign,
}


def translate(
    graph: Graph, semantics: Semantics = Semantics.LITERT_2, repeat: int | None = None
) -> Translation:
    """Return the operations of a network, without operations that the outputs do not need.

    The results equal the results of the interpreter `semantics`. `repeat` is the number of samples
    in the model's own shapes; with None it is read from these shapes. Raises ModelError, with
    number and kind of each refused operator, if something is not supported.
    """
    if not graph.inputs or not graph.outputs:
        raise ModelError("the model has no inputs or no outputs")
    for number in graph.inputs:
        _check_input(graph.tensors[number])
    check_order(graph)
    graph = _prepared(graph)
    operators = _needed(graph)
    repeat = repeat or (1 if graph.first_values else _repeat(graph, operators))
    if repeat > 1:
        try:
            return _translated(graph, operators, repeat, semantics)
        except ModelError:
            # An operator may mix the samples of a batch. So the translation is tried again, with
            # the batch as a single sample.
            pass
    return _translated(graph, operators, 1, semantics)


def refused_operators(graph: Graph, semantics: Semantics) -> dict[str, str]:
    """Return a map from each refused operator to the reason why it is refused.

    The keys are texts such as "operator 3 (SOFTMAX)". An operator after a refused one is judged as
    if the refused operator's result were an input of the model. If this result has a type that no
    input may have, the operator after it is left out.
    """
    graph, unlike = without_unlike(graph)
    reason = "this kind of operator is not supported on uint8"
    refused = {str(operator): reason for operator in unlike}
    graph = _prepared(graph)
    scope = Scope(graph, 1, semantics)

    def given(tensor: Hashable) -> bool:
        assert isinstance(tensor, int)
        try:
            _check_input(graph.tensors[tensor])
            scope.define(tensor)
        except ModelError:
            return False
        return True

    unknown = [number for number in graph.inputs if not given(number)]
    return {**refused, **refusals(scope, _needed(graph), _ALL_TRANSLATORS, unknown, given)}


def _prepared(graph: Graph) -> Graph:
    """Return the network rewritten to use fewer kinds of operators.

    Results that depend on constants alone become constants.
    """
    graph = without_unsigned(fold_constants(graph))
    return without_rare_activations(dilated_convolutions(graph))


def _translated(
    graph: Graph, operators: list[Operator], repeat: int, semantics: Semantics
) -> Translation:
    scope = Scope(graph, repeat, semantics)
    inputs = tuple(scope.define(number) for number in graph.inputs)
    translate_all(scope, operators, _ALL_TRANSLATORS)
    outputs = tuple(scope.define(number) for number in graph.outputs)
    calculated = {*inputs, *(item.result for item in scope.items)}
    if not calculated.issuperset(outputs):
        reason = "an output is not what an operator calculates"
        pairs = zip(graph.outputs, outputs, strict=True)
        origins = (result_name(number) for number, value in pairs if value not in calculated)
        raise ModelError(reason, dict.fromkeys(origins, reason))
    items = _live(scope.items, outputs)
    return Translation(
        inputs,
        outputs,
        items,
        repeat,
        scope.inexact_channels,
        scope.reasons,
        graph.first_values,
    )


def _live(items: list[Item], outputs: tuple[Value, ...]) -> tuple[Item, ...]:
    """Return the operations and host stages of `items` on which `outputs` depend, in order."""
    wanted = set(outputs)
    live: list[Item] = []
    for item in reversed(items):
        if item.result in wanted:
            wanted.update(item.sources)
            live.append(item)
    return tuple(live[::-1])


def _check_input(tensor: Tensor) -> None:
    if tensor.dtype not in INPUT_TYPES:
        raise ModelError(
            f"the input '{tensor.name}' is {tensor.dtype}, supported are {', '.join(INPUT_TYPES)}"
        )
    if tensor.size == 0:
        raise ModelError(f"the input has the shape {tensor.shape}, which is empty")


def check_order(graph: Graph) -> None:
    """Raise ModelError unless each tensor is made once, before the operators that take it.

    A tensor is made as an input of the model, as a constant, or as a result of an operator.
    """
    origins = [*graph.inputs, *(each for operator in graph.operators for each in operator.outputs)]
    constants = {number for number, each in enumerate(graph.tensors) if each.data is not None}
    later = set(origins) - set(graph.inputs)
    there = {*graph.inputs, *constants}
    if len({*graph.inputs} - constants) != len(graph.inputs):
        raise ModelError("an input of the model is a constant, or is there twice")
    for operator in graph.operators:
        with located(operator, ModelError):
            for number in operator.inputs:
                if number in later:
                    name = graph.tensors[number].name
                    raise ModelError(f"it takes tensor '{name}' before it is calculated")
            for number in operator.outputs:
                if number in there:
                    raise ModelError(f"its result '{graph.tensors[number].name}' is there already")
                there.add(number)
                later.remove(number)


def _repeat(graph: Graph, operators: list[Operator]) -> int:
    """Return the number of samples in the model's own shapes.

    The number is the first dimension of all calculated tensors, or 1 if their first dimensions
    differ. A tensor of one dimension counts as 1.
    """
    numbers = {*graph.inputs, *(number for operator in operators for number in operator.outputs)}
    shapes = [graph.tensors[number].shape for number in numbers]
    sizes = {shape[0] if len(shape) > 1 else 1 for shape in shapes}
    return sizes.pop() if len(sizes) == 1 else 1


def _needed(graph: Graph) -> list[Operator]:
    """Return the operators on which the network's outputs depend, in the order of execution."""
    wanted = set(graph.outputs)
    needed: list[Operator] = []
    for operator in reversed(graph.operators):
        if wanted & set(operator.outputs):
            wanted.update(operator.inputs)
            needed.append(operator)
    return needed[::-1]
