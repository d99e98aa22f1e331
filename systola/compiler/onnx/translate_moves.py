# SPDX-License-Identifier: Apache-2.0
"""The translation of ONNX operators that only move elements, such as Slice, Pad and Concat.

Codes are quantised numbers. An entry describes a tensor, see compiler/onnx/entries.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.host_stage import Embedding, HostStage
from systola.compiler.moves import constant_value
from systola.compiler.onnx.element_moves import (
    ELEMENT_MOVES,
    Call,
    move_elements,
)
from systola.compiler.onnx.entries import (
    Codes,
    Dequantised,
    Entry,
    HostArray,
    Limits,
    Pending,
    Weights,
)
from systola.compiler.onnx.layout import plain, stored
from systola.compiler.onnx.model import Constant, OnnxNode
from systola.compiler.onnx.multipliers import code_limits
from systola.compiler.onnx.numbers import CODES, Quantisation
from systola.compiler.onnx.scope import Scope, entry_shape, machine_quantisation, value_shape
from systola.compiler.onnx.translate_quantisation import requantised
from systola.compiler.operations import Concatenation, Value
from systola.compiler.shape_checks import MOST_ELEMENTS, checked_axis

_PADDED = "Pad"


def translate_move(scope: Scope, node: OnnxNode) -> None:
    """Translate an operator that only moves elements, of a constant or of a quantised tensor."""
    entry = scope.entry(node, 0)
    if node.kind == "Gather" and isinstance(scope.entry(node, 1), HostArray):
        _embed(scope, node, entry)
        return

    def whole_numbers(position: int) -> list[int] | None:
        return None if scope.optional(node, position) is None else scope.integers(node, position)

    def constant(position: int) -> Constant | None:
        return None if scope.optional(node, position) is None else scope.constant(node, position)

    call = Call(node, scope.opset, whole_numbers, constant)
    shape = entry_shape(entry)
    if math.prod(shape) > MOST_ELEMENTS:
        raise ModelError(f"moving a tensor of shape {shape} is not supported")
    results = _moved(scope, node, call, entry)
    for name, result in zip(node.outputs, results, strict=True):
        if name:
            scope.define(name, result)


def _moved(scope: Scope, node: OnnxNode, call: Call, entry: Entry) -> list[Entry]:
    match entry:
        case np.ndarray() if node.kind != _PADDED:
            return [*move_elements(call, entry)]
        case Weights() if entry.scales.size == 1 and node.kind != _PADDED:
            return [replace(entry, codes=codes) for codes in move_elements(call, entry.codes)]
        case Codes():
            fill = 0
            if node.kind == _PADDED:
                given = _padding(node, call)
                fill = int(given) - (128 if entry.unsigned else 0)
            return [*_moved_codes(scope, node, call, entry, fill)]
        case Dequantised():
            fill = _fill(node, call, entry) if node.kind == _PADDED else 0
            parts = _moved_codes(scope, node, call, entry.codes, fill)
            return [replace(entry, codes=part) for part in parts]
        case _:
            raise ModelError("its input is not quantised")


def _padding(node: OnnxNode, call: Call) -> float:
    """Return the number with which Pad fills the border."""
    if "value" in node.attributes:
        return node.number("value", 0.0)
    given = call.constant(2)
    if given is None:
        return 0.0
    if given.size != 1 or given.dtype.kind not in "iuf":
        raise ModelError("its padding must be one number")
    return float(given.reshape(-1)[0])


def _fill(node: OnnxNode, call: Call, entry: Dequantised) -> int:
    """Return the code for the number with which Pad fills the border.

    Raises ModelError if no code stands for this number.
    """
    number = _padding(node, call)
    codes = np.flatnonzero(entry.numbers == np.float32(number))
    if codes.size == 0:
        raise ModelError(f"its padding of {number} is no number that a code stands for")
    return int(CODES[codes[0]])


def _moved_codes(scope: Scope, node: OnnxNode, call: Call, codes: Codes, fill: int) -> list[Codes]:
    if not -128 <= fill <= 127:
        raise ModelError("its padding is no code")
    axes, value = scope.natural(node, codes)
    layout = stored(codes.shape, axes)
    place = np.empty(math.prod(codes.shape), np.int64)
    place[layout.numbers] = np.arange(place.size)
    positions = np.arange(place.size).reshape(codes.shape)
    results: list[Codes] = []
    for name, taken in zip(node.outputs, move_elements(call, positions), strict=True):
        order = axes if taken.ndim == len(axes) else tuple(range(taken.ndim))
        origin = np.where(taken >= 0, place[np.maximum(taken, 0)], -1).transpose(order)
        if np.array_equal(origin.reshape(-1), np.arange(place.size)):
            results.append(replace(codes, shape=taken.shape))
            continue
        result = Value(name, value_shape(taken.shape, order))
        scope.move(node, value, result, origin, fill)
        results.append(Codes(result, taken.shape, stored(taken.shape, order), codes.unsigned))
    return results


def _embed(scope: Scope, node: OnnxNode, entry: Entry) -> None:
    """Translate Gather to work of the host: calculated indices choose rows of a constant."""
    indices = scope.entry(node, 1)
    assert isinstance(indices, HostArray)
    codes = entry.codes if isinstance(entry, Weights) else entry
    if not isinstance(codes, np.ndarray) or str(codes.dtype) not in ("int8", "uint8"):
        raise ModelError("its data must be constants of int8 or uint8")
    if codes.ndim == 0 or node.integer("axis", 0) != 0 or indices.value.dtype == "float32":
        raise ModelError("only rows chosen by whole numbers are supported")
    unsigned = codes.dtype == np.uint8
    table = (codes.view(np.uint8) ^ np.uint8(128)).view(np.int8) if unsigned else codes
    shape = (*indices.value.shape, *codes.shape[1:])
    result = Value(node.outputs[0], shape)
    scope.add(
        HostStage(
            operator=str(node),
            sources=(indices.value,),
            result=result,
            function=Embedding(np.ascontiguousarray(table)),
        )
    )
    found = Codes(result, shape, plain(shape), unsigned)
    if isinstance(entry, Weights):
        if entry.scales.size != 1:
            raise ModelError("its data needs one scale")
        quantisation = machine_quantisation(
            float(entry.scales[0]), int(entry.zero_points[0]), unsigned
        )
        scope.result(node, Dequantised(found, quantisation))
    else:
        scope.result(node, found)


@dataclass(frozen=True)
class _Part:
    """An input of a concatenation, with its quantisation."""

    entry: Dequantised | Constant
    """Calculated tensor, or an array of constant codes as int8 numbers."""
    quantisation: Quantisation

    @property
    def shape(self) -> tuple[int, ...]:
        return self.entry.codes.shape if isinstance(self.entry, Dequantised) else self.entry.shape


def translate_concat(scope: Scope, node: OnnxNode) -> None:
    """Translate Concat of constants, of codes, or of numbers between DequantizeLinear and
    QuantizeLinear."""
    entries = [scope.entry(node, position) for position in range(len(node.inputs))]
    if not entries:
        raise ModelError("it has no inputs")
    axis = checked_axis(node.integer("axis", 0), len(entry_shape(entries[0])))
    if all(isinstance(entry, np.ndarray) for entry in entries):
        arrays = [entry for entry in entries if isinstance(entry, np.ndarray)]
        _joined_shape([array.shape for array in arrays], axis)
        if len({array.dtype for array in arrays}) > 1:
            raise ModelError("its inputs are of different types")
        scope.result(node, np.concatenate(arrays, axis))
        return
    if any(isinstance(entry, Codes) for entry in entries):
        first = next(entry for entry in entries if isinstance(entry, Codes))
        unit = Quantisation(np.float32(1), 0, first.unsigned)
        parts = [_Part(_of_codes(entry, unit), unit) for entry in entries]
        scope.result(node, _join(scope, node, parts, axis, unit, Limits()))
        return
    parts = [_dequantised_part(entry) for entry in entries]
    shape = _joined_shape([part.shape for part in parts], axis)

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        return _join(scope, node, parts, axis, quantisation, limits)

    scope.result(node, Pending(shape, finish))


def translate_qlinear_concat(scope: Scope, node: OnnxNode) -> None:
    """Translate QLinearConcat, an operator of ONNX Runtime on codes, to a concatenation."""
    quantisation = scope.quantisation(node, 0, 1)
    parts: list[_Part] = []
    for position in range(2, len(node.inputs) - 2, 3):
        own = scope.quantisation(node, position + 1, position + 2)
        parts.append(_Part(_of_codes(scope.entry(node, position), own), own))
    if not parts:
        raise ModelError("it has no inputs")
    axis = checked_axis(node.integer("axis", 0), len(parts[0].shape))
    scope.result(node, _join(scope, node, parts, axis, quantisation, Limits()))


def _of_codes(entry: Entry, quantisation: Quantisation) -> Dequantised | Constant:
    if isinstance(entry, Codes) and entry.unsigned == quantisation.unsigned:
        return Dequantised(entry, quantisation)
    kind = "uint8" if quantisation.unsigned else "int8"
    if isinstance(entry, np.ndarray) and str(entry.dtype) == kind:
        return entry.astype(np.int64) - (128 if quantisation.unsigned else 0)
    raise ModelError("its inputs must be of the same type, int8 or uint8")


def _dequantised_part(entry: Entry) -> _Part:
    if isinstance(entry, Dequantised):
        return _Part(entry, entry.quantisation)
    if isinstance(entry, Weights) and entry.scales.size == 1:
        unsigned = entry.codes.dtype == np.uint8
        quantisation = machine_quantisation(
            float(entry.scales[0]), int(entry.zero_points[0]), unsigned
        )
        return _Part(_of_codes(entry.codes, quantisation), quantisation)
    raise ModelError("its inputs must come from DequantizeLinear, with one scale each")


def _joined_shape(shapes: list[tuple[int, ...]], axis: int) -> tuple[int, ...]:
    """Return the shape of the result when arrays of `shapes` are joined along `axis`.

    Raises ModelError if the other sizes of the arrays differ.
    """
    rest = {(*shape[:axis], 0, *shape[axis + 1 :]) for shape in shapes}
    if len(rest) > 1 or any(axis >= len(shape) for shape in shapes):
        raise ModelError("its inputs do not fit one another")
    first = shapes[0]
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def _join(
    scope: Scope,
    node: OnnxNode,
    parts: list[_Part],
    axis: int,
    quantisation: Quantisation,
    limits: Limits,
) -> Codes:
    """Add operations that join the parts of a concatenation along `axis`, and return the result.

    Each part is first requantised to `quantisation` and clamped to `limits`.
    """
    shape = _joined_shape([part.shape for part in parts], axis)
    codes = [
        _requantised_part(scope, node, number, part, quantisation, limits)
        for number, part in enumerate(parts)
    ]
    order, _ = scope.natural(node, codes[0])
    values = [scope.arranged(node, each, order, value_shape(each.shape, order)) for each in codes]
    result_shape = value_shape(shape, order)
    place = order.index(axis) + len(result_shape) - len(order)
    result = Value(node.outputs[0], result_shape)
    if place == len(result_shape) - 1 or math.prod(result_shape[:place]) == 1:
        scope.add(Concatenation(operator=str(node), result=result, parts=tuple(values), axis=place))
    else:
        _join_in_turn(scope, node, values, result, place)
    return Codes(result, shape, stored(shape, order), quantisation.unsigned)


def _join_in_turn(
    scope: Scope, node: OnnxNode, values: list[Value], result: Value, axis: int
) -> None:
    """Add operations that join `values` along an axis that the operation Concatenation does not
    take.

    First the values are joined one after another. Then the elements move to their places in
    `result`.
    """
    flat = [scope.reshaped(node, value, (value.pixels, value.channels)) for value in values]
    behind = Value(f"{result.name} joined", (result.pixels, result.channels))
    scope.add(Concatenation(operator=str(node), result=behind, parts=tuple(flat), axis=0))
    origins: list[NDArray[np.int64]] = []
    first = 0
    for value in values:
        size = value.pixels * value.channels
        origins.append(np.arange(first, first + size).reshape(value.shape))
        first += size
    scope.move(node, behind, result, np.concatenate(origins, axis))


def _requantised_part(
    scope: Scope,
    node: OnnxNode,
    number: int,
    part: _Part,
    quantisation: Quantisation,
    limits: Limits,
) -> Codes:
    low, high = code_limits(quantisation, limits)
    name = f"{node.outputs[0]} part {number}"
    own = replace(node, outputs=(name,))
    if isinstance(part.entry, Dequantised):
        result = requantised(scope, own, part.entry, quantisation)
        if (low, high) == (-128, 127):
            return result
        return scope.look_up(own, result, np.clip(CODES, low, high), result.unsigned)
    table = np.clip(quantisation.codes(part.quantisation.numbers), low, high)
    data = table[part.entry.astype(np.int64) + 128].astype(np.int8)
    shape = part.shape
    order = (0, *range(2, len(shape)), 1) if len(shape) in (3, 4) else tuple(range(len(shape)))
    value, item = constant_value(
        str(node), name, data.transpose(order).reshape(value_shape(shape, order))
    )
    scope.add(item)
    return Codes(value, shape, stored(shape, order), quantisation.unsigned)


Translator = Callable[[Scope, OnnxNode], None]
MOVES: dict[str, Translator] = {
    **dict.fromkeys(ELEMENT_MOVES, translate_move),
    "Concat": translate_concat,
    "QLinearConcat": translate_qlinear_concat,
}
