# SPDX-License-Identifier: Apache-2.0
"""The meaningful fields of a command, to compare commands that are made in two ways.

One command is assembled from the words in a command memory, the other one comes from the decoder.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from systola.arch.config import Config
from systola.arch.isa import Opcode, Operation
from systola.hdl.commands import OTHER, Kind, Other, Source, line_bits
from systola.verif.units.control.instruction_reader import TRAINING
from systola.verif.units.control.step_words import LOADS
from systola.verif.units.packing import Fields

_OF_VECTOR = ("multiplier_a", "shift_a", "multiplier_b", "shift_b", "zero_a", "zero_b")
_OF_MAPS = ("height", "width", "fill")


def fields_of(command: Fields) -> dict[str, Any]:
    """Return all fields of a command in one flat dict, by their paths."""
    return dict(_leaves(command))


def shown_command(config: Config, queue: str, opcode: Opcode, decoded: Fields) -> dict[str, Any]:
    """Return the fields that a queue's command must have, according to the decoder's output."""
    if queue in ("matrix", "activate"):
        return fields_of(decoded[queue])
    if queue == "host_reads":
        return fields_of(decoded.transfer)
    found = {"pc": decoded.pc}
    tail = {f"tail.{name}": value for name, value in _leaves(decoded.tail)}
    if queue == "host_read":
        kinds = {Opcode.LOAD_PARAMETERS: Kind.PARAMETERS, Opcode.LOAD_TABLE: Kind.TABLE}
        found["kind"] = kinds.get(opcode, Kind.BUFFER)
        return found | {"destination": decoded.buffer.base, "last": decoded.buffer.end - 1} | tail
    if queue == "host_writes":
        transfer = {f"transfer.{name}": value for name, value in _leaves(decoded.transfer)}
        region = {f"buffer.{name}": value for name, value in _leaves(decoded.buffer)}
        return found | transfer | region | tail
    found |= {f"transfer.{name}": value for name, value in _leaves(decoded.weight_transfer)}
    if opcode is Opcode.MATRIX_MULTIPLY:
        # Weights from the buffer have a line in place of the address in the weight window. A line
        # has fewer bits, and the other bits of the address mean nothing.
        found["transfer.address"] &= (1 << line_bits(config)) - 1
    if "from_buffer" in decoded.names():
        found |= {"from_buffer": decoded.from_buffer, "wide": decoded.matrix.wide_weights}
    return found


def meaningful(queue: str, opcode: Opcode, command: Mapping[str, Any]) -> dict[str, Any]:
    """Return only those fields of a command that its unit uses."""
    rules = {"matrix": _unused_by_matrix, "activate": partial(_unused, opcode)}
    unused = rules[queue](command) if queue in rules else _unused_by_transfer(opcode)
    return {
        path: value
        for path, value in command.items()
        if not any(path == each or path.startswith(f"{each}.") for each in unused)
    }


def _leaves(fields: Fields, path: str = "") -> Iterator[tuple[str, Any]]:
    for name in fields.names():
        value = fields[name]
        if isinstance(value, Fields):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _unused_by_transfer(opcode: Opcode) -> set[str]:
    """Return the paths of fields that mean nothing in a command to load parameters or tables."""
    return {"stride", "tail"} if opcode in LOADS else set()


def _still(command: Mapping[str, Any]) -> set[str]:
    """Return the paths of step fields of a walk's levels that have a single iteration.

    Such a step is never made, so the field means nothing.
    """
    single = "walk.single."
    levels = (
        path.removeprefix(single) for path, value in command.items() if value and single in path
    )
    return {f"walk.step.{level}" for level in levels}


def _coordinates(command: Mapping[str, Any]) -> set[str]:
    """Return the paths of a walk's row and column fields, of use in feature maps only."""
    return {path for path in command if path.startswith("walk.st") and path.endswith((".x", ".y"))}


def _unused_by_matrix(command: Mapping[str, Any]) -> set[str]:
    unused = _still(command)
    if not command["bounded"]:
        unused |= {*_OF_MAPS, *_coordinates(command)}
    if not command["packed"]:
        unused |= {"byte", "byte_step"}
    return unused


def _unused(opcode: Opcode, command: Mapping[str, Any]) -> set[str]:
    unused = _still(command)
    over_map = command["source"] in (Source.DEPTHWISE, Source.POOL) and command["function"] != OTHER
    if not over_map:
        unused |= {*_OF_MAPS, *_coordinates(command)}
    if opcode is not Opcode.DEPTHWISE:
        unused.add("fill")
    if command["source"] == Source.ACCUMULATORS:
        unused |= {"walk.start", "walk.step"}
    else:
        unused.add("accumulator")
    reads_operand = opcode in (Opcode.DEPTHWISE, Opcode.TRANSPOSE) or (
        opcode is Opcode.VECTOR
        and (command["operation"] != Operation.COPY or command.get("relative"))
    )
    if not reads_operand:
        unused.add("operand")
    if command.get("partition"):
        unused |= {"destination", "paired"}
    if opcode is not Opcode.VECTOR:
        used = {Opcode.MEASURE: ("multiplier_b",)}
        used[Opcode.RANDOM] = ("multiplier_a", "multiplier_b", "shift_b")
        unused |= {f"scale.{name}" for name in _OF_VECTOR if name not in used.get(opcode, ())}
    if opcode in TRAINING:
        unused |= {"parameter", "zero_point", "low", "high"}
        if opcode is Opcode.MEASURE:
            unused.add("destination")
        if command["table"] in (Other.SUM, Other.RANDOM):
            unused |= {"walk.start", "walk.step"}
        if opcode is Opcode.TRANSPOSE:
            unused.add("walk.start")
    return unused
