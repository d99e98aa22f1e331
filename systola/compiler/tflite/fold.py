# SPDX-License-Identifier: Apache-2.0
"""The removal of operators with constant results, which are calculated while compiling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.quantise import requantise_table, to_float, to_int8
from systola.compiler.shape_checks import MOST_ELEMENTS, checked_axis
from systola.compiler.tflite.element_moves import (
    ELEMENT_MOVES,
    Call,
    move_elements,
    reduced_shape,
    source_position,
)
from systola.compiler.tflite.graph import NUMPY_TYPES, Graph, Operator, Tensor
from systola.compiler.tflite.shapes import with_known_shapes
from systola.compiler.whole_numbers import WHOLE_NUMBERS, WHOLE_TYPES

_PADDING = ("PAD", "PADV2", "MIRROR_PAD", "SPACE_TO_BATCH_ND")
"""Kinds of operators that move elements and add a border. They are not calculated here, as
move_elements returns marks in place of the border's elements.
"""


def fold_constants(graph: Graph) -> Graph:
    """Return `graph` without the operators that do not depend on the content of the graph's inputs.

    The results of these operators become constants. Tensor sizes that the file leaves open are
    calculated, too. An operator stays if its kind cannot be calculated here. The translation then
    accepts or refuses the operator.
    """
    tensors = list(graph.tensors)
    variable = set(graph.inputs)
    operators: list[Operator] = []
    for operator in graph.operators:
        inputs = [tensors[number] if number >= 0 else None for number in operator.inputs]
        outputs = with_known_shapes(
            operator, inputs, [tensors[number] for number in operator.outputs]
        )
        for number, output in zip(operator.outputs, outputs, strict=True):
            tensors[number] = output
        fixed = not variable & set(operator.inputs)
        results = _calculated(operator, inputs, outputs) if fixed else None
        if operator.kind == "SHAPE" and inputs and inputs[0] and _are_numbers(outputs):
            results = [np.array(inputs[0].shape)]
        if results is None or [each.shape for each in results] != [each.shape for each in outputs]:
            variable.update(operator.outputs)
            operators.append(operator)
            continue
        for number, result in zip(operator.outputs, results, strict=True):
            tensor = tensors[number]
            tensors[number] = replace(tensor, data=result.astype(tensor.dtype))
    return replace(graph, tensors=tuple(tensors), operators=tuple(operators))


def _calculated(
    operator: Operator, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]
) -> list[NDArray[Any]] | None:
    """Return the results of an operator with constant inputs.

    Returns None if an input is not constant, or if this module cannot calculate the results.
    """
    arrays = [tensor.data if tensor else None for tensor in inputs]
    if any(array is None for array in arrays) or not outputs:
        return None
    if not _are_numbers(outputs) or any(tensor.size > MOST_ELEMENTS for tensor in outputs):
        return None
    constants = [array for array in arrays if array is not None]
    try:
        if operator.kind in _CODED and inputs[0]:
            return [_CODED[operator.kind](inputs[0], constants[0], outputs[0])]
        return _results(operator, constants, outputs)
    except (ModelError, ValueError, IndexError, TypeError):
        return None


def _are_numbers(tensors: Sequence[Tensor]) -> bool:
    return all(tensor.dtype in NUMPY_TYPES for tensor in tensors)


def _results(
    operator: Operator, constants: list[NDArray[Any]], outputs: Sequence[Tensor]
) -> list[NDArray[Any]] | None:
    kind = operator.kind
    if kind in ELEMENT_MOVES and kind not in _PADDING:

        def constant(position: int) -> NDArray[np.int64]:
            return constants[position].astype(np.int64)

        call = Call(operator, constant, [tensor.shape for tensor in outputs])
        return move_elements(call, constants[source_position(operator)])
    if kind in FOLDED:
        return [FOLDED[kind](operator, constants, outputs[0].shape)]
    if kind in WHOLE_NUMBERS and all(
        str(array.dtype) in WHOLE_TYPES for array in (*constants, np.empty(0, outputs[0].dtype))
    ):
        return [WHOLE_NUMBERS[kind](*constants)]
    return None


def _pack(
    operator: Operator, constants: list[NDArray[Any]], shape: tuple[int, ...]
) -> NDArray[Any]:
    return np.stack(constants, checked_axis(int(operator.options.get("Axis", 0)), len(shape)))


def _concatenation(
    operator: Operator, constants: list[NDArray[Any]], shape: tuple[int, ...]
) -> NDArray[Any]:
    axis = checked_axis(int(operator.options.get("Axis", 0)), len(shape))
    return np.concatenate(constants, axis)


def _fill(
    operator: Operator, constants: list[NDArray[Any]], shape: tuple[int, ...]
) -> NDArray[Any]:
    if tuple(constants[0].reshape(-1).tolist()) != shape:
        raise ModelError("its shape is not that of its result")
    return np.broadcast_to(constants[1].reshape(()), shape)


def _product(
    operator: Operator, constants: list[NDArray[Any]], shape: tuple[int, ...]
) -> NDArray[Any]:
    """Return the product of all elements of the first constant, as REDUCE_PROD does."""
    rank = constants[0].ndim
    axes = {checked_axis(axis, rank) for axis in constants[1].reshape(-1).tolist()}
    keep = bool(operator.options.get("KeepDims"))
    if axes != set(range(rank)) or shape != reduced_shape(constants[0].shape, axes, keep=keep):
        raise ModelError("not all axes are reduced")
    return np.array(math.prod(constants[0].reshape(-1).tolist())).reshape(shape)


def _cast(
    operator: Operator, constants: list[NDArray[Any]], shape: tuple[int, ...]
) -> NDArray[Any]:
    if str(constants[0].dtype) not in WHOLE_TYPES:
        raise ModelError("only whole numbers are converted")
    return constants[0]


def _quantised(source: Tensor, data: NDArray[Any], result: Tensor) -> NDArray[Any]:
    """Return the constant `data` of tensor `source` after QUANTIZE to int8, as in LiteRT."""
    if (source.dtype, result.dtype) == ("float32", "int8"):
        return to_int8(data, result.scale, result.zero_point)
    if (source.dtype, result.dtype) == ("int8", "int8"):
        table = requantise_table(source.scale, source.zero_point, result.scale, result.zero_point)
        return table[data.astype(np.int64) + 128]
    raise ModelError("other types are left to the translation")


def _dequantised(source: Tensor, data: NDArray[Any], result: Tensor) -> NDArray[Any]:
    """Return the constant `data` of tensor `source` after DEQUANTIZE from int8 to float32."""
    if (source.dtype, result.dtype) != ("int8", "float32"):
        raise ModelError("other types are left to the translation")
    return to_float(data, source.scale, source.zero_point)


_CODED: Mapping[str, Callable[[Tensor, NDArray[Any], Tensor], NDArray[Any]]] = {
    "QUANTIZE": _quantised,
    "DEQUANTIZE": _dequantised,
}
"""Functions that convert a constant to another type. A key is the operator's kind, and the
arguments are source tensor, source content and result tensor.
"""

FOLDED: Mapping[str, Callable[[Operator, list[NDArray[Any]], tuple[int, ...]], NDArray[Any]]] = {
    "PACK": _pack,
    "CONCATENATION": _concatenation,
    "FILL": _fill,
    "REDUCE_PROD": _product,
    "CAST": _cast,
}
"""Functions that calculate an operator's result from constants. A key is the operator's kind."""
