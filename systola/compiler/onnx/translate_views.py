# SPDX-License-Identifier: Apache-2.0
"""The translation of operators that only change a tensor's shape or its dimensions' order.

Codes are quantised numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from systola.compiler.errors import ModelError
from systola.compiler.host_stage import HostStage, Transpose, View
from systola.compiler.onnx.entries import (
    Codes,
    Dequantised,
    Entry,
    HostArray,
    Limits,
    Pending,
    Weights,
)
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.numbers import Quantisation
from systola.compiler.onnx.scope import Scope, entry_shape
from systola.compiler.operations import Value

CASTS = {1: "float32", 6: "int32", 7: "int64", 11: "float64"}
"""Types to which Cast may convert constants, by ONNX's number of the type."""


def translate_identity(scope: Scope, node: OnnxNode) -> None:
    """Translate Identity and Dropout: the result is the input, as Dropout acts only in training."""
    scope.result(node, scope.entry(node, 0))


def translate_cast(scope: Scope, node: OnnxNode) -> None:
    """Translate Cast of constants, or of quantised tensors to float32, which changes no codes.

    A quantised tensor between DequantizeLinear and QuantizeLinear already counts as float32.
    """
    entry = scope.entry(node, 0)
    target = CASTS.get(node.integer("to", 0))
    if isinstance(entry, np.ndarray) and target is not None:
        with np.errstate(invalid="ignore", over="ignore"):
            entry = entry.astype(target)
    elif isinstance(entry, HostArray) and {entry.value.dtype, target} <= {"int32", "int64"}:
        pass
    elif not isinstance(entry, (Dequantised, Pending)) or target != "float32":
        raise ModelError("this conversion is not supported")
    scope.result(node, entry)


def translate_reshape(scope: Scope, node: OnnxNode) -> None:
    """Translate Reshape to a shape that is a constant; no element moves."""
    shape = _shape(scope, node)
    target = scope.integers(node, 1)
    if scope.repeat > 1 and target[:1] == [scope.repeat]:
        target[0] = 1
    if not node.integer("allowzero", 0):
        target = [
            shape[axis] if size == 0 and axis < len(shape) else size
            for axis, size in enumerate(target)
        ]
    known = math.prod(size for size in target if size != -1)
    if target.count(-1) == 1 and known > 0:
        target[target.index(-1)] = math.prod(shape) // known
    if any(size < 1 for size in target) or math.prod(target) != math.prod(shape):
        raise ModelError(f"it makes shape {tuple(target)} of shape {shape}")
    _reshape(scope, node, tuple(target))


def translate_flatten(scope: Scope, node: OnnxNode) -> None:
    """Translate Flatten, which makes two dimensions of all dimensions; no element moves."""
    shape = _shape(scope, node)
    axis = node.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise ModelError(f"it has no axis {axis}")
    axis += len(shape) if axis < 0 else 0
    _reshape(scope, node, (math.prod(shape[:axis]), math.prod(shape[axis:])))


def translate_squeeze(scope: Scope, node: OnnxNode) -> None:
    """Translate Squeeze, which removes dimensions of size 1."""
    shape = _shape(scope, node)
    axes = _given_axes(scope, node, len(shape))
    if axes is None:
        axes = [axis for axis, size in enumerate(shape) if size == 1]
    if any(shape[axis] != 1 for axis in axes):
        raise ModelError(f"it cannot remove dimensions {axes} of {shape}")
    _reshape(scope, node, tuple(size for axis, size in enumerate(shape) if axis not in axes))


def translate_unsqueeze(scope: Scope, node: OnnxNode) -> None:
    """Translate Unsqueeze, which adds dimensions of size 1."""
    shape = list(_shape(scope, node))
    count = len(node.integers("axes", ())) or len(scope.integers(node, 1))
    axes = _given_axes(scope, node, len(shape) + count) or []
    for axis in sorted(axes):
        shape.insert(axis, 1)
    _reshape(scope, node, tuple(shape))


