# SPDX-License-Identifier: Apache-2.0
"""The steps in which the decoder computes and checks the numbers of each instruction.

A step takes one cycle. Its result is `base` + `a` * `b`: the end of a region, or a number that the
instruction needs. The result goes `into` registers. If it exceeds its `limit` or is negative, the
program ends with the limit's fault at address `base`. The steps stand in the order of the ISA's
checks, as the first check that fails decides the fault.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType

from amaranth.hdl import Mux, Signal, Value, ValueLike
from amaranth.lib import data
from amaranth.utils import bits_for

from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    CURVE_TABLES,
    DEPTHWISE_TAPS,
    LONG_TABLES,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Fault,
    Function,
    Opcode,
    Operation,
    Reduction,
    Source,
)
from systola.hdl.commands import (
    InstructionLayout,
    address_bits,
    line_bits,
    row_bits,
    width_bits,
)
from systola.hdl.control.indexed_operands import ADDERS, REGISTER_BITS, indexed
from systola.hdl.control.window import WindowProducts
from systola.hdl.parts.in_flight import Region


class _Base(Enum):
    SUM = "sum"


SUM = _Base.SUM
"""The base of a step that goes on from the result of the step before, for the same region."""
LEAST_STEPS = 3
"""Fewest steps of an instruction: its word takes as many cycles from stage to stage."""
LATE = ("host", "tiles")
"""Registers that only the last step of an instruction may set; `tiles` takes its product."""


@dataclass(frozen=True)
class Limit:
    """A limit that the result of a step must not exceed."""

    fault: Fault
    value: ValueLike
    notes: bool = False
    """True if exceeding the limit is only noted, for the next step.

    Two regions overlap if both of two steps exceed their limits. The first step is only noted, the
    second has the fault OVERLAP.
    """


@dataclass(frozen=True)
class Step:
    """A step of an instruction, as the module's docstring explains it."""

    base: ValueLike = 0
    a: ValueLike = 0
    b: ValueLike = 0
    limit: Limit | None = None
    into: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    """Fields that must be at least 1; the step checks that its product is not zero."""


NOTHING = Step()


@dataclass(frozen=True)
class Known:
    """A collection of the values, beside the instruction, that steps use.

    | field          | meaning |
    |---|---|
    | `shape`        | fields of the present window (Set_Config_Window) |
    | `products`     | numbers that follow from the present window |
    | `found`        | results of earlier steps of the same instruction |
    | `host_limit`   | bytes of the host window |
    | `weight_tiles` | tiles of the weight memory |
    """

    shape: data.View
    products: data.View
    found: data.View
    host_limit: Value
    weight_tiles: Value


class Found(data.StructLayout):
    """A layout that holds the results of an instruction's steps.

    The numbers of LATE and the products of a window are held elsewhere. The base of a region is
    the base of its first step, never SUM.

    | field         | meaning |
    |---|---|
    | `buffer`, `source`, `operand` | regions of buffer lines |
    | `accumulator` | region of accumulator rows |
    | `parameter`   | region of parameter entries |
    | `run`         | product of the step: bytes of one row of blocks, or of a whole load |
    | `dense`       | the product of the step equals the stride of a copy |
    | `first_line`  | line where a walk over a feature map begins |
    | `start`       | packed channels: first byte of the first vector, counted from one line before
                      the row |
    | `row_bytes`   | packed channels: bytes of a row |
    | `byte_step`   | packed channels: bytes from one vector to the next |
    """

    def __init__(self, *, config: Config):
        lines = address_bits(config)
        super().__init__(
            {
                "buffer": Region(lines),
                "source": Region(lines),
                "operand": Region(lines),
                "accumulator": Region(row_bits(config)),
                "parameter": Region(bits_for(config.parameter_entries)),
                "run": 24,
                "dense": 1,
                "first_line": line_bits(config),
                "start": range(2 * config.rows),
                "row_bytes": width_bits(config),
                "byte_step": range(config.rows + 1),
            }
        )


def times(value: Value, constant: int) -> Value:
    """Return a product formed by shifts and sums: a multiplier block would have no registers."""
    total: Value = value << constant.bit_length() - 1
    for bit in range(constant.bit_length() - 1):
        if constant >> bit & 1:
            total = total + (value << bit)
    return total


class _Addresses:
    """A view of an instruction's fields that have their index registers added.

    A field with an index register is taken from `sums`, any other field from the word.
    """

    def __init__(self, opcode: Opcode, word: Value, sums: data.View):
        self._fields = data.View(InstructionLayout(opcode), word)
        self._sums = {name: sums[i] for i, (name, _) in enumerate(indexed(BY_OPCODE[opcode]))}

    def __getattr__(self, name: str) -> Value:
        field = Value.cast(self._fields[name])
        return self._sums[name][: len(field)] if name in self._sums else field


