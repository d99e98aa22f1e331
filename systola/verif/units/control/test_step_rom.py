# SPDX-License-Identifier: Apache-2.0
"""The test of the step ROM: its rows against the instruction set, and when cells are read.

A row is one step of an instruction: it adds a product to a base, and may check the sum or write it
to a cell of the scratch memory.
"""

import pytest

from systola.arch.config import SUFFIXES, ConfigError, preset
from systola.arch.features import has
from systola.arch.isa import (
    BY_OPCODE,
    DEPTHWISE_TAPS,
    Executor,
    Fault,
    Function,
    Memory,
    Opcode,
    Operation,
    Reduction,
    Source,
    instructions_of,
)
from systola.arch.isa.extents import extent
from systola.hdl.control.step_extents import terms
from systola.hdl.control.step_program import FLAGS
from systola.hdl.control.step_rom import (
    BASE_DISTANCE,
    FACTOR_DISTANCE,
    LIMIT_DISTANCE,
    StepRom,
    spaced,
)
from systola.hdl.control.step_row import (
    ZERO,
    Base,
    Bits,
    Loads,
    Row,
    RowLayout,
    Times,
    When,
)
from systola.verif.units.control.decoder_words import Writer
from systola.verif.units.control.instruction_reader import Reader, word
from systola.verif.units.unit import rng, small_config

CONFIG = small_config(
    buffer_lines=500,
    accumulator_rows=300,
    parameter_entries=40,
    tables=7,
    training=True,
    attention=True,
    links=True,
)
"""A machine that has all instructions."""
ROM = StepRom(CONFIG)
ENTRIES = instructions_of(links=True)
WINDOW = {
    **{"height": 4, "width": 5, "pitch": 6, "kernel_height": 3, "kernel_width": 2},
    **{"stride_y": 1, "stride_x": 1, "dilation_y": 1, "dilation_x": 1},
    **{"top": -1, "left": 0, "out_height": 2, "out_width": 4},
}
SIZES = {
    **{"R": CONFIG.rows, "C": CONFIG.cols},
    **{"P_in": CONFIG.input_pitch, "P_out": CONFIG.output_pitch},
    **{"map_lines": 24, "windows": 8, "kernel_taps": 6},
}
LATE = {
    *(Fault.LOOP, Fault.WEIGHT_OVERFLOW, Fault.WEIGHT_UNDERFLOW),
}
"""The faults that units other than the decoder find."""
LOADED = {
    Loads.ACTIVATE: {"function": 17, "flag_a": 25},
    Loads.VECTOR: {"function": 17, "flag_a": 25, "accumulate": 26, "flag_b": 29, "code": 30},
    Loads.MATRIX: {"flag_a": 18, "flag_b": 19, "from_buffer": 20},
    Loads.MAP: {"code": 15},
    Loads.MEASURE: {"code": 14},
    Loads.SEND: {"flag_a": 15},
}
"""For each kind of row that loads flags and codes, their bit offsets in the instruction word."""
BITS = {"function": 7, "code": 3}
BLOCK_RAM_BITS = 2 * 36
CELLS = {
    Memory.ACCUMULATORS: "sums",
    Memory.PARAMETERS: "entries",
    Memory.TABLES: "table",
    Memory.HOST: "host",
    Memory.WEIGHTS: "tile",
}


