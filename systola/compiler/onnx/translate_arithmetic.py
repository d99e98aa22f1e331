# SPDX-License-Identifier: Apache-2.0
"""The translation of operators on two tensors, element by element, such as Add, Mul and Max.

Codes are quantised numbers. An entry describes a tensor, see compiler/onnx/entries.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Operation
from systola.compiler.errors import ModelError
from systola.compiler.extremes import larger_codes
from systola.compiler.moves import check_moves, gathered
from systola.compiler.onnx.binary_scales import BinaryScales, binary_scales, reference_codes
from systola.compiler.onnx.entries import Codes, Dequantised, Entry, Limits, Pending, Weights
from systola.compiler.onnx.layout import Layout, stored
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.multipliers import code_limits
from systola.compiler.onnx.numbers import CODES, Quantisation
from systola.compiler.onnx.scope import Scope, machine_quantisation, value_shape
from systola.compiler.operations import Binary, Value

OPERATIONS = {
    "Add": Operation.ADD,
    "QLinearAdd": Operation.ADD,
    "Sub": Operation.SUBTRACT,
    "Mul": Operation.MULTIPLY,
    "QLinearMul": Operation.MULTIPLY,
}

Operand = Codes | NDArray[np.int64]
"""Type of an operand: a calculated tensor, or an array of constant codes as int8 numbers."""


def translate_binary(scope: Scope, node: OnnxNode) -> None:
    """Translate Add, Sub, Mul, Max and Min of two tensors, and Div and Pow of a tensor and a
    number.

    The number must be a constant. Operators on two constants are calculated at once.
    """
    entries = scope.entry(node, 0), scope.entry(node, 1)
    if all(isinstance(entry, np.ndarray) for entry in entries):
        scope.result(node, _folded(node, entries[0], entries[1]))
        return
    curve = _curve(node, *entries)
    if curve is not None:
        scope.result(node, curve)
        return
    if node.kind in _EXTREMES:
        _define_extreme(scope, node, entries)
        return
    if node.kind not in OPERATIONS:
        raise ModelError("of two calculated tensors it is not supported")
    a, b = (_operand(entry) for entry in entries)
    _check_shapes(a[0], b[0])

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        return _add_binary(scope, node, a, b, quantisation, limits)

    shape = np.broadcast_shapes(_operand_shape(a[0]), _operand_shape(b[0]))
    scope.result(node, Pending(shape, finish))


def translate_qlinear_binary(scope: Scope, node: OnnxNode) -> None:
    """Translate QLinearAdd and QLinearMul, operators of ONNX Runtime on codes, to Vector
    instructions or a table.

    A table is enough if the result depends on only one code.
    """
    operands: list[tuple[Operand, Quantisation]] = []
    for position in (0, 3):
        quantisation = scope.quantisation(node, position + 1, position + 2)
        entry = scope.entry(node, position)
        if isinstance(entry, np.ndarray):
            operands.append((_machine_codes(entry), quantisation))
        else:
            operands.append((scope.codes(node, position), quantisation))
    a, b = operands
    _check_shapes(a[0], b[0])
    quantisation = scope.quantisation(node, 6, 7)
    scope.result(node, _add_binary(scope, node, a, b, quantisation, Limits()))


def _define_extreme(scope: Scope, node: OnnxNode, entries: tuple[Entry, Entry]) -> None:
    """Define Max or Min of two tensors: requantise both to the result's scale, then compare codes.

    Comparing codes is right, as a larger number never has a smaller code.
    """
    operands: list[Dequantised] = []
    for entry in entries:
        if not isinstance(entry, Dequantised) or len(node.inputs) != len(entries):
            raise ModelError("it takes two results of DequantizeLinear, or one and a number")
        operands.append(entry)
    shape = operands[0].codes.shape
    if operands[1].codes.shape != shape:
        raise ModelError(f"inputs of shapes {shape} and {operands[1].codes.shape} do not fit")

    def finish(quantisation: Quantisation, limits: Limits) -> Codes:
        largest = node.kind == "Max"
        codes: list[Codes] = []
        for operand in operands:
            table = np.clip(quantisation.codes(operand.numbers), *code_limits(quantisation, limits))
            # The complement -1 - code reverses the order of codes, so the minimum of codes is the
            # complement of the maximum of their complements.
            table = table if largest else -1 - table
            codes.append(scope.look_up(node, operand.codes, table, quantisation.unsigned))
        first, second = codes
        value = scope.stored_like(node, second, first.layout, first.value.shape)
        result = Value(node.outputs[0], first.value.shape)
        for item in larger_codes(str(node), (first.value, value), result):
            scope.add(item)
        extreme = Codes(result, shape, first.layout, quantisation.unsigned)
        if largest:
            return extreme
        return scope.look_up(node, extreme, -1 - CODES, quantisation.unsigned)

    scope.result(node, Pending(shape, finish))


def _operand(entry: Entry) -> tuple[Operand, Quantisation]:
    if isinstance(entry, Dequantised) and entry.curve is None:
        return entry.codes, entry.quantisation
    if isinstance(entry, Weights) and entry.scales.size == 1:
        quantisation = machine_quantisation(
            float(entry.scales[0]), int(entry.zero_points[0]), entry.codes.dtype == np.uint8
        )
        return _machine_codes(entry.codes), quantisation
    raise ModelError("its inputs must come from DequantizeLinear, with one scale each")


def _machine_codes(codes: NDArray[np.generic]) -> NDArray[np.int64]:
    if str(codes.dtype) not in ("int8", "uint8"):
        raise ModelError(f"constants of {codes.dtype} are not supported")
    # numpy returns plain numbers in place of arrays without dimensions, so these numbers become
    # arrays again.
    return np.asarray(codes.astype(np.int64) - (128 if codes.dtype == np.uint8 else 0))


def _operand_shape(operand: Operand) -> tuple[int, ...]:
    return operand.shape


def _check_shapes(a: Operand, b: Operand) -> None:
    try:
        shape = np.broadcast_shapes(_operand_shape(a), _operand_shape(b))
    except ValueError:
        raise ModelError(
            f"its inputs of shapes {_operand_shape(a)} and {_operand_shape(b)} do not fit"
        ) from None
    if not any(isinstance(each, Codes) and each.shape == shape for each in (a, b)):
        raise ModelError(f"no input has the shape {shape} of its result, which is not supported")


def _folded(node: OnnxNode, a: Entry, b: Entry) -> NDArray[np.generic]:
    assert isinstance(a, np.ndarray) and isinstance(b, np.ndarray)
    if a.dtype != b.dtype or a.dtype.kind not in "if":
        raise ModelError(f"constants of {a.dtype} and {b.dtype} are not supported")
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ModelError("its inputs do not fit") from None
    with np.errstate(all="ignore"):
        return _APPLY[node.kind](a, b)


def _divide(a: NDArray[np.generic], b: NDArray[np.generic]) -> NDArray[np.generic]:
    if a.dtype.kind == "f":
        return np.divide(a, b).astype(a.dtype)
    if bool((b == 0).any()):
        raise ModelError("it divides by zero")
    return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)


def _bent(x: NDArray[np.float32], slope: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(x < 0, x * slope, x)


_EXTREMES = ("Max", "Min")
_APPLY: dict[str, Callable[..., NDArray[np.generic]]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Pow": np.power,
    "PRelu": _bent,
}
"""Functions of two arrays, by ONNX's name of the operator.

