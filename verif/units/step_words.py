# SPDX-License-Identifier: Apache-2.0
"""The words of commands and the regions that follow from a decoded instruction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amaranth.hdl import Shape
from amaranth.lib import data

from systola.arch.config import Config
from systola.arch.isa import BY_OPCODE, Opcode, Operation
from systola.hdl.commands import parameter_space, table_space
from systola.hdl.control.decoded import Decoded
from systola.verif.units.decoder_model import COPIES

LOADS = (Opcode.LOAD_PARAMETERS, Opcode.LOAD_TABLE)
_RUN = {"address": "transfer.address", "beats": "transfer.beats"}
_TRANSFER = {**_RUN, "rows": "transfer.rows", "blocks": "transfer.blocks"}
_RESULTS = {"destination": "activate.destination", "parameter": "activate.parameter"}
_BOUNDS = {"low": "activate.low", "high": "activate.high"}
_SCALE = {
    "scale_a": ("activate.scale.multiplier_a", "activate.scale.shift_a"),
    "scale_b": ("activate.scale.multiplier_b", "activate.scale.shift_b"),
    "zeros": ("activate.scale.zero_a", "activate.scale.zero_b"),
}
_WINDOW = {
    "tap_step": "walk.step.ky.line",
    "row_step": "walk.step.oy.line",
    "height": "height",
    "kernel_height": "walk.count.ky",
    "out_width": "walk.count.ox",
    "out_height": "walk.count.oy",
}
_COLUMNS = {
    "left": "walk.start.x",
    "width": "width",
    "kernel_width": "walk.count.kx",
}
"""Numbers of a window that packed channels do not have."""


@dataclass(frozen=True)
class Skipped:
    """Bits of a word that no part of a command has as they stand."""

    width: int


Part = str | tuple[str, int] | Skipped
"""A part of Decoded, with its width in the word where the part is longer."""
Word = str | tuple[Part, ...]

_FLAGS: Mapping[Opcode, tuple[Part, ...]] = {
    Opcode.MATRIX_MULTIPLY: ("matrix.accumulate", "matrix.wide_vectors", "matrix.wide_weights"),
    Opcode.CONVOLVE: ("matrix.accumulate", Skipped(8), "matrix.fill"),
    Opcode.ACTIVATE: (
        *("activate.function", "activate.rounding", "activate.zero_point", Skipped(8)),
        *("activate.table", "activate.wide", "activate.accumulate"),
    ),
    Opcode.DEPTHWISE: (
        *(("activate.function", 2), "activate.rounding", "activate.zero_point", Skipped(8)),
        "activate.fill",
    ),
    Opcode.POOL: ("activate.rounding", "activate.zero_point"),
    Opcode.VECTOR: (
        *("activate.function", "activate.rounding", "activate.zero_point", "activate.table"),
        *("activate.wide_operands", "activate.wide", "activate.accumulate"),
    ),
}


class Shown:
    """An instruction as the decoder shows it, by the names of parts, as unsigned numbers."""

    def __init__(self, config: Config, bits: int):
        self._config = config
        self._layout = Decoded(config=config)
        self._bits = bits

    def part(self, path: str) -> tuple[int, int]:
        """Return the bits of a part and their number."""
        layout: data.Layout = self._layout
        offset, shape = 0, Shape(0)
        for name in path.split("."):
            field = layout[name]
            offset += field.offset
            shape = Shape.cast(field.shape)
            if isinstance(field.shape, data.Layout):
                layout = field.shape
        return self._bits >> offset & ((1 << shape.width) - 1), shape.width

    def value(self, path: str) -> int:
        """Return the bits of a part."""
        return self.part(path)[0]

    def word(self, parts: Word) -> tuple[int, int]:
        """Return the bits of a command word, and a mask of those that are known."""
        number, known, at = 0, 0, 0
        for part in (parts,) if isinstance(parts, str) else parts:
            if isinstance(part, Skipped):
                at += part.width
                continue
            path, width = part if isinstance(part, tuple) else (part, self.part(part)[1])
            mask = (1 << width) - 1
            number |= (self.value(path) & mask) << at
            known |= mask << at
            at += width
        return number, known

    def words(self, opcode: Opcode) -> Mapping[str, Word]:
        """Return the parts of each word of the instruction's command. Words of its window or scale
        are among them."""
        flags = {"flags": _FLAGS[opcode]} if opcode in _FLAGS else {}
        if opcode is Opcode.VECTOR and self._gathers():
            flags = {"flags": (Skipped(3), *_FLAGS[opcode][1:])}
        if opcode in LOADS:
            return _RUN
        if opcode in COPIES:
            tail = {f"tail_{name}": f"tail.{name}" for name in ("line", "every", "bytes")}
            return {**_TRANSFER, **tail, "stride": "transfer.stride"}
        if opcode is Opcode.READ_WEIGHTS:
            parts = {f"weight_{name}": f"weight_transfer.{name}" for name in ("address", "beats")}
            return {**parts, "tiles": "tiles"}
        if opcode in (Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE):
            return {**flags, **self._matrix(opcode)}
        if opcode in (Opcode.ACTIVATE, Opcode.DEPTHWISE, Opcode.POOL, Opcode.VECTOR):
            return {**flags, **_RESULTS, **_BOUNDS, **self._activate(opcode)}
        if opcode is Opcode.INTERRUPT_HOST:
            return {"code": "code"}
        return {"code": "code", "units": "units"} if opcode is Opcode.DEBUG_TAG else {}

    def _gathers(self) -> bool:
        """Return whether the sums of Vector come from a table of int32."""
        return self._config.attention and bool(self.value("activate.gathers"))

    def _matrix(self, opcode: Opcode) -> Mapping[str, Word]:
        found = {"tiles": "tiles"}
        command = {
            "start_line": "walk.start.line",
            "accumulator": "accumulator",
            "n_tiles": "walk.count.n",
        }
        if opcode is Opcode.MATRIX_MULTIPLY:
            command |= {"matrix_rows": "walk.count.oy", "k_tiles": "walk.count.kx"}
        else:
            command |= {**_WINDOW, "plane": "walk.step.block.line", "k_tiles": "walk.count.block"}
            if self.value("matrix.packed"):
                command |= {"start_byte": "walk.start.x", "row_bytes": "width"}
                command |= {"byte": "byte", "byte_step": "byte_step"}
            else:
                command |= _COLUMNS
        moves = {"moves": _moves("matrix", packed=bool(self.value("matrix.packed")))}
        if opcode is Opcode.MATRIX_MULTIPLY:
            moves = {}
        return {**found, **moves, **{word: f"matrix.{path}" for word, path in command.items()}}

    def _activate(self, opcode: Opcode) -> Mapping[str, Word]:
        if opcode is Opcode.ACTIVATE:
            command = {"accumulator": "accumulator", "table": "table"}
            command |= {"vector_rows": "walk.count.ox", "n_tiles": "walk.count.block"}
            return {word: f"activate.{path}" for word, path in command.items()}
        command = {"start_line": "walk.start.line"}
        lasting: Mapping[str, Word] = {"moves": _moves("activate", packed=False)}
        if opcode is Opcode.VECTOR:
            lasting = _SCALE
            command |= {"vector_rows": "walk.count.ox", "table": "table", "operation": "operation"}
            if self.value("activate.operation") != Operation.COPY:
                command |= {"operand": "operand"}
        else:
            command |= {**_WINDOW, **_COLUMNS, "n_tiles": "walk.count.block"}
            command |= {"map_lines": "walk.step.block.line"}
            if opcode is Opcode.DEPTHWISE:
                command |= {"operand": "operand", "taps": "taps"}
        return {**lasting, **{word: f"activate.{path}" for word, path in command.items()}}

    def regions(self, opcode: Opcode) -> dict[str, tuple[int, int]]:
        """Return base and end of the regions of an instruction, by the names of their cells."""
        found = {
            cell: (self.value(f"{name}.base"), self.value(f"{name}.end"))
            for cell, name in _regions(opcode).items()
        }
        loads = {Opcode.LOAD_PARAMETERS: parameter_space, Opcode.LOAD_TABLE: table_space}
        spaces = {"entries": parameter_space(self._config), "table": table_space(self._config)}
        if opcode in loads:
            spaces["result"] = loads[opcode](self._config)
        return {
            cell: (base - spaces.get(cell, 0), end - spaces.get(cell, 0))
            for cell, (base, end) in found.items()
        }


def _moves(unit: str, *, packed: bool) -> tuple[Part, ...]:
    """Return the fields of a window that say how far one step goes, as they stand in its word."""
    steps = (("oy.y", "stride_y"), ("ox.x", "stride_x"), ("ky.y", "dilation_y"))
    steps += (("kx.x", "dilation_x"),)
    fields = BY_OPCODE[Opcode.SET_CONFIG_WINDOW]
    parts: list[Part] = []
    for path, name in steps:
        width = fields.field(name).width
        skipped = packed and name == "stride_x"
        parts.append(Skipped(width) if skipped else (f"{unit}.walk.step.{path}", width))
    return (*parts, (f"{unit}.walk.start.y", fields.field("top").width))


def _regions(opcode: Opcode) -> Mapping[str, str]:
    if opcode in (*COPIES, *LOADS):
        return {"result": "buffer", "host": "host"}
    if opcode in (Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE):
        return {"result": "buffer", "sums": "accumulator"}
    results = {"result": "buffer", "entries": "parameters"}
    if opcode is Opcode.ACTIVATE:
        return {**results, "sums": "accumulator", "table": "table"}
    if opcode is Opcode.VECTOR:
        return {**results, "source": "source", "operand": "operand", "table": "table"}
    if opcode is Opcode.DEPTHWISE:
        return {**results, "source": "source", "operand": "operand"}
    return {**results, "source": "source"} if opcode is Opcode.POOL else {}


PERSISTENT = (
    *_WINDOW,
    *_COLUMNS,
    *_SCALE,
    *("map_lines", "taps", "moves"),
)
"""Words that instructions find, as a Set_Config_Window or Set_Config_Scale has written them."""
