# SPDX-License-Identifier: Apache-2.0
"""The steps of the decoder for each instruction.

The steps stand in the order of the ISA's checks, as the first check that fails decides the fault.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType

from amaranth.hdl import Mux, Signal, Value, ValueLike
from amaranth.lib import data

from systola.arch.config import Config
from systola.arch.isa import (
    BY_OPCODE,
    DEPTHWISE_TAPS,
    PARAMETER_PLANES,
    TABLE_BYTES,
    Fault,
    Function,
    Opcode,
    Operation,
    Reduction,
    Source,
)
from systola.hdl.commands import InstructionLayout
from systola.hdl.control.checks import (
    LATE,
    LEAST_STEPS,
    NOTHING,
    SUM,
    Addresses,
    Found,
    Known,
    Limit,
    Step,
    gathers,
    partitions,
    relative,
    tables_used,
    times,
)
from systola.hdl.control.indexed_operands import ADDERS, REGISTER_BITS
from systola.hdl.control.window import WindowProducts

Steps = tuple[Step, ...]


class _Walks:
    """A collection of the steps of each instruction, a method for each.

    A method gets two views of an instruction. The view `f` has the fields for factors, from the
    word that is `coming`. The view `at` has the fields for addresses, which are used some cycles
    later. Addresses come from `word`, and from `sums` where an index register is added.
    """

    def __init__(self, config: Config, coming: Value, word: Value, sums: data.View, known: Known):
        self._config, self._known = config, known
        self._coming, self._word, self._sums = coming, word, sums
        self._shape, self._products = known.shape, known.products
        self._buffer = Limit(Fault.BUFFER_RANGE, config.buffer_lines)
        self._rows = Limit(Fault.ACCUMULATOR_RANGE, config.accumulator_rows)
        self._parameters = Limit(Fault.PARAMETER_RANGE, config.parameter_entries)
        self._tables = Limit(Fault.TABLE_RANGE, config.tables)
        self._host = Limit(Fault.HOST_WINDOW, known.host_limit)

    def all(self) -> dict[Opcode, Steps]:
        """Return the steps of each instruction, without instructions that have no steps."""
        config = self._config
        walks = {
            Opcode.READ_HOST_MEMORY: self._read,
            Opcode.READ_HOST_MEMORY_ALTERNATE: self._read,
            Opcode.WRITE_HOST_MEMORY: self._write,
            Opcode.WRITE_HOST_MEMORY_ALTERNATE: self._write,
            Opcode.LOAD_PARAMETERS: self._load_parameters,
            Opcode.LOAD_TABLE: self._load_table,
            Opcode.READ_WEIGHTS: self._read_weights,
            Opcode.MATRIX_MULTIPLY: self._matrix_multiply,
            Opcode.CONVOLVE: self._convolve,
            Opcode.ACTIVATE: self._activate,
            Opcode.DEPTHWISE: self._depthwise,
            Opcode.POOL: self._pool,
            Opcode.VECTOR: self._vector,
            Opcode.SET_CONFIG_WINDOW: self._set_window,
        }
        if config.training:
            walks |= {
                Opcode.MEASURE: self._measure,
                Opcode.TRANSPOSE: self._transpose,
                Opcode.RANDOM: self._random,
            }
        if config.links:
            walks |= {
                Opcode.SEND: self._send,
                Opcode.RECEIVE: self._receive,
                Opcode.REDUCE: self._reduce,
            }
        return {
            opcode: walk(
                data.View(InstructionLayout(opcode), self._coming),
                Addresses(opcode, self._word, self._sums),
            )
            for opcode, walk in walks.items()
        }

    def _window(self, limit: ValueLike, a: ValueLike, b: ValueLike) -> Step:
        """Return a step that checks a number of the present window: `a` * `b` <= `limit`."""
        return Step(0, a, b, Limit(Fault.WINDOW, limit))

    def _map_start(self, base: Value, left: ValueLike) -> Iterator[Step]:
        """Yield the steps that compute the line at which the walk over a feature map begins."""
        yield Step(base, self._shape.top, self._shape.pitch)
        yield Step(SUM, left, 1, into=("first_line",))

    def _overlap(self, name: str, b: Step, *, allowed: Value | None = None) -> Iterator[Step]:
        """Yield steps that check that the results share no line with the operand `name`.

        The step `b` computes the end of the results. The regions of the results and of the
        operand must be computed before. If `allowed` is true, an overlap is no fault.
        """
        found = self._known.found
        end = found[name].end if allowed is None else Mux(allowed, 0, found[name].end)
        yield Step(end, limit=Limit(Fault.OVERLAP, found.buffer.base, notes=True))
        yield Step(b.base, b.a, b.b, Limit(Fault.OVERLAP, found[name].base))

    def _look_up(self, opcode: Opcode, f: data.View, at: Addresses) -> Step:
        """Return the step that checks the number of the table.

        Without a look-up the step checks 0, as the field `table` then has another meaning.
        """
        looks_up: Value = at.function == Function.TABLE
        if self._config.attention and opcode is Opcode.VECTOR:
            looks_up |= gathers(at)
        number = tables_used(self._config, opcode, f)
        return Step(Mux(looks_up, at.table, 0), number, 1, self._tables)

    def _copy(self, f: data.View, at: Addresses, pitch: int) -> Steps:
        """Return the steps of a copy; `pitch` is the number of bytes of a line in host memory."""
        return (
            Step(at.buffer, f.rows, f.blocks, self._buffer, ("buffer", "run"), ("rows", "blocks")),
            Step(at.host, pitch, f.blocks, into=("dense",)),
            Step(SUM, f.stride, f.rows - 1, self._host, ("host",)),
        )

    def _read(self, f: data.View, at: Addresses) -> Steps:
        return self._copy(f, at, self._config.input_pitch)

    def _write(self, f: data.View, at: Addresses) -> Steps:
        return self._copy(f, at, self._config.output_pitch)

    def _load_parameters(self, f: data.View, at: Addresses) -> Steps:
        entry_bytes = PARAMETER_PLANES * self._config.output_pitch
        return (
            Step(at.parameter, f.count, 1, self._parameters, ("buffer",), ("count",)),
            Step(0, f.count, entry_bytes, into=("run",)),
            Step(at.host, f.count, entry_bytes, self._host, ("host",)),
        )

    def _load_table(self, _: data.View, at: Addresses) -> Steps:
        return (
            Step(at.table, 1, 1, self._tables, ("buffer",)),
            Step(0, 1, TABLE_BYTES, into=("run",)),
            Step(at.host, 1, TABLE_BYTES, self._host, ("host",)),
        )

    def _read_weights(self, f: data.View, at: Addresses) -> Steps:
        tiles = Limit(Fault.WEIGHT_WINDOW, self._known.weight_tiles)
        return (
            Step(at.tile, f.count, 1, tiles, least=("count",)),
            NOTHING,
            Step(0, f.count, 1, into=("tiles",)),
        )

    def _matrix_multiply(self, f: data.View, at: Addresses) -> Steps:
        from_buffer = ()
        if self._config.training:
            base, number = Mux(at.from_buffer, at.weights, 0), Mux(f.from_buffer, f.n_tiles, 0)
            size = times(f.k_tiles, self._config.rows) << f.wide_weights
            from_buffer = (Step(base, size, number, self._buffer, ("source",)),)
        k_tiles = f.k_tiles << f.wide_weights
        return (
            Step(at.buffer, f.k_tiles << f.wide_vectors, f.rows, self._buffer, ("buffer",)),
            *from_buffer,
            Step(at.accumulator, f.n_tiles, f.rows, self._rows, ("accumulator",), ("rows",)),
            Step(0, k_tiles, f.n_tiles, into=("tiles",), least=("k_tiles", "n_tiles")),
        )

    def _convolve(self, f: data.View, at: Addresses) -> Steps:
        rows, shape, products = self._config.rows, self._shape, self._products
        packed = f.channels != 0
        # with packed channels: the first vector begins inside its row
        inside = self._known.found.start >= rows
        start_limit = Limit(Fault.WINDOW, 2 * rows - 1)
        row_limit = Limit(Fault.WINDOW, times(shape.pitch, rows))
        taps = Mux(packed, shape.kernel_height, products.taps)
        return (
            Step(0, f.k_tiles, f.n_tiles, into=("run",), least=("k_tiles", "n_tiles")),
            self._window(shape.pitch, shape.width, ~packed),
            Step(rows, shape.left, f.channels, start_limit, ("start",)),
            Step(0, shape.width, f.channels, row_limit, ("row_bytes",)),
            self._window(rows, shape.kernel_width, f.channels),
            Step(0, shape.stride_x, f.channels, Limit(Fault.WINDOW, rows), ("byte_step",)),
            *self._map_start(at.buffer, Mux(packed, inside, shape.left)),
            Step(at.buffer, f.plane, f.k_tiles - 1, into=("buffer",)),
            Step(SUM, products.map_lines, 1, self._buffer, ("buffer",)),
            Step(at.accumulator, products.pixels, f.n_tiles, self._rows, ("accumulator",)),
            Step(0, self._known.found.run, taps, into=("tiles",)),
        )

    def _activate(self, f: data.View, at: Addresses) -> Steps:
        least = ("rows", "n_tiles")
        return (
            Step(at.accumulator, f.n_tiles, f.rows, self._rows, ("accumulator",), least),
            Step(at.buffer, f.n_tiles << f.wide, f.rows, self._buffer, ("buffer",)),
            Step(at.parameter, f.n_tiles, 1, self._parameters, ("parameter",)),
            self._look_up(Opcode.ACTIVATE, f, at),
        )

    def _depthwise(self, f: data.View, at: Addresses) -> Steps:
        shape, products = self._shape, self._products
        source = Step(at.buffer, products.map_lines, f.blocks, self._buffer, ("source",))
        operand = Step(at.taps, products.taps, f.blocks, self._buffer, ("operand",))
        results = Step(at.destination, products.pixels, f.blocks, self._buffer, ("buffer",))
        return (
            self._window(shape.pitch, shape.width, 1),
            self._window(DEPTHWISE_TAPS, products.taps, 1),
            *self._map_start(at.buffer, shape.left),
            source,
            operand,
            results,
            *self._overlap("source", results),
            *self._overlap("operand", results),
            Step(at.parameter, f.blocks, 1, self._parameters, ("parameter",), ("blocks",)),
            NOTHING,
        )

    def _pool(self, f: data.View, at: Addresses) -> Steps:
        shape, products = self._shape, self._products
        source = Step(at.buffer, products.map_lines, f.blocks, self._buffer, ("source",))
        results = Step(at.destination, products.pixels, f.blocks, self._buffer, ("buffer",))
        entries = Mux(f.reduction == Reduction.AVERAGE, products.taps, 1)
        return (
            self._window(shape.pitch, shape.width, 1),
            *self._map_start(at.buffer, shape.left),
            source,
            results,
            *self._overlap("source", results),
            Step(at.parameter, entries, 1, self._parameters, ("parameter",)),
            Step(0, f.blocks, 1, least=("blocks",)),
        )

    def _vector(self, f: data.View, at: Addresses) -> Steps:
        reads = f.operation != Operation.COPY
        source = Step(at.buffer, f.rows, 1 + f.wide_operands, self._buffer, ("source",))
        second = Mux(at.operation == Operation.COPY, 0, at.operand)
        number = Mux(reads, 1 + f.wide_operands, 0)
        vectors: Value = f.rows
        destination: Value = at.destination
        once: Value | None = None
        lineless: Value | None = None
        if self._config.attention:
            once, lineless = relative(at), partitions(at)
            vectors = Mux(relative(f), 1, f.rows)
            # A partition writes no lines. At line 0 there is room for as many lines as it reads, so
            # this check of the results never fails.
            destination = Mux(lineless, 0, destination)
        operand = Step(second, vectors, number, self._buffer, ("operand",))
        results = Step(destination, f.rows, 1 + f.wide, self._buffer, ("buffer",), ("rows",))
        return (
            source,
            operand,
            results,
            *self._overlap("source", results, allowed=lineless),
            *self._overlap("operand", results, allowed=once),
            Step(at.parameter, 1, 1, self._parameters, ("parameter",)),
            self._look_up(Opcode.VECTOR, f, at),
        )

    def _measure(self, f: data.View, at: Addresses) -> Steps:
        rows_of, lines_of = f.source == Source.ACCUMULATORS, f.source == Source.LINES
        first_row = Mux(at.source == Source.ACCUMULATORS, at.accumulator, 0)
        first_line = Mux(at.source == Source.LINES, at.buffer, 0)
        return (
            Step(first_row, f.rows, rows_of, self._rows, ("accumulator",)),
            Step(first_line, f.rows, lines_of << 1, self._buffer, ("source",)),
            Step(0, f.rows, 1, least=("rows",)),
        )

    def _transpose(self, f: data.View, at: Addresses) -> Steps:
        cols = self._config.cols
        results = Step(at.destination, cols, f.count, self._buffer, ("buffer",), ("count",))
        return (
            Step(at.buffer, cols, 1, into=("source",)),
            Step(SUM, f.step, f.count - 1, self._buffer, ("source",)),
            results,
            *self._overlap("source", results),
        )

    def _random(self, f: data.View, at: Addresses) -> Steps:
        results = Step(at.destination, f.rows, 1, self._buffer, ("buffer",), ("rows",))
        return results, NOTHING, NOTHING

    def _send(self, f: data.View, at: Addresses) -> Steps:
        first_line, first_row = Mux(at.sums, 0, at.buffer), Mux(at.sums, at.accumulator, 0)
        return (
            Step(first_line, f.rows, ~f.sums, self._buffer, ("buffer",)),
            Step(first_row, f.rows, f.sums, self._rows, ("accumulator",)),
            Step(0, f.rows, 1, least=("rows",)),
        )

    def _receive(self, f: data.View, at: Addresses) -> Steps:
        taken = Step(at.buffer, f.rows, 1, self._buffer, ("buffer",), ("rows",))
        return taken, NOTHING, NOTHING

    def _reduce(self, f: data.View, at: Addresses) -> Steps:
        taken = Step(at.accumulator, f.rows, 1, self._rows, ("accumulator",), ("rows",))
        return taken, NOTHING, NOTHING

    def _set_window(self, f: data.View, _: Addresses) -> Steps:
        outputs, kernel = ("out_height", "out_width"), ("kernel_height", "kernel_width")
        return (
            Step(0, f.height, f.pitch, into=("map_lines",), least=("height", "pitch")),
            Step(0, f.out_height, f.out_width, into=("pixels",), least=outputs),
            Step(0, f.kernel_height, f.kernel_width, into=("taps",), least=kernel),
            Step(0, f.stride_y, f.pitch, into=("row_step",), least=("stride_y",)),
            Step(0, f.dilation_y, f.pitch, into=("tap_step",), least=("dilation_y",)),
            # These steps compute nothing: they check minima, and delay the next instruction.
            Step(0, f.width, f.stride_x, least=("width", "stride_x")),
            Step(0, f.dilation_x, 1, least=("dilation_x",)),
            NOTHING,
        )


def walks(
    config: Config, coming: Value, word: Value, sums: data.View, known: Known
) -> dict[Opcode, Steps]:
    """Return the steps of each instruction, without instructions that have no steps.

    The factors `a` and `b` use the word that is `coming`. Addresses are used some cycles later:
    they come from `word`, and from `sums` where an index register is added.
    """
    found = _Walks(config, coming, word, sums, known).all()
    for opcode, steps in found.items():
        assert len(steps) >= LEAST_STEPS and set(steps[-1].into) <= set(LATE), opcode
        assert all(step.base == 0 for step in steps if "tiles" in step.into), opcode
    assert set(found) <= set(BY_OPCODE)
    return found


@cache
def step_counts(config: Config) -> Mapping[Opcode, int]:
    """Return the number of steps of each instruction.

    The numbers of a configuration are computed once, as the compiler estimates many programs.
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
