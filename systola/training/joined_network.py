# SPDX-License-Identifier: Apache-2.0
"""The joins (Add and Concatenate) of a trained network as operations to be compiled for any
machine.

The results of joins have the bytes of predict(). `systola.training.branches.numbers` has the
numbers of sums, and `BranchedForward` writes results side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from systola.arch.isa import Function, Operation, Rounding
from systola.compiler.errors import ModelError
from systola.compiler.operations import (
    Binary,
    Concatenation,
    Reshape,
    Scale,
    Unary,
    Value,
    scalar_requantisation,
)
from systola.compiler.partition import Item
from systola.training.branches.numbers import sum_left
from systola.training.stages import Stage
from systola.training.writer import HALF

_OPERAND_BITS = 11
"""Number of bits by which Binary shifts an operand to the right, after its multiplier."""
Coded = tuple[Value, int]
"""A result of the network, and the number of its fraction bits."""


def joined(
    items: list[Item], number: int, stage: Stage, given: Sequence[Coded], bits: int
) -> Value:
    """Append the operations of a join to `items`; return its result, with `bits` fraction bits.

    Raises ModelError for a sum of more than two results.
    """
    shape = (1, *stage.map, stage.units) if stage.maps else (1, stage.units)
    result = Value(f"stage {number}", shape)
    parts = [
        (_as_row(items, f"{number}.{place}", value) if not stage.maps else value, own)
        for place, (value, own) in enumerate(given)
    ]
    function = Function.RELU if stage.relu else Function.NONE
    if stage.join == "add":
        return _added(items, result, parts, bits, function)
    made: list[Value] = []
    for place, (value, own) in enumerate(parts):
        part = Value(f"part {number}.{place}", value.shape)
        shift = 1 - (own - bits)
        single = Rounding.SINGLE
        output = scalar_requantisation(HALF, shift, rounding=single, function=function)
        name = f"Concatenate {number}.{place}"
        items.append(Unary(operator=name, result=part, source=value, output=output))
        made.append(part)
    name, axis = f"Concatenate {number}", len(shape) - 1
    items.append(Concatenation(operator=name, result=result, parts=tuple(made), axis=axis))
    return result


def _as_row(items: list[Item], name: str, value: Value) -> Value:
    """Return a result as a row of numbers; append a Flatten to `items` if it is a map."""
    if len(value.shape) <= 2:
        return value
    row = Value(f"row {name}", (1, prod(value.shape)))
    items.append(Reshape(operator="Flatten", result=row, source=value))
    return row


def _added(
    items: list[Item], result: Value, parts: Sequence[Coded], bits: int, function: Function
) -> Value:
    if len(parts) == 1:  # an Add of one result copies it
        parts = [*parts, *parts]
        scales = [Scale(0, 1 << (_OPERAND_BITS + sum_left(1))), Scale(0, 0)]
    elif len(parts) == 2:
        least = min(own for _, own in parts)
        lefts = [_OPERAND_BITS + sum_left(2) - (own - least) for _, own in parts]
        scales = [Scale(0, 1 << left if left >= 0 else 0) for left in lefts]
    else:
        raise ModelError(f"an Add of {len(parts)} results is not compiled: add two at a time")
    sum_bits = min(own for _, own in parts) + sum_left(len(parts))
    output = scalar_requantisation(
        HALF, 1 - (sum_bits - bits), rounding=Rounding.DOUBLE, function=function
    )
    node = Binary(
        operator=f"Add {result.name}",
        result=result,
        operation=Operation.ADD,
        a=parts[0][0],
        b=parts[1][0],
        scale_a=scales[0],
        scale_b=scales[1],
        output=output,
    )
    items.append(node)
    return result