The arrays are two constants, or a constant number and the 256 numbers for the codes of a tensor.
"""


def _curve(node: OnnxNode, a: Entry, b: Entry) -> Dequantised | None:
    """Return the node's result as a function of one operand's codes.

    The other operand must be a constant float32 number. Returns None if neither operand is such a
    constant.
    """
    for entry, other, first in ((a, b, True), (b, a, False)):
        if isinstance(other, Weights) and other.codes.size == 1 and node.kind not in OPERATIONS:
            other = other.numbers
        if not isinstance(entry, Dequantised) or not isinstance(other, np.ndarray):
            continue
        if other.size != 1 or other.ndim > len(entry.codes.shape) or other.dtype != np.float32:
            raise ModelError("a constant that is not quantised must be one number of float32")
        number = np.float32(other.reshape(-1)[0])
        operands = (entry.numbers, number) if first else (number, entry.numbers)
        with np.errstate(all="ignore"):
            numbers = _APPLY[node.kind](*operands)
        return replace(entry, curve=numbers.astype(np.float32))
    return None


def _add_binary(
    scope: Scope,
    node: OnnxNode,
    a: tuple[Operand, Quantisation],
    b: tuple[Operand, Quantisation],
    quantisation: Quantisation,
    limits: Limits,
) -> Codes:
    operation = OPERATIONS[node.kind]
    fused = node.kind != "Sub"
    constants = [each for each, _ in (a, b) if isinstance(each, np.ndarray)]
    same = isinstance(a[0], Codes) and isinstance(b[0], Codes) and a[0].value is b[0].value
    if same or any(int(each.min()) == int(each.max()) for each in constants if each.size):
        # Both operands are the same tensor, or one of them is a single number. So a table from the
        # code of one operand to the code of the result is enough.
        codes_a, codes_b = (
            np.full(256, int(each.reshape(-1)[0])) if isinstance(each, np.ndarray) else CODES
            for each, _ in (a, b)
        )
        table = reference_codes(
            operation, (codes_a, a[1]), (codes_b, b[1]), quantisation, fused=fused
        )
        source = a[0] if isinstance(a[0], Codes) else b[0]
        assert isinstance(source, Codes)
        bounded = np.clip(table, *code_limits(quantisation, limits))
        return scope.look_up(node, source, bounded, quantisation.unsigned)
    scales = binary_scales(
        operation,
        (_codes_of(a[0]), a[1]),
        (_codes_of(b[0]), b[1]),
        quantisation,
        code_limits(quantisation, limits),
        fused=fused,
    )
    return _emit(scope, node, (a[0], b[0]), scales, quantisation)


def _codes_of(operand: Operand) -> NDArray[np.int64]:
    """Return all codes that can occur in an operand, each once."""
    return np.unique(operand) if isinstance(operand, np.ndarray) else CODES


def _emit(
    scope: Scope,
    node: OnnxNode,
    operands: tuple[Operand, Operand],
    scales: BinaryScales,
    quantisation: Quantisation,
) -> Codes:
    shape = np.broadcast_shapes(*(_operand_shape(operand) for operand in operands))
    main = next(each for each in operands if isinstance(each, Codes) and each.shape == shape)
    found = None
    for value, layout in _orders(scope, node, main, shape):
        beside = [_beside(scope, node, each, value, layout, shape) for each in operands]
        if all(each is not None for each in beside):
            found = value, layout, [each for each in beside if each is not None]
            break
    if found is None:
        shapes = " and ".join(str(_operand_shape(operand)) for operand in operands)
        raise ModelError(f"inputs of the shapes {shapes} are not supported")
    value, layout, values = found
    main = replace(main, value=value)
    result = Value(node.outputs[0], main.value.shape)
    if scales.differing:
        scope.inexact_channels += result.channels
    scope.add(
        Binary(
            operator=str(node),
            result=result,
            operation=OPERATIONS[node.kind],
            a=values[0],
            b=values[1],
            scale_a=scales.a,
            scale_b=scales.b,
            output=scales.output,
        )
    )
    codes = Codes(result, shape, layout, quantisation.unsigned)
    if scales.table is None:
        return codes
    return scope.look_up(node, codes, scales.table, quantisation.unsigned)


def _orders(
    scope: Scope, node: OnnxNode, main: Codes, shape: tuple[int, ...]
) -> Iterator[tuple[Value, Layout]]:
    """Yield the operand `main` in several storage orders, each as a pair of value and layout.

    First comes the present order, then channels last, then the order of the tensor's shape.
    Operations that move elements are added for each order when it is yielded.
    """
    layout = main.layout.divided(shape)
    if layout is not None:
        yield main.value, layout
    rank = len(shape)
    for order in ((0, *range(2, rank), 1), tuple(range(rank))):
        if sorted(order) == list(range(rank)):
            value = scope.arranged(node, main, order, value_shape(shape, order))
            yield value, stored(shape, order)


def _beside(
    scope: Scope,
    node: OnnxNode,
    operand: Operand,
    value: Value,
    layout: Layout,
    shape: tuple[int, ...],
) -> Value | NDArray[np.int8] | None:
    """Return an operand in a form that Binary can combine with `value`, element by element.

    `value` is a tensor of `shape` stored in the order `layout`. An operand with fewer elements must
    have one for each channel, one for each pixel, or a single one. Returns None for other tensors.
    """
    if isinstance(operand, np.ndarray):
        whole = np.broadcast_to(operand, shape).reshape(layout.factors)
        return whole.transpose(layout.order).reshape(value.shape).astype(np.int8)
    if operand.value is value:
        return value
    if operand.shape == shape:
        return scope.stored_like(node, operand, layout, value.shape)
    # Leading dimensions of size 1 give the operand as many dimensions as `shape`; no element moves.
    own = (1,) * (len(shape) - len(operand.shape)) + operand.shape
    parts = layout.axes(shape)
    kept = {part for axis, size in enumerate(own) if size > 1 for part in parts[axis]}
    order = [part for part in layout.order if part in kept]
    channels = int(np.prod([layout.factors[part] for part in order], dtype=np.int64))
    place = {part: number for number, part in enumerate(sorted(kept))}
    wanted = Layout(
        tuple(layout.factors[part] for part in sorted(kept)),
        tuple(place[part] for part in order),
    )
    tail = list(layout.order[len(layout.order) - len(order) :])
    head = list(layout.order[: len(order)])
    if channels == value.channels and order == tail:
        return scope.stored_like(node, operand, wanted, (*(1 for _ in value.shape[1:]), channels))
    if channels in (1, value.pixels) and order == head:
        narrow = scope.stored_like(
            node, operand, wanted, (*(value.shape[:-1] if channels > 1 else [1]), 1)
        )
        check_moves(1, value.channels)
        wide = Value(f"{narrow.name} for {node}", (*narrow.shape[:-1], value.channels))
        origin = np.zeros(value.channels, np.int64)
        scope.add(gathered(str(node), narrow, wide, origin, 0))
        return wide
    return None


Translator = Callable[[Scope, OnnxNode], None]
ARITHMETIC: dict[str, Translator] = {
    **dict.fromkeys(_APPLY, translate_binary),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), translate_qlinear_binary),
}
