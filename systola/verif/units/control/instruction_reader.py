# SPDX-License-Identifier: Apache-2.0
"""A reader of instruction words, made of the golden model: faults, regions, and settings."""

from __future__ import annotations

import numpy as np

from systola.arch.built_for import machine_operands
from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    INSTRUCTION_BYTES,
    LINK_OPCODES,
    Fault,
    Opcode,
    decode,
    reserved_bits,
)
from systola.golden import ranges
from systola.golden.checks import Checks
from systola.golden.legality import fields_legal
from systola.golden.window import UNSET, Window

COPIES_IN = (Opcode.READ_HOST_MEMORY, Opcode.READ_HOST_MEMORY_ALTERNATE)
COPIES_OUT = (Opcode.WRITE_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY_ALTERNATE)
COPIES = (*COPIES_IN, *COPIES_OUT)
ALTERNATE = (Opcode.READ_HOST_MEMORY_ALTERNATE, Opcode.WRITE_HOST_MEMORY_ALTERNATE)
TRAINING = (Opcode.MEASURE, Opcode.TRANSPOSE, Opcode.RANDOM)
WINDOWED = (Opcode.CONVOLVE, Opcode.DEPTHWISE, Opcode.POOL)
SETTINGS = (Opcode.SET_CONFIG_WINDOW, Opcode.SET_CONFIG_SCALE)
NO_SCALE = {field.name: 0 for field in BY_OPCODE[Opcode.SET_CONFIG_SCALE].fields}
WEIGHT_QUEUE = (Fault.WEIGHT_UNDERFLOW, Fault.WEIGHT_OVERFLOW)
"""The checks that a Reader leaves out, as it executes no instructions."""

Fields = dict[str, int]
Region = tuple[int, int]


def word(opcode: Opcode, operands: Fields) -> int:
    """Return an instruction word with any values of these operands; others have their default, or
    0.
    """
    value = int(opcode)
    entry = BY_OPCODE[opcode]
    for field in entry.fields:
        bits = field.stored(operands.get(field.name, field.default or 0))
        value |= bits << entry.offset(field.name)
    return value


def bytes_of(bits: int) -> bytes:
    """Return the bytes of an instruction word that is given as a number."""
    return bits.to_bytes(INSTRUCTION_BYTES, "little")


def has_reserved_bits(opcode: Opcode, bits: int) -> bool:
    """Return whether bits that belong to no field are set in an instruction word."""
    return bool(reserved_bits(BY_OPCODE[opcode], bytes_of(bits)))


def operands_of(bits: int) -> Fields:
    """Return the fields of a legal instruction word, by name."""
    decoded = decode(bytes_of(bits))
    assert decoded is not None
    return decoded[1]


class Reader(Checks):
    """A reader of a program's words in order, which knows the window and the scale at each word.

    Operands in the words are effective, with index registers added. `limit` is the size of the host
    window in bytes, `tiles` the size of the weight window in tiles.
    """

    def __init__(self, config: Config, *, limit: int, tiles: int):
        super().__init__(config)
        self.limit = limit
        self.tiles = tiles
        self.window: Fields | None = None
        self.scale: Fields = dict(NO_SCALE)
        # Only the sizes of host and weight window matter, so all bytes may share one place.
        self._host = np.broadcast_to(np.uint8(0), limit)
        self._tiles = np.broadcast_to(self._tiles.dtype.type(0), (tiles, *self._tiles.shape[1:]))

    def execute(self, bits: int) -> None:
        """Store the fields of a Set_Config_Window or Set_Config_Scale; ignore others."""
        if bits & 0xFF == Opcode.SET_CONFIG_WINDOW:
            self.window = operands_of(bits)
            self._window = Window(**self.window)
        if bits & 0xFF == Opcode.SET_CONFIG_SCALE:
            self.scale = operands_of(bits)

    def machine(self) -> Fields:
        """Return the fields of the Require_Machine that this machine accepts."""
        return machine_operands(self.config)

    def pitch(self, opcode: Opcode) -> int:
        """Return the number of bytes of host memory from one vector of a copy to the next."""
        return self.config.output_pitch if opcode in COPIES_OUT else self.config.input_pitch

    def sizes(self) -> tuple[int, int, int]:
        """Return three sizes of the present window: lines of the map, windows, and taps of a
        window.
        """
        assert self._window is not UNSET
        return self._window.map_lines, self._window.windows, self._window.taps

    def regions(self, opcode: Opcode, f: Fields) -> dict[str, Region]:
        """Return base and end of each region that an instruction uses, by name.

        The activation unit reads `source` and `operand`, and a MatrixMultiply reads weights from
        `source`; `buffer` is any other lines.
        """
        checks, window = BY_OPCODE[opcode].checks, self._window
        found: dict[str, range] = {}
        if Fault.BUFFER_RANGE in checks:
            lines = ranges.buffer_lines(opcode, f, window, self.config.rows)
            if opcode == Opcode.MATRIX_MULTIPLY:
                names = ("buffer", "source")
            elif opcode == Opcode.MEASURE:
                names = ("source",)
            else:
                names = (*("source", "operand")[: len(lines) - 1], "buffer")
            found |= zip(names, lines, strict=False)
            if opcode == Opcode.VECTOR and ranges.is_partition(f["accumulate"], f["wide"]):
                del found["buffer"]  # it writes no line
        if Fault.ACCUMULATOR_RANGE in checks and ranges.uses_accumulators(opcode, f):
            found["accumulator"] = ranges.accumulator_rows(opcode, f, window)
        if Fault.PARAMETER_RANGE in checks:
            found["parameter"] = ranges.parameter_entries(opcode, f, window)
        if Fault.TABLE_RANGE in checks and (tables := ranges.tables(opcode, f)):
            found["table"] = tables
        if Fault.HOST_WINDOW in checks:
            found["host"] = ranges.host_bytes(opcode, f, self.config)
        if Fault.WEIGHT_WINDOW in checks:
            found["tile"] = range(f["tile"], f["tile"] + f["count"])
        return {name: (region.start, region.stop) for name, region in found.items()}

    def consumed(self, opcode: Opcode, f: Fields) -> int:
        """Return the number of weight tiles that a MatrixMultiply or Convolve consumes."""
        return ranges.tiles_consumed(opcode, f, self._window)

    def fault(self, bits: int, *, error: int = 0, loops: int | None = None) -> tuple[Fault, int]:
        """Return cause and address of the fault of an instruction word; NONE and 0 if it is legal.

        If check LOOP fails for the word, `loops` is the number of open loops.
        """
        if error:
            return Fault.FETCH_ERROR, 0
        number = bits & 0xFF
        if number in LINK_OPCODES and not self.config.links:
            return Fault.UNAVAILABLE, number
        decoded = decode(bytes_of(bits))
        if decoded is None:
            return Fault.ILLEGAL_OPCODE, number
        entry, operands = decoded
        if not fields_legal(self.config, entry, operands, bytes_of(bits)):
            return Fault.ILLEGAL_FIELD, 0
        for cause in entry.checks:
            if cause in WEIGHT_QUEUE:
                continue
            is_loop = cause == Fault.LOOP
            address = loops if is_loop else self._failed(cause, entry.opcode, operands)
            if address is not None:
                return cause, address
        return Fault.NONE, 0