def translate_transpose(scope: Scope, node: OnnxNode) -> None:
    """Translate Transpose; of a quantised tensor only the noted storage order changes."""
    shape = _shape(scope, node)
    order = node.integers("perm", tuple(range(len(shape)))[::-1])
    if sorted(order) != list(range(len(shape))):
        raise ModelError(f"its permutation {order} does not fit the shape {shape}")
    entry = scope.entry(node, 0)
    match entry:
        case np.ndarray():
            result: Entry = entry.transpose(order)
        case Weights():
            axis = order.index(entry.axis % len(order)) if entry.scales.size > 1 else 0
            result = replace(entry, codes=entry.codes.transpose(order), axis=axis)
        case Codes():
            result = _transposed(scope, node, entry, order)
        case Dequantised():
            result = replace(entry, codes=_transposed(scope, node, entry.codes, order))
        case HostArray():
            new = Value(node.outputs[0], tuple(shape[axis] for axis in order), entry.value.dtype)
            function = Transpose(entry.value.shape, order)
            scope.add(
                HostStage(operator=str(node), sources=(entry.value,), result=new, function=function)
            )
            result = HostArray(new)
        case Pending():
            result = _later(
                entry,
                tuple(shape[axis] for axis in order),
                lambda codes: _transposed(scope, node, codes, order),
            )
        case _:
            raise ModelError("its input is not quantised")
    scope.result(node, result)


def _later(entry: Pending, shape: tuple[int, ...], view: Callable[[Codes], Codes]) -> Pending:
    """Return a pending result in another shape.

    A pending result is calculated when its quantisation is known. Then `view` changes the shape.
    """

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        return view(entry.finish(quantisation, limits))

    return replace(entry, shape=shape, finish=finish, numbers=None)


def _transposed(scope: Scope, node: OnnxNode, codes: Codes, order: Sequence[int]) -> Codes:
    layout = codes.layout.divided(codes.shape)
    if layout is None:
        codes = scope.in_order_of_shape(node, codes)
        layout = codes.layout
    shape = tuple(codes.shape[axis] for axis in order)
    return replace(codes, shape=shape, layout=layout.transposed(codes.shape, order))


def _shape(scope: Scope, node: OnnxNode) -> tuple[int, ...]:
    return entry_shape(scope.entry(node, 0))


def _given_axes(scope: Scope, node: OnnxNode, rank: int) -> list[int] | None:
    """Return a node's axes, counted from 0, or None if the node does not give any.

    Before version 13 of ONNX's standard operators the axes are an attribute, later an input.
    """
    if "axes" in node.attributes:
        axes = list(node.integers("axes"))
    elif scope.optional(node, 1) is not None:
        axes = scope.integers(node, 1)
    else:
        return None
    if any(not -rank <= axis < rank for axis in axes):
        raise ModelError(f"its axes {axes} do not fit {rank} dimensions")
    axes = [axis % rank for axis in axes]
    if len(set(axes)) != len(axes):
        raise ModelError(f"it names an axis twice: {axes}")
    return axes


def _reshape(scope: Scope, node: OnnxNode, shape: tuple[int, ...]) -> None:
    """Define the result of a node as the elements of its input, in the same order, in another
    shape.
    """
    entry = scope.entry(node, 0)
    match entry:
        case np.ndarray():
            result: Entry = entry.reshape(shape)
        case Weights() if entry.scales.size == 1:
            result = replace(entry, codes=entry.codes.reshape(shape))
        case Codes():
            result = replace(entry, shape=shape)
        case Dequantised():
            result = replace(entry, codes=replace(entry.codes, shape=shape))
        case HostArray():
            new = Value(node.outputs[0], shape, entry.value.dtype)
            scope.add(
                HostStage(operator=str(node), sources=(entry.value,), result=new, function=View())
            )
            result = HostArray(new)
        case Pending():
            result = _later(entry, shape, lambda codes: replace(codes, shape=shape))
        case _:
            raise ModelError("its input is not quantised")
    scope.result(node, result)


Translator = Callable[[Scope, OnnxNode], None]
VIEWS: dict[str, Translator] = {
    "Identity": translate_identity,
    "Dropout": translate_identity,
    "Cast": translate_cast,
    "Reshape": translate_reshape,
    "Flatten": translate_flatten,
    "Squeeze": translate_squeeze,
    "Unsqueeze": translate_unsqueeze,
    "Transpose": translate_transpose,
}