def gathers(fields: data.View | _Addresses) -> Value:
    """Return whether Vector takes its sums from a table of int32."""
    return (fields.function == Function.QUOTIENT) & (fields.operation == Operation.COPY)


def tables_used(config: Config, opcode: Opcode, fields: data.View) -> Value:
    """Return the number of tables that Activate or Vector uses."""
    number: Value = fields.function == Function.TABLE
    if config.attention:
        number = Mux(number & fields.wide, CURVE_TABLES, number)
        if opcode is Opcode.VECTOR:
            number = Mux(gathers(fields), LONG_TABLES, number)
    return number


def walks(
    config: Config, coming: Value, word: Value, sums: data.View, known: Known
) -> dict[Opcode, tuple[Step, ...]]:
    """Return the steps of each instruction that has any.

    The factors `a` and `b` use the word that is `coming`. Addresses are used some cycles later:
    they come from `word`, and from `sums` where an index register is added.
    """
    rows = config.rows
    shape, products = known.shape, known.products
    buffer = Limit(Fault.BUFFER_RANGE, config.buffer_lines)
    accumulators = Limit(Fault.ACCUMULATOR_RANGE, config.accumulator_rows)
    parameters = Limit(Fault.PARAMETER_RANGE, config.parameter_entries)
    tables = Limit(Fault.TABLE_RANGE, config.tables)
    host = Limit(Fault.HOST_WINDOW, known.host_limit)

    def views(opcode: Opcode) -> tuple[data.View, _Addresses]:
        """Return the instruction's fields for factors, and its fields for addresses."""
        return data.View(InstructionLayout(opcode), coming), _Addresses(opcode, word, sums)

    def window(limit: ValueLike, a: ValueLike, b: ValueLike) -> Step:
        return Step(0, a, b, Limit(Fault.WINDOW, limit))

    def map_start(base: Value, left: ValueLike) -> Iterator[Step]:
        """Yield the steps for the line where the walk over a feature map begins."""
        yield Step(base, shape.top, shape.pitch)
        yield Step(SUM, left, 1, into=("first_line",))

    def overlap(name: str, b: Step) -> Iterator[Step]:
        """Yield steps that check that the results share no line with the operand `name`.

        `b` is the step of the results. Both regions must be known before.
        """
        buffer_base = known.found.buffer.base
        yield Step(known.found[name].end, limit=Limit(Fault.OVERLAP, buffer_base, notes=True))
        yield Step(b.base, b.a, b.b, Limit(Fault.OVERLAP, known.found[name].base))

    def look_up(opcode: Opcode, f: data.View, at: _Addresses) -> Step:
        """Return the step that checks the table; without a table the field means other things."""
        looks_up: Value = at.function == Function.TABLE
        if config.attention and opcode is Opcode.VECTOR:
            looks_up |= gathers(at)
        return Step(Mux(looks_up, at.table, 0), tables_used(config, opcode, f), 1, tables)

    found: dict[Opcode, tuple[Step, ...]] = {}
    for opcode, pitch in (
        (Opcode.READ_HOST_MEMORY, config.input_pitch),
        (Opcode.READ_HOST_MEMORY_ALTERNATE, config.input_pitch),
        (Opcode.WRITE_HOST_MEMORY, config.output_pitch),
        (Opcode.WRITE_HOST_MEMORY_ALTERNATE, config.output_pitch),
    ):
        f, at = views(opcode)
        found[opcode] = (
            Step(at.buffer, f.rows, f.blocks, buffer, ("buffer", "run"), ("rows", "blocks")),
            Step(at.host, pitch, f.blocks, into=("dense",)),
            Step(SUM, f.stride, f.rows - 1, host, ("host",)),
        )

    f, at = views(Opcode.LOAD_PARAMETERS)
    entry_bytes = PARAMETER_PLANES * config.output_pitch
    found[Opcode.LOAD_PARAMETERS] = (
        Step(at.parameter, f.count, 1, parameters, ("buffer",), ("count",)),
        Step(0, f.count, entry_bytes, into=("run",)),
        Step(at.host, f.count, entry_bytes, host, ("host",)),
    )
    _, at = views(Opcode.LOAD_TABLE)
    found[Opcode.LOAD_TABLE] = (
        Step(at.table, 1, 1, tables, ("buffer",)),
        Step(0, 1, TABLE_BYTES, into=("run",)),
        Step(at.host, 1, TABLE_BYTES, host, ("host",)),
    )
    f, at = views(Opcode.READ_WEIGHTS)
    tiles = Limit(Fault.WEIGHT_WINDOW, known.weight_tiles)
    found[Opcode.READ_WEIGHTS] = (
        Step(at.tile, f.count, 1, tiles, least=("count",)),
        NOTHING,
        Step(0, f.count, 1, into=("tiles",)),
    )

    f, at = views(Opcode.MATRIX_MULTIPLY)
    from_buffer = ()
    if config.training:
        base, number = Mux(at.from_buffer, at.weights, 0), Mux(f.from_buffer, f.n_tiles, 0)
        size = times(f.k_tiles, rows) << f.wide_weights
        from_buffer = (Step(base, size, number, buffer, ("source",)),)
    found[Opcode.MATRIX_MULTIPLY] = (
        Step(at.buffer, f.k_tiles << f.wide_vectors, f.rows, buffer, ("buffer",)),
        *from_buffer,
        Step(at.accumulator, f.n_tiles, f.rows, accumulators, ("accumulator",), ("rows",)),
        Step(
            0, f.k_tiles << f.wide_weights, f.n_tiles, into=("tiles",), least=("k_tiles", "n_tiles")
        ),
    )
    f, at = views(Opcode.CONVOLVE)
    packed = f.channels != 0
    # With packed channels: the first vector begins inside the row.
    inside = known.found.start >= rows
    found[Opcode.CONVOLVE] = (
        Step(0, f.k_tiles, f.n_tiles, into=("run",), least=("k_tiles", "n_tiles")),
        window(shape.pitch, shape.width, ~packed),
        Step(rows, shape.left, f.channels, Limit(Fault.WINDOW, 2 * rows - 1), ("start",)),
        Step(
            0,
            shape.width,
            f.channels,
            Limit(Fault.WINDOW, times(shape.pitch, rows)),
            ("row_bytes",),
        ),
        window(rows, shape.kernel_width, f.channels),
        Step(0, shape.stride_x, f.channels, Limit(Fault.WINDOW, rows), ("byte_step",)),
        *map_start(at.buffer, Mux(packed, inside, shape.left)),
        Step(at.buffer, f.plane, f.k_tiles - 1, into=("buffer",)),
        Step(SUM, products.map_lines, 1, buffer, ("buffer",)),
        Step(at.accumulator, products.pixels, f.n_tiles, accumulators, ("accumulator",)),
        Step(0, known.found.run, Mux(packed, shape.kernel_height, products.taps), into=("tiles",)),
    )

    f, at = views(Opcode.ACTIVATE)
    found[Opcode.ACTIVATE] = (
        Step(
            at.accumulator, f.n_tiles, f.rows, accumulators, ("accumulator",), ("rows", "n_tiles")
        ),
        Step(at.buffer, f.n_tiles << f.wide, f.rows, buffer, ("buffer",)),
        Step(at.parameter, f.n_tiles, 1, parameters, ("parameter",)),
        look_up(Opcode.ACTIVATE, f, at),
    )
    f, at = views(Opcode.DEPTHWISE)
    source = Step(at.buffer, products.map_lines, f.blocks, buffer, ("source",))
    operand = Step(at.taps, products.taps, f.blocks, buffer, ("operand",))
    results = Step(at.destination, products.pixels, f.blocks, buffer, ("buffer",))
    found[Opcode.DEPTHWISE] = (
        window(shape.pitch, shape.width, 1),
        window(DEPTHWISE_TAPS, products.taps, 1),
        *map_start(at.buffer, shape.left),
        source,
        operand,
        results,
        *overlap("source", results),
        *overlap("operand", results),
        Step(at.parameter, f.blocks, 1, parameters, ("parameter",), ("blocks",)),
        NOTHING,
    )
    f, at = views(Opcode.POOL)
    source = Step(at.buffer, products.map_lines, f.blocks, buffer, ("source",))
    results = Step(at.destination, products.pixels, f.blocks, buffer, ("buffer",))
    entries = Mux(f.reduction == Reduction.AVERAGE, products.taps, 1)
    found[Opcode.POOL] = (
        window(shape.pitch, shape.width, 1),
        *map_start(at.buffer, shape.left),
        source,
        results,
        *overlap("source", results),
        Step(at.parameter, entries, 1, parameters, ("parameter",)),
        Step(0, f.blocks, 1, least=("blocks",)),
    )
    f, at = views(Opcode.VECTOR)
    reads = f.operation != Operation.COPY
    source = Step(at.buffer, f.rows, 1 + f.wide_operands, buffer, ("source",))
    second = Mux(at.operation == Operation.COPY, 0, at.operand)
    number = Mux(reads, 1 + f.wide_operands, 0)
    operand = Step(second, f.rows, number, buffer, ("operand",))
    results = Step(at.destination, f.rows, 1 + f.wide, buffer, ("buffer",), ("rows",))
    found[Opcode.VECTOR] = (
        source,
        operand,
        results,
        *overlap("source", results),
        *overlap("operand", results),
        Step(at.parameter, 1, 1, parameters, ("parameter",)),
        look_up(Opcode.VECTOR, f, at),
    )

    if config.training:
        f, at = views(Opcode.MEASURE)
        rows_of, lines_of = f.source == Source.ACCUMULATORS, f.source == Source.LINES
        first_row = Mux(at.source == Source.ACCUMULATORS, at.accumulator, 0)
        first_line = Mux(at.source == Source.LINES, at.buffer, 0)
        found[Opcode.MEASURE] = (
            Step(first_row, f.rows, rows_of, accumulators, ("accumulator",)),
            Step(first_line, f.rows, lines_of << 1, buffer, ("source",)),
            Step(0, f.rows, 1, least=("rows",)),
        )
        f, at = views(Opcode.TRANSPOSE)
        results = Step(at.destination, config.cols, f.count, buffer, ("buffer",), ("count",))
        found[Opcode.TRANSPOSE] = (
            Step(at.buffer, config.cols, 1, into=("source",)),
            Step(SUM, f.step, f.count - 1, buffer, ("source",)),
            results,
            *overlap("source", results),
        )
        f, at = views(Opcode.RANDOM)
        results = Step(at.destination, f.rows, 1, buffer, ("buffer",), ("rows",))
        found[Opcode.RANDOM] = (results, NOTHING, NOTHING)

    if config.links:
        f, at = views(Opcode.SEND)
        first_line, first_row = Mux(at.sums, 0, at.buffer), Mux(at.sums, at.accumulator, 0)
        found[Opcode.SEND] = (
            Step(first_line, f.rows, ~f.sums, buffer, ("buffer",)),
            Step(first_row, f.rows, f.sums, accumulators, ("accumulator",)),
            Step(0, f.rows, 1, least=("rows",)),
        )
        f, at = views(Opcode.RECEIVE)
        taken = Step(at.buffer, f.rows, 1, buffer, ("buffer",), ("rows",))
        found[Opcode.RECEIVE] = (taken, NOTHING, NOTHING)
        f, at = views(Opcode.REDUCE)
        taken = Step(at.accumulator, f.rows, 1, accumulators, ("accumulator",), ("rows",))
        found[Opcode.REDUCE] = (taken, NOTHING, NOTHING)

    f, _ = views(Opcode.SET_CONFIG_WINDOW)
    found[Opcode.SET_CONFIG_WINDOW] = (
        Step(0, f.height, f.pitch, into=("map_lines",), least=("height", "pitch")),
        Step(0, f.out_height, f.out_width, into=("pixels",), least=("out_height", "out_width")),
        Step(
            0,
            f.kernel_height,
            f.kernel_width,
            into=("taps",),
            least=("kernel_height", "kernel_width"),
        ),
        Step(0, f.stride_y, f.pitch, into=("row_step",), least=("stride_y",)),
        Step(0, f.dilation_y, f.pitch, into=("tap_step",), least=("dilation_y",)),
        # These steps check minima only. They also keep the next instruction from coming sooner.
        Step(0, f.width, f.stride_x, least=("width", "stride_x")),
        Step(0, f.dilation_x, 1, least=("dilation_x",)),
        NOTHING,
    )
    for opcode, steps in found.items():
        assert len(steps) >= LEAST_STEPS and set(steps[-1].into) <= set(LATE), opcode
        assert all(step.base == 0 for step in steps if "tiles" in step.into), opcode
    assert set(found) <= set(BY_OPCODE)
    return found


@cache
def step_counts(config: Config) -> Mapping[Opcode, int]:
    """Return the number of steps of each instruction.

    Each configuration is asked once: the compiler estimates a program for each of its choices.
    """
    known = Known(
        shape=Signal(InstructionLayout(Opcode.SET_CONFIG_WINDOW)),
        products=Signal(WindowProducts()),
        found=Signal(Found(config=config)),
        host_limit=Signal(),
        weight_tiles=Signal(),
    )
    sums = Signal(data.ArrayLayout(REGISTER_BITS, ADDERS))
    found = walks(config, Signal(128), Signal(128), sums, known)
    counts = {opcode: len(found.get(opcode, (NOTHING,) * LEAST_STEPS)) for opcode in Opcode}
    return MappingProxyType(counts)
