# SPDX-License-Identifier: Apache-2.0
"""The command words and the regions of an instruction, as they follow from the decoder's output.

A part is a field of the decoder's output, given by its path, such as `activate.walk.start.line`. A
command word, which the sequenced decoder writes, is a name and the parts that the word consists of,
the lowest first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amaranth.hdl import Shape
from amaranth.lib import data

from systola.arch.config import Config
from systola.arch.isa import BY_OPCODE, Opcode, Operation
from systola.hdl.commands import (
    MeasureLayout,
    Other,
    line_bits,
    parameter_space,
    table_space,
)
from systola.hdl.control.decoded import Decoded
from systola.hdl.control.step_row import TWO_LINES
from systola.verif.units.control.decoder_words import LINKS
from systola.verif.units.control.instruction_reader import COPIES, TRAINING

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
_OF_PAIRS = ("activate.walk.start.line", "activate.operand")
"""Parts with the first line of an operand that may be read two lines at a time."""
_COLUMNS = {
    "left": "walk.start.x",
    "width": "width",
    "kernel_width": "walk.count.kx",
}
"""Parts of a window, by the name of their word, that have no meaning for packed channels."""


@dataclass(frozen=True)
class Skipped:
    """A number of bits in a command word that are not compared with the decoder's output."""

    width: int


Part = str | tuple[str, int] | Skipped
"""A part of the decoder's output, given by its path, or skipped bits of a word.

A pair is a path and a number of bits: the word has only the lowest bits of this part.
"""
Word = str | tuple[Part, ...]

_FUNCTION = (
    *("activate.function", ("activate.table", 4), "activate.rounding"),
    *("activate.wide", "activate.accumulate"),
)
_FLAGS: Mapping[Opcode, tuple[int, tuple[Part, ...]]] = {
    Opcode.MATRIX_MULTIPLY: (
        17,
        ("matrix.accumulate", "matrix.wide_vectors", "matrix.wide_weights"),
    ),
    Opcode.CONVOLVE: (14, ("matrix.accumulate",)),
    Opcode.ACTIVATE: (17, _FUNCTION),
    Opcode.DEPTHWISE: (14, ("activate.rounding", ("activate.function", 2))),
    Opcode.POOL: (14, ("activate.rounding",)),
    Opcode.VECTOR: (17, _FUNCTION),
    Opcode.SEND: (14, ("side", "link.sums")),
    Opcode.RECEIVE: (11, ("side",)),
    Opcode.REDUCE: (11, ("side", "link.adds")),
}
"""For each instruction: number of skipped bits in the word `flags`, and the parts above them."""


