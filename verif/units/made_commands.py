# SPDX-License-Identifier: Apache-2.0
"""The fields of a command that mean something, to compare commands that are made in two ways."""

from collections.abc import Iterator
from typing import Any

from systola.arch.isa import Opcode, Operation
from systola.hdl.commands import OTHER, Other, Source
from systola.verif.units.decoder_model import TRAINING
from systola.verif.units.packing import Fields

_OF_VECTOR = ("multiplier_a", "shift_a", "multiplier_b", "shift_b", "zero_a", "zero_b")
_OF_MAPS = ("height", "width", "fill")


def meaningful(opcode: Opcode, command: Fields) -> dict[str, Any]:
    """Return the fields of a command that its unit uses, by their paths."""
    unused = _unused_by_matrix(command) if opcode in _MATRIX else _unused(opcode, command)
    return {
        path: value
        for path, value in _leaves(command)
        if not any(path == each or path.startswith(f"{each}.") for each in unused)
    }


_MATRIX = (Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE)


def _leaves(fields: Fields, path: str = "") -> Iterator[tuple[str, Any]]:
    for name in fields.names():
        value = fields[name]
        if isinstance(value, Fields):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _still(command: Fields) -> set[str]:
    """Return the steps of levels with a single iteration, which are never made."""
    return {
        f"walk.step.{level}" for level in command.walk.count.names() if command.walk.single[level]
    }


def _coordinates(command: Fields) -> set[str]:
    """Return the places and steps of rows and columns, which have a meaning in feature maps."""
    steps = {f"walk.step.{level}.{each}" for level in command.walk.step.names() for each in "xy"}
    return {*steps, "walk.start.x", "walk.start.y"}


def _unused_by_matrix(command: Fields) -> set[str]:
    unused = _still(command)
    if not command.bounded:
        unused |= {*_OF_MAPS, *_coordinates(command)}
    if not command.packed:
        unused |= {"byte", "byte_step"}
    return unused


def _unused(opcode: Opcode, command: Fields) -> set[str]:
    unused = _still(command)
    over_map = command.source in (Source.DEPTHWISE, Source.POOL) and command.function != OTHER
    if not over_map:
        unused |= {*_OF_MAPS, *_coordinates(command)}
    if opcode is not Opcode.DEPTHWISE:
        unused.add("fill")
    if command.source == Source.ACCUMULATORS:
        unused |= {"walk.start", "walk.step"}
    else:
        unused.add("accumulator")
    reads_operand = opcode in (Opcode.DEPTHWISE, Opcode.TRANSPOSE) or (
        opcode is Opcode.VECTOR and command.operation != Operation.COPY
    )
    if not reads_operand:
        unused.add("operand")
    if opcode is not Opcode.VECTOR:
        used = {Opcode.MEASURE: ("multiplier_b",)}
        used[Opcode.RANDOM] = ("multiplier_a", "multiplier_b", "shift_b")
        unused |= {f"scale.{name}" for name in _OF_VECTOR if name not in used.get(opcode, ())}
    if opcode in TRAINING:
        unused |= {"parameter", "zero_point", "low", "high"}
        if opcode is Opcode.MEASURE:
            unused.add("destination")
        if command.table in (Other.SUM, Other.RANDOM):
            unused |= {"walk.start", "walk.step"}
        if opcode is Opcode.TRANSPOSE:
            unused.add("walk.start")
    return unused