class Run:
    """An interpreter that carries out the rows of an instruction one after the other.

    Each row reads the values that earlier rows have written to the cells.
    """

    def __init__(self, bits):
        self.cells = {ZERO: 0, **{name: SIZES[name] for name in ("map_lines", "windows")}}
        self.cells |= {"kernel_taps": 6, "origin": 0, "top_line": 0, "packed_limit": 99}
        self.cells |= {name: WINDOW[name] for name in WINDOW}
        self.cells |= {"ceiling": 0, "limit": 0}
        self._bits = bits
        names = ("function", "flag_a", "accumulate", "flag_b", "from_buffer", "code")
        self._loaded = dict.fromkeys(names, 0)
        self._kept = self._sum = 0

    def step(self, row):
        """Carry out one row without its comparison with a limit, on which no region depends."""
        x = self._x(row.x)
        if row.keep:
            self._kept = x
        if not self._holds(row.when):
            return
        factor = {Times.ONE: 1, Times.MINUS_ONE: -1, Times.KEPT: self._kept}[row.times]
        base = 0
        if row.base is Base.SUM:
            base = self._sum
        elif isinstance(row.base, str):
            base = self._cell(row.base)
        self._sum = base + x * factor
        for name, place in LOADED.get(row.loads, {}).items():
            self._loaded[name] = self._bits >> place & BITS.get(name, 1)
        if row.into:
            self.cells[row.into] = self._sum

    def _x(self, x):
        if isinstance(x, str):
            return self._cell(x)
        value = self._bits >> x.offset & ((1 << x.width) - 1)
        return value - (1 << x.width) if x.signed and value >> x.width - 1 else value

    def _cell(self, name):
        return int(name[1:]) if name.startswith("=") else self.cells.get(name, 0)

    def _holds(self, when):
        flag_a, flag_b = self._loaded["flag_a"], self._loaded["flag_b"]
        once = self._loaded["function"] == Function.QUOTIENT
        once = once and self._loaded["code"] == Operation.ADD
        second = self._loaded["code"] != Operation.COPY and not once
        partition = once and self._loaded["accumulate"] and not flag_a
        return {
            When.ALWAYS: True,
            When.TABLE: self._loaded["function"] == Function.TABLE,
            When.FLAG_A: flag_a,
            When.FLAG_B: flag_b,
            When.SECOND: second,
            When.RELATIVE: once,
            When.WRITES_LINES: not partition,
            When.CURVE: self._loaded["function"] == Function.TABLE and flag_a,
            When.GATHERS: once
            or (self._loaded["function"] == Function.QUOTIENT and not self._loaded["code"]),
            When.SECOND_AND_B: second and flag_b,
            When.AVERAGE: self._loaded["code"] == Reduction.AVERAGE,
            When.NOT_A: not flag_a,
            When.FROM_BUFFER: self._loaded["from_buffer"],
            When.FROM_ROWS: self._loaded["code"] == Source.ACCUMULATORS,
            When.FROM_LINES: self._loaded["code"] == Source.LINES,
        }.get(when, False)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.mnemonic)
def test_regions(entry):
    """Check that an instruction's rows compute the regions that the instruction set describes."""
    text = Reader(CONFIG, limit=1 << 16, tiles=100)
    text.execute(word(Opcode.SET_CONFIG_WINDOW, WINDOW))
    writer = Writer(rng("step regions", entry.mnemonic), text)
    for _ in range(20):
        operands = {field.name: field.default or 0 for field in entry.fields}
        operands |= writer.legal(entry.opcode)
        run = Run(word(entry.opcode, operands))
        for row in ROM.program(entry.opcode):
            run.step(row)
        reads = [use for use in entry.reads if use.memory is Memory.BUFFER]
        for use in (*entry.reads, *entry.writes):
            cell = CELLS.get(use.memory, "result")
            # The activation unit's operands have cells of their own, and so have weights in the
            # buffer.
            if use in reads and entry.executor is Executor.ACTIVATION_UNIT:
                cell = ("source", "operand")[reads.index(use)]
            if "from_buffer" in use.extent:
                cell = "source"
            if use in entry.writes and entry.executor.name == "HOST_READER":
                cell = "result"
            if use.base == "parameter" and not entry.addresses(use, operands, SIZES):
                continue  # a Vector that is no partition only reads its entry
            found = range(run.cells[f"{cell}.base"], run.cells[f"{cell}.end"])
            wanted = entry.addresses(use, operands, SIZES)
            assert found == wanted, f"{entry.mnemonic} {operands}: {use}"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.mnemonic)