class Shown:
    """An instruction as the decoder shows it; its parts are read by name as unsigned numbers."""

    def __init__(self, config: Config, bits: int):
        self._config = config
        self._layout = Decoded(config=config)
        self._bits = bits

    def part(self, path: str) -> tuple[int, int]:
        """Return the value and the number of bits of a part of the decoder's output."""
        layout: data.Layout = self._layout
        offset, shape = 0, Shape(0)
        if path.startswith("measured."):
            # The decoder shows the numbers of a Measure as `multiplier_b`.
            at = MeasureLayout()[path.removeprefix("measured.")]
            number = self.value("activate.scale.multiplier_b")
            width = Shape.cast(at.shape).width
            return number >> at.offset & ((1 << width) - 1), width
        for name in path.split("."):
            field = layout[name]
            offset += field.offset
            shape = Shape.cast(field.shape)
            if isinstance(field.shape, data.Layout):
                layout = field.shape
        number = self._bits >> offset & ((1 << shape.width) - 1)
        if path in _OF_PAIRS and self._is("activate.paired"):
            # The decoder shows the second line of a pair; words have the first line, which is even.
            number &= ~self.value("activate.wide_operands")
        return number, shape.width

    def value(self, path: str) -> int:
        """Return the value of a part of the decoder's output."""
        return self.part(path)[0]

    def word(self, parts: Word) -> tuple[int, int]:
        """Return the expected bits of a command word, and a mask of the bits that are known."""
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
        """Return the parts of each word of the instruction's command.

        The words of its window or scale are among them.
        """
        flags = {"flags": self._flags(opcode)} if opcode in _FLAGS else {}
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
            results = dict(_RESULTS)
            if self._is_partition():
                del results["destination"]  # a partition writes no line
            return {**flags, **results, **_BOUNDS, **self._activate(opcode)}
        if opcode in TRAINING:
            return self._training(opcode)
        if opcode in LINKS:
            return {**flags, "place": "link.place", "link_rows": "link.rows"}
        if opcode is Opcode.INTERRUPT_HOST:
            return {"code": "code"}
        return {"code": "code", "units": "units"} if opcode is Opcode.DEBUG_TAG else {}

    def _flags(self, opcode: Opcode) -> tuple[Part, ...]:
        """Return the parts of the word `flags`.

        Some parts are skipped because the command differs from the instruction's field. With random
        numbers this is the rounding; with a quotient or a table of int32 it is the function. For a
        partition the flag `accumulate` is skipped, too.
        """
        skipped = {"activate.rounding": 1} if self._is("activate.stochastic") else {}
        if self._gathers() or self._is("activate.quotient"):
            skipped |= {"activate.function": 3}
        if self._is_partition():
            skipped |= {"activate.accumulate": 1}
        place, parts = _FLAGS[opcode]
        more: tuple[Part, ...] = ()
        if opcode is Opcode.VECTOR:
            exponent: Part = ("activate.exponent", 2) if self._config.training else Skipped(2)
            # If a line is subtracted from all vectors, the command of an ADD is a copy.
            operation: Part = Skipped(2) if self._is_relative() else "activate.operation"
            more = (exponent, "activate.wide_operands", operation)
        elif self._config.training and opcode is Opcode.ACTIVATE:
            more = ("activate.exponent", "activate.stochastic")
        elif self._config.training and opcode is Opcode.MATRIX_MULTIPLY:
            more = ("from_buffer",)
        if opcode in (Opcode.ACTIVATE, Opcode.VECTOR):
            parts = tuple(
                Skipped(skipped[part]) if isinstance(part, str) and part in skipped else part
                for part in parts
            )
        return (Skipped(place), *parts, *more)

    def _is(self, path: str) -> bool:
        """Return whether the flag `path`, which exists for training alone, is set."""
        return self._config.training and bool(self.value(path))

    def _training(self, opcode: Opcode) -> Mapping[str, Word]:
        """Return the parts of each word of an instruction that exists for training alone."""
        if opcode is Opcode.MEASURE:
            names = ("exponent", "bits", "first", "second", "third", "value")
            about = {"measured": tuple(f"measured.{name}" for name in names)}
            command = {"vector_rows": "walk.count.ox", TWO_LINES: "wide_operands"}
            if self.value("activate.table") == Other.MEASURE:
                lines = self.value("activate.wide_operands")
                place = ("start_line", "walk.start.line") if lines else ("accumulator",) * 2
                command |= dict([place])
        elif opcode is Opcode.TRANSPOSE:
            about = {}
            command = {"n_tiles": "walk.count.block", "tile_step": "walk.step.block.line"}
            command |= {"operand": "operand", "destination": "destination"}
        else:
            about = {"counter": ("activate.scale.multiplier_b", ("activate.scale.shift_b", 1))}
            command = {"vector_rows": "walk.count.ox", "destination": "destination"}
            command |= {"seed": "scale.multiplier_a"}
        return {**about, **{word: f"activate.{path}" for word, path in command.items()}}

    def _gathers(self) -> bool:
        """Return whether the sums of a Vector come from a table of int32."""
        return self._config.attention and bool(self.value("activate.gathers"))

    def _is_relative(self) -> bool:
        """Return whether a Vector subtracts one line from all vectors before it looks them up."""
        return self._config.attention and bool(self.value("activate.relative"))

    def _is_partition(self) -> bool:
        """Return whether a Vector makes a parameter entry of the sum of all vectors."""
        return self._config.attention and bool(self.value("activate.partition"))

    def _matrix(self, opcode: Opcode) -> Mapping[str, Word]:
        found = {"tiles": "tiles"}
        if opcode is Opcode.MATRIX_MULTIPLY and self._is("from_buffer"):
            line = ("weight_transfer.address", line_bits(self._config))
            found |= {"weight_address": (line,), "weight_beats": "weight_transfer.beats"}
        command = {
            "start_line": "walk.start.line",
            "accumulator": "accumulator",
            "n_tiles": "walk.count.n",
        }
        if opcode is Opcode.MATRIX_MULTIPLY:
            command |= {"matrix_rows": "walk.count.oy", "k_tiles": "walk.count.kx"}
            command |= {TWO_LINES: "wide_vectors"} if self._config.wide else {}
        else:
            command |= {**_WINDOW, "plane": "walk.step.block.line", "k_tiles": "walk.count.block"}
            command |= {"fill": "fill"}
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
            command |= {"zero_point": "zero_point"}
            return {word: f"activate.{path}" for word, path in command.items()}
        command = {"start_line": "walk.start.line"}
        lasting: Mapping[str, Word] = {"moves": _moves("activate", packed=False)}
        if opcode is Opcode.VECTOR:
            lasting = _SCALE
            command |= {TWO_LINES: "wide_operands"} if self._config.wide else {}
            level = "kx" if self._is_partition() else "ox"
            command |= {"vector_rows": f"walk.count.{level}", "table": "table"}
            if self.value("activate.operation") != Operation.COPY or self._is_relative():
                command |= {"operand": "operand"}
        else:
            command |= {**_WINDOW, **_COLUMNS, "n_tiles": "walk.count.block"}
            command |= {"map_lines": "walk.step.block.line"}
            if opcode is Opcode.DEPTHWISE:
                command |= {"operand": "operand", "taps": "taps"}
        fill: tuple[Part, ...] = ("activate.fill",) if opcode is Opcode.DEPTHWISE else ()
        lasting = {**lasting, "zero_point": ("activate.zero_point", *fill)}
        return {**lasting, **{word: f"activate.{path}" for word, path in command.items()}}

    def regions(self, opcode: Opcode) -> dict[str, tuple[int, int]]:
        """Return base and end of each region, by the name of the region's cells in the decoder."""
        found = {
            cell: (self.value(f"{name}.base"), self.value(f"{name}.end"))
            for cell, name in _regions(opcode, training=self._config.training).items()
        }
        loads = {Opcode.LOAD_PARAMETERS: parameter_space, Opcode.LOAD_TABLE: table_space}
        spaces = {"entries": parameter_space(self._config), "table": table_space(self._config)}
        if opcode in loads:
            spaces["result"] = loads[opcode](self._config)
        if self._is_partition():
            del found["result"]  # the sequenced decoder has an empty region of lines
        return {
            cell: (base - spaces.get(cell, 0), end - spaces.get(cell, 0))
            for cell, (base, end) in found.items()
        }


