# SPDX-License-Identifier: Apache-2.0
"""The work of each part of the machine for a program, counted from the program alone.

The counts follow from the instruction set: an instruction names the number of its vectors, lines,
rows and tiles. The counts depend on no data and on no address. Fetched instructions are not
counted, as the instruction set leaves open how far ahead they are fetched. Writes of parameters and
tables on the chip, and reads of them, are not counted either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache

from systola.arch.config import Config
from systola.arch.isa import (
    GATES,
    INSTRUCTION_BYTES,
    PARAMETER_PLANES,
    RECIPROCAL,
    TABLE_BYTES,
    Function,
    Instruction,
    Opcode,
    Operation,
    Rounding,
    Source,
    decode,
)
from systola.golden.ranges import accumulator_rows, tiles_consumed
from systola.golden.scalar import ScalarUnit
from systola.golden.window import UNSET, Window
from systola.timing.curves import one_line

SUM_BYTES = 4
"""Bytes of a partial sum or of one column of an accumulator row."""


@dataclass(frozen=True, kw_only=True)
class Activity:
    """The amounts of work of a program, by kind.

    An Activity may also be a sum over several programs, or a mean with fractions.
    """

    macs: float = 0
    """Multiply-adds of the array for int8 vectors and weights; idle multipliers count, too."""
    wide_macs: float = 0
    """Multiply-adds of bytes in the array if vectors or weights are int16, two or four a product.
    """
    array_registers: float = 0
    """Bytes that vectors and tiles write into activation, sum and weight registers of the array."""
    buffer: float = 0
    """Bytes read from and written to the unified buffer, whole lines."""
    accumulators: float = 0
    """Bytes read from and written to the accumulators, whole rows."""
    accumulator_adds: float = 0
    """Additions of 32 bits to accumulators."""
    weight_fifo: float = 0
    """Bytes of tiles written into and read from the weight FIFO, without weight memory's padding.
    """
    lane_macs: float = 0
    """Multiply-adds of bytes in the lanes, which only Depthwise makes."""
    lane_multiplies: float = 0
    """Multiplications of the activation unit outside `lane_macs`, of 32 bits or fewer."""
    lane_adds: float = 0
    """Additions and comparisons of the activation unit outside `lane_macs`, of 32 bits or fewer."""
    host: float = 0
    """Bytes over the host port, in whole beats, without fetched instructions."""
    weights: float = 0
    """Bytes over the weight port, whole tiles."""
    links: float = 0
    """Bytes sent over the links to neighbours, whole beats."""

    def __add__(self, other: Activity) -> Activity:
        """Return the sum of two activities."""
        return Activity(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in FIELDS})

    def scaled(self, factor: float) -> Activity:
        """Return this activity with each count multiplied by `factor`."""
        return Activity(**{name: factor * count for name, count in asdict(self).items()})


FIELDS = fields(Activity)
_Counts = Counter[str]


def activity(config: Config, program: bytes) -> Activity:
    """Count the work of `program`, encoded instructions, on a machine of configuration `config`.

    The program must end with Halt and break no rule. Raises ValueError if the walk comes to a place
    without an instruction.
    """
    walk = _Walk(config, program)
    walk.block(0)
    return Activity(**walk.counts)


class _Walk:
    """A walk through a program that adds up the counts of all instructions.

    The walk goes through further iterations of a loop only while their counts may differ. The
    counts of the last iteration are then multiplied.
    """

    def __init__(self, config: Config, program: bytes) -> None:
        self.counts: _Counts = Counter()
        self._config = config
        self._program = program
        self._window = UNSET
        self._scalar = ScalarUnit()
        words = range(0, len(program), INSTRUCTION_BYTES)
        found = [decode(program[n : n + INSTRUCTION_BYTES]) for n in words]
        # If a loop takes its number of iterations from an index register, registers can change
        # counts. In all other programs registers change addresses only.
        self._indexed = any(
            each and each[0].opcode == Opcode.LOOP and each[1]["count_register"] for each in found
        )
        self._known: dict[tuple[int, Window], _Counts] = {}
        """Counts of each instruction so far; the key is its number and the window in force."""

    def block(self, pc: int) -> int | None:
        """Walk from instruction `pc` to the End_Loop of its loop, or to Halt.

        Returns the number of the instruction after the End_Loop, or None at Halt.
        """
        while True:
            entry, operands = self._instruction(pc)
            match entry.opcode:
                case Opcode.HALT:
                    return None
                case Opcode.END_LOOP:
                    return pc + 1
                case Opcode.LOOP:
                    following = self._loop(pc + 1, operands["count"])
                    if following is None:
                        return None
                    pc = following
                    continue
                case Opcode.SET_REGISTER:
                    self._scalar.set_register(**operands)
                case Opcode.SET_CONFIG_WINDOW:
                    self._window = Window(**operands)
                case _:
                    key = pc, self._window
                    if key not in self._known:
                        self._known[key] = _counts(self._config, entry, operands, self._window)
                    self.counts.update(self._known[key])
            pc += 1

    def _loop(self, body: int, count: int) -> int | None:
        """Walk through `count` iterations of the loop with the first instruction `body`.

        Returns the number of the instruction after the loop, or None if the walk came to Halt.
        """
        following: int | None = body
        left = count
        while left:
            window, before = self._window, self.counts.copy()
            following = self.block(body)
            left -= 1
            if following is None:
                return None
            if self._window == window and not self._indexed:
                for name in self.counts:
                    self.counts[name] += left * (self.counts[name] - before[name])
                break
        return following

    def _instruction(self, pc: int) -> tuple[Instruction, dict[str, int]]:
        """Return instruction `pc` and its operands after the addition of index registers."""
        found = decode(self._program[pc * INSTRUCTION_BYTES : (pc + 1) * INSTRUCTION_BYTES])
        if found is None:
            raise ValueError(f"there is no instruction {pc} in the program")
        entry, operands = found
        return entry, self._scalar.effective(entry, operands)


def _counts(config: Config, entry: Instruction, at: Mapping[str, int], window: Window) -> _Counts:
    """Return the counts of one instruction; `at` are its operands with index registers added."""
    line, cols = config.line_bytes, config.cols
    match entry.opcode:
        case (
            Opcode.READ_HOST_MEMORY
            | Opcode.READ_HOST_MEMORY_ALTERNATE
            | Opcode.WRITE_HOST_MEMORY
            | Opcode.WRITE_HOST_MEMORY_ALTERNATE
        ):
            reads = entry.opcode in (Opcode.READ_HOST_MEMORY, Opcode.READ_HOST_MEMORY_ALTERNATE)
            pitch = config.input_pitch if reads else config.output_pitch
            lines = at["rows"] * at["blocks"]
            return Counter(buffer=lines * line, host=lines * pitch)
        case Opcode.LOAD_PARAMETERS:
            return Counter(host=at["count"] * PARAMETER_PLANES * config.output_pitch)
        case Opcode.LOAD_TABLE:
            return Counter(host=TABLE_BYTES)
        case Opcode.READ_WEIGHTS:
            return Counter(weights=at["count"] * config.tile_bytes)
        case Opcode.MATRIX_MULTIPLY | Opcode.CONVOLVE:
            return _product(config, entry.opcode, at, window)
        case Opcode.ACTIVATE:
            rows = at["rows"] * at["n_tiles"]
            counts: _Counts = Counter(accumulators=rows * SUM_BYTES * cols)
            return counts + _results(config, at, rows)
        case Opcode.DEPTHWISE:
            taps = at["blocks"] * window.taps
            inside = at["blocks"] * _lines_inside(window)
            macs = taps * window.windows * cols
            counts = Counter(lane_macs=macs, buffer=(inside + taps) * line)
            return counts + _results(config, at, at["blocks"] * window.windows)
        case Opcode.POOL:
            inside = at["blocks"] * _lines_inside(window)
            counts = Counter(lane_adds=inside * cols, buffer=inside * line)
            return counts + _results(config, at, at["blocks"] * window.windows)
        case Opcode.VECTOR:
            return _vector(config, at)
        case Opcode.MEASURE:
            return _measure(config, at)
        case Opcode.TRANSPOSE:
            return Counter(buffer=2 * at["count"] * cols * line)
        case Opcode.RANDOM:
            return Counter(buffer=at["rows"] * line)
        case Opcode.SEND:
            beats = config.link_row_beats if at["sums"] else config.link_line_beats
            sent = at["rows"] * beats * config.host_bus_bytes
            if at["sums"]:
                return Counter(links=sent, accumulators=at["rows"] * SUM_BYTES * cols)
            return Counter(links=sent, buffer=at["rows"] * line)
        case Opcode.RECEIVE:
            return Counter(buffer=at["rows"] * line)
        case Opcode.REDUCE:
            moved = (1 + at["accumulate"]) * at["rows"] * SUM_BYTES * cols
            adds = at["accumulate"] * at["rows"] * cols
            return Counter(accumulators=moved, accumulator_adds=adds)
        case _:
            return Counter()


def _product(config: Config, opcode: Opcode, at: Mapping[str, int], window: Window) -> _Counts:
    """Return the counts of a MatrixMultiply or a Convolve."""
    cols, depth = config.cols, config.rows
    wide = at.get("wide_vectors", 0) or at.get("wide_weights", 0)
    if opcode == Opcode.MATRIX_MULTIPLY:
        tiles = at["n_tiles"] * at["k_tiles"] << at["wide_weights"]
        each = at["rows"] << at["wide_vectors"]
        lines = tiles * each + (tiles * depth if at["from_buffer"] else 0)
    else:
        tiles, each = tiles_consumed(opcode, at, window), window.windows
        if at["channels"]:
            lines = at["n_tiles"] * _packed_lines(window, at["channels"], depth)
        else:
            lines = at["n_tiles"] * at["k_tiles"] * _lines_inside(window)
    vectors = tiles * each
    rows = len(accumulator_rows(opcode, at, window))
    added = vectors - (0 if at["accumulate"] else rows)
    macs = vectors * config.peak_macs
    moved = vectors * (depth * config.stages + SUM_BYTES * config.peak_macs)
    return Counter(
        macs=0 if wide else macs,
        wide_macs=macs if wide else 0,
        # A weight is written twice: into the shadow register, and into the register in use.
        array_registers=moved + 2 * tiles * config.peak_macs,
        buffer=lines * config.line_bytes,
        accumulators=(vectors + added) * SUM_BYTES * cols,
        accumulator_adds=added * cols,
        weight_fifo=2 * tiles * config.peak_macs,
    )


@lru_cache(maxsize=1024)
def _lines_inside(window: Window) -> int:
    """Return the number of taps inside the map, summed over all windows; each tap reads a line."""
    taps = (divmod(tap, window.kernel_width) for tap in range(window.taps))
    return sum(int(window.tap_lines(*tap)[1].sum()) for tap in taps)


@lru_cache(maxsize=1024)
def _packed_lines(window: Window, channels: int, size: int) -> int:
    """Return the number of lines that Convolve reads with packed channels, for one tile along N.

    A line is read once for all windows of a row, since these windows follow one another.
    """
    total = 0
    for i in range(window.kernel_height):
        lines, _, inside = window.packed_bytes(i, channels, size)
        shape = window.out_height, -1
        rows = zip(lines.reshape(shape), inside.reshape(shape), strict=True)
        total += sum(len(set(line[there].tolist())) for line, there in rows)
    return total


def _results(config: Config, at: Mapping[str, int], vectors: int) -> _Counts:
    """Return the counts for `vectors` vectors of results: requantising, function and writes."""
    wide, adds_to = at.get("wide", 0), at.get("accumulate", 0)
    elements = vectors * config.cols
    # Three additions: the bias, one half for rounding, and the offset. Double rounding adds a
    # second half.
    adds = 3 if at["rounding"] == Rounding.SINGLE or at.get("stochastic") else 4
    products = gate_products(at.get("function", Function.NONE), at.get("table", 0))
    products += wide and at.get("function") == Function.TABLE  # one product for a curve
    return Counter(
        lane_multiplies=elements * (1 + products),
        lane_adds=elements * (adds + products),
        buffer=vectors * ((1 + wide) + 2 * adds_to) * config.line_bytes,
    )


def gate_products(function: int, table: int) -> int:
    """Return the number of products in a function of the gate lanes, 0 for other functions.

    Each product has one addition.
    """
    if function not in GATES:
        return 0
    # The import is here because Amaranth takes a while to load, and few programs have gates.
    from systola.hdl.activation.gate_program import EXP_ROWS, INVERSE, PROGRAMS

    program = PROGRAMS["tanh" if function == Function.TANH else "sigmoid"]
    if function == Function.EXP:
        program = INVERSE if table >= RECIPROCAL else program[:EXP_ROWS]
    return sum(bool(row.get("multiply")) for row in program)


def _vector(config: Config, at: Mapping[str, int]) -> _Counts:
    """Return the counts of a Vector."""
    rows, cols = at["rows"], config.cols
    once = one_line(at)
    operands = 1 if once or at["operation"] == Operation.COPY else 2
    # A zero point is added to each operand. MULTIPLY has one product. Sums have two scales, each
    # rounded twice, and one addition.
    multiplies, adds = {
        Operation.COPY: (0, 1),
        Operation.MULTIPLY: (1, 2),
    }.get(Operation.COPY if once else Operation(at["operation"]), (2, 7))
    lines = (rows * operands << at["wide_operands"]) + once
    counts: _Counts = Counter(
        lane_multiplies=rows * cols * multiplies,
        lane_adds=rows * cols * adds,
        buffer=lines * config.line_bytes,
    )
    return counts + _results(config, at, rows)


def _measure(config: Config, at: Mapping[str, int]) -> _Counts:
    """Return the counts of a Measure: a comparison for each element."""
    rows, cols = at["rows"], config.cols
    match at["source"]:
        case Source.ACCUMULATORS:
            return Counter(accumulators=rows * SUM_BYTES * cols, lane_adds=rows * cols)
        case Source.LINES:
            return Counter(buffer=2 * rows * config.line_bytes, lane_adds=rows * cols)
        case _:
            return Counter()