def test_checks(entry):
    """Check that rows check for all faults of an instruction, in the order of precedence."""
    # This machine has all hardware, so it needs no check for UNAVAILABLE.
    absent = {*LATE, Fault.UNAVAILABLE}
    expected = [cause for cause in entry.checks if cause not in absent]
    found = [row.fault for row in ROM.program(entry.opcode) if row.fault]
    assert list(dict.fromkeys(f for f in found if f is not Fault.ILLEGAL_FIELD)) == expected
    # Set_Register is left out: its first row checks its minimum as a limit, not by `least`.
    minima = {
        entry.offset(field.name)
        for field in entry.fields
        if field.minimum and entry.opcode is not Opcode.SET_REGISTER
    }
    least = {row.x.offset for row in ROM.program(entry.opcode) if row.least}
    assert least == minima


@pytest.mark.parametrize("suffix", ["", *SUFFIXES, "-training-links"])
@pytest.mark.parametrize("name", ["2x2", "tiny", "small", "base", "16x8"])
def test_presets(name, suffix):
    """Check that the ROM has room for the rows of each preset.

    An instruction without hardware in the preset has rows that end in the fault UNAVAILABLE.
    """
    try:
        config = preset(name + suffix)
    except ConfigError:
        return  # There is no training for an oblong machine or a machine of int8.
    rom = StepRom(config)
    assert set(rom.starts) == set(BY_OPCODE)
    lacking = [e for e in ENTRIES if e.needs is not None and not has(config, e.needs)]
    for entry in lacking:
        start = rom.starts[entry.opcode]
        length = rom.lengths.get(entry.opcode, 2)
        last = rom.rows[start + length - 1]
        assert (last.base, last.fault) == ("=1", Fault.UNAVAILABLE), entry.mnemonic


def test_extents():
    """Check that an extent, the length of a region, is the sum of the terms in the step ROM."""
    chance = rng("step extents")
    for entry in ENTRIES:
        for use in (*entry.reads, *entry.writes):
            names = {**SIZES, **{each.name: chance.randrange(2, 99) for each in entry.fields}}
            names |= {flag: chance.randrange(2) for flag in FLAGS}
            names |= {code.name: code for field in entry.fields for code in field.values or ()}
            total = 0
            for term in terms(use.extent, FLAGS):
                product = -1 if term.negative else 1
                for part in (*term.factors, *term.conditions):
                    product *= extent(part, names)
                total += product
            assert total == extent(use.extent, names), use.extent


def test_distances():
    """Check that no row reads a cell which the result of an earlier row has not reached yet."""
    for opcode in ROM.lengths:
        rows = ROM.program(opcode)
        for place, row in enumerate(rows):
            for cell, distance in (
                (row.x, FACTOR_DISTANCE),
                (row.base, BASE_DISTANCE),
                (row.limit, LIMIT_DISTANCE),
            ):
                late = [r.into for r in rows[max(0, place - distance + 1) : place] if r.into]
                assert cell not in late, f"{opcode.name}, step {place + 1}"


def test_idle_rows():
    """Check that idle rows are inserted if a cell would be read too soon, and only then."""
    writes, reads = Row(into="a cell"), Row(base="a cell", into="another")
    assert spaced((writes, reads)).index(reads) == BASE_DISTANCE
    assert spaced((writes, Row(limit="a cell"))).index(Row(limit="a cell")) == LIMIT_DISTANCE
    assert spaced((writes, Row(base="another"))) == (writes, Row(base="another"))


def test_contents():
    """Check that a row of the ROM fits in two block RAMs.

    Each field that a row reads lies within two neighbouring 32-bit parts of the instruction word.
    """
    layout = RowLayout()
    assert layout.size <= BLOCK_RAM_BITS
    assert len(ROM.contents) == len(ROM.rows)
    for row, bits in zip(ROM.rows, ROM.contents, strict=True):
        encoded = layout.from_bits(bits)
        assert (encoded.fault == row.fault) or not encoded.checks
        if isinstance(row.x, Bits):
            assert row.x.offset % 32 + row.x.width <= 64
            assert (encoded.at, ROM.widths[encoded.width]) == (row.x.offset, row.x.width)
    assert ROM.constants[ROM.cells[f"={DEPTHWISE_TAPS}"]] == DEPTHWISE_TAPS
    assert set(ROM.lengths) == set(BY_OPCODE)