def _moves(unit: str, *, packed: bool) -> tuple[Part, ...]:
    """Return the parts of the word `moves`: strides, dilations and `top` of Set_Config_Window."""
    steps = (("oy.y", "stride_y"), ("ox.x", "stride_x"), ("ky.y", "dilation_y"))
    steps += (("kx.x", "dilation_x"),)
    fields = BY_OPCODE[Opcode.SET_CONFIG_WINDOW]
    parts: list[Part] = []
    for path, name in steps:
        width = fields.field(name).width
        skipped = packed and name == "stride_x"
        parts.append(Skipped(width) if skipped else (f"{unit}.walk.step.{path}", width))
    return (*parts, (f"{unit}.walk.start.y", fields.field("top").width))


_OTHERS: Mapping[Opcode, Mapping[str, str]] = {
    Opcode.MEASURE: {"sums": "accumulator", "source": "source"},
    Opcode.TRANSPOSE: {"source": "source", "result": "buffer"},
    Opcode.RANDOM: {"result": "buffer"},
    Opcode.SEND: {"result": "buffer", "sums": "accumulator"},
    Opcode.RECEIVE: {"result": "buffer"},
    Opcode.REDUCE: {"sums": "accumulator"},
}
"""The regions of instructions that exist for training or for links alone."""


def _regions(opcode: Opcode, *, training: bool) -> Mapping[str, str]:
    if opcode in (*COPIES, *LOADS):
        return {"result": "buffer", "host": "host"}
    if opcode in (Opcode.MATRIX_MULTIPLY, Opcode.CONVOLVE):
        weights = training and opcode is Opcode.MATRIX_MULTIPLY
        return {"result": "buffer", "sums": "accumulator"} | (
            {"source": "source"} if weights else {}
        )
    if opcode in (*TRAINING, *LINKS):
        return _OTHERS[opcode]
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
"""The words that a Set_Config_Window or Set_Config_Scale has written for later instructions."""
