# SPDX-License-Identifier: Apache-2.0
"""MatrixMultiply and Convolve: vectors and weights into the array, sums into accumulators."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.hdl.accumulators import UPDATE_LATENCY
from systola.hdl.commands import (
    ACCUMULATOR_BITS,
    ADDRESS_BITS,
    MATRIX_LEVELS,
    MatrixCommand,
)
from systola.hdl.delay_line import DelayLine
from systola.hdl.mxu import MXU
from systola.hdl.unified_buffer import READ_LATENCY, BufferReadSignature
from systola.hdl.vector_feeder import FEED_LATENCY, VectorFeeder
from systola.hdl.walker import Walk, Walker
from systola.hdl.weight_loader import WeightLoader


class SumEvent(data.StructLayout):
    """What the accumulators do with the sums of one vector.

    `shift`: the sums count 2^(8 * shift) fold. `final`: the row gets nothing more from its
    instruction; `last`: neither does any other row.
    """

    def __init__(self) -> None:
        super().__init__(
            {"row": ACCUMULATOR_BITS, "accumulate": 1, "shift": 2, "final": 1, "last": 1}
        )


class VectorEvent(data.StructLayout):
    """What accompanies a vector: it is the `first` one of its tile, which are the low bytes, and
    what becomes of its sums."""

    def __init__(self) -> None:
        super().__init__(
            {"first": 1, "unsigned_vector": 1, "unsigned_weights": 1, "sum": SumEvent()}
        )


class MatrixUnit(wiring.Component):
    """MatrixMultiply and Convolve: issues one vector a cycle, in the order of the command's walk:
    `line` of the buffer to accumulator `row`. It takes no line (`reads` is 0) for a vector that
    lies outside the feature map, nor where the line is there from the vector before. Packed
    channels take a cycle without vector at the start of a row that begins inside the map, as a
    vector needs two lines and the next row is elsewhere.

    A vector waits while `line_blocked` or `row_blocked` (an older instruction still uses that line
    or row), and the first of a tile for its weights. A tile is switched without a bubble when
    it has been loaded into the shadow weights, which takes `rows` cycles beside the tile before.
    What is issued reaches the accumulators `latency` cycles later, not counting those in which a
    missing weight row holds the unit: first the issue, READ_LATENCY cycles later all the rest.

    `advance_read` with `advance_read_to`: lines below are read for the last time. `read_done`: all
    are. `advance_sum` with `advance_sum_to`: accumulator rows below are final. `sum_done`: all are.
    For the counters: `active` (a vector is issued), `awaiting_weights`, `weights_moving`.
    """

    def __init__(self, *, config: Config):
        self._config = config
        accumulator = ceil_log2(config.accumulator_rows)
        super().__init__(
            {
                "command": In(MatrixCommand()),
                "command_valid": In(1),
                "line": Out(ADDRESS_BITS),
                "reads": Out(1),
                "line_blocked": In(1),
                "row": Out(ACCUMULATOR_BITS),
                "row_blocked": In(1),
                "buffer": Out(BufferReadSignature(config=config)),
                "weight_row": In(8 * config.cols),
                "weight_arrived": In(1),
                "weight_take": Out(1),
                "update": Out(1),
                "update_row": Out(accumulator),
                "accumulate": Out(1),
                "shift": Out(2),
                "sums": Out(32 * config.cols),
                "advance_read": Out(1),
                "advance_read_to": Out(ADDRESS_BITS),
                "read_done": Out(1),
                "advance_sum": Out(1),
                "advance_sum_to": Out(ACCUMULATOR_BITS),
                "sum_done": Out(1),
                "active": Out(1),
                "awaiting_weights": Out(1),
                "weights_moving": Out(1),
                "clear": In(1),
            }
        )

    @staticmethod
    def latency(config: Config) -> int:
        """Cycles from the issue of a vector to its sums, one behind `update`."""
        return FEED_LATENCY + MXU.latency(config)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, command = self._config, self.command
        loader = m.submodules.loader = WeightLoader(config=config)
        mxu = m.submodules.mxu = MXU(config=config)
        walker = m.submodules.walker = Walker(walk=Walk(MATRIX_LEVELS))
        feeder = m.submodules.feeder = VectorFeeder(config=config)
        first, last = walker.first, walker.last
        m.d.comb += walker.walk.eq(command.walk)

        first_vector = first.ox & first.oy
        last_vector = last.ox & last.oy
        last_k = last.block & last.kx & last.ky
        first_product = first.block & first.kx & first.ky & (first.ox | ~command.wide_vectors)
        row_ends = ~command.wide_vectors | last.ox

        # Accumulator rows: the same ones for each tile along K, then the next ones.
        row = Signal(ACCUMULATOR_BITS)
        first_row = Signal(ACCUMULATOR_BITS)
        kept_row = Signal(ACCUMULATOR_BITS)
        kept_first_row = Signal(ACCUMULATOR_BITS)
        starts = Signal()
        m.d.comb += [
            starts.eq(walker.first.as_value().all()),
            row.eq(Mux(starts, command.accumulator, kept_row)),
            first_row.eq(Mux(starts, command.accumulator, kept_first_row)),
        ]

        lacks_weights = Signal()
        waits = Signal()
        m.d.comb += [
            feeder.command.eq(command),
            feeder.position.eq(walker.position),
            feeder.row_starts.eq(first.ox),
            feeder.issue.eq(self.active),
            self.line.eq(feeder.line),
            self.reads.eq(feeder.reads),
            self.row.eq(row),
            lacks_weights.eq(self.command_valid & first_vector & ~loader.ready),
            self.awaiting_weights.eq(loader.hold | (lacks_weights & ~self.weight_arrived)),
            self.weights_moving.eq(lacks_weights & self.weight_arrived),
            waits.eq(~self.command_valid | (self.line_blocked & feeder.reads) | loader.hold),
            feeder.prime.eq(feeder.unprimed & ~waits),
            self.active.eq(~waits & ~feeder.unprimed & ~lacks_weights & ~self.row_blocked),
            walker.advance.eq(self.active),
        ]
        with m.If(self.active):
            m.d.sync += [
                kept_row.eq(row + row_ends),
                kept_first_row.eq(first_row),
            ]
            with m.If(last_vector):
                with m.If(last_k):
                    m.d.sync += kept_first_row.eq(row + 1)
                with m.Else():
                    m.d.sync += kept_row.eq(first_row)
        m.d.comb += [
            self.advance_read.eq(self.active & command.sequential & last.n & last.block),
            self.advance_read_to.eq(feeder.line + 1),
            self.read_done.eq(self.active & walker.ends),
        ]

        m.d.comb += [
            self.buffer.enable.eq((self.active | feeder.prime) & feeder.reads),
            self.buffer.address.eq(feeder.line),
            loader.swap.eq(self.active & first_vector),
            loader.arrived.eq(self.weight_arrived),
            self.weight_take.eq(loader.take),
        ]
        event = Signal(VectorEvent())
        m.d.comb += [
            event.first.eq(first_vector),
            event.unsigned_vector.eq(command.wide_vectors & first.ox),
            event.unsigned_weights.eq(command.wide_weights & first.block),
            event.sum.row.eq(row),
            event.sum.accumulate.eq(~first_product | command.accumulate),
            event.sum.shift.eq(
                (command.wide_vectors & ~first.ox) + (command.wide_weights & ~first.block)
            ),
            event.sum.final.eq(last_k & row_ends),
            event.sum.last.eq(walker.ends),
        ]

        # The array, from where a line arrives, lags READ_LATENCY cycles behind the issue: vectors,
        # weights and `hold` alike.
        behind = m.submodules.behind = DelayLine(layout=VectorEvent(), cycles=READ_LATENCY)
        hold, load, weights = loader.hold, loader.load, self.weight_row
        for stage in range(READ_LATENCY):
            held, loaded = Signal(name=f"hold_{stage}"), Signal.like(load, name=f"load_{stage}")
            moving = Signal.like(weights, name=f"weights_{stage}", reset_less=True)
            m.d.sync += [held.eq(hold), loaded.eq(load), moving.eq(weights)]
            hold_before, hold, load, weights = hold, held, loaded, moving
        arriving = behind.output
        m.d.comb += [behind.input.eq(event), behind.input_valid.eq(self.active)]

        # The swap goes one cycle ahead of its vector.
        swap = Signal()
        unsigned_weights = Signal()
        unsigned_vector = Signal(2)
        with m.If(~hold):
            m.d.sync += [
                swap.eq(behind.output_valid & arriving.first),
                unsigned_weights.eq(arriving.unsigned_weights),
                unsigned_vector.eq(Cat(arriving.unsigned_vector, unsigned_vector)),
            ]
        m.d.comb += [
            feeder.buffer_data.eq(self.buffer.data),
            feeder.hold.eq(hold),
            mxu.vector.eq(feeder.vector),
            mxu.swap.eq(swap),
            mxu.weights.eq(weights),
            mxu.load.eq(load),
            mxu.hold_next.eq(hold_before),
            mxu.clear.eq(self.clear),
        ]
        if config.wide:
            m.d.comb += [
                mxu.unsigned_vector.eq(unsigned_vector[1]),
                mxu.unsigned_weights.eq(unsigned_weights),
            ]

        # Rows meet their sums. Their delay is one cycle ahead of the array, and so knows that an
        # update goes through.
        ahead = READ_LATENCY - 1
        announced = m.submodules.announced = DelayLine(layout=SumEvent(), cycles=ahead)
        delay = m.submodules.delay = DelayLine(
            layout=SumEvent(), cycles=self.latency(config) - READ_LATENCY - 1
        )
        update = Signal(SumEvent(), reset_less=True)
        m.d.sync += [self.update.eq(delay.output_valid & ~hold_before), update.eq(delay.output)]
        written = m.submodules.written = DelayLine(layout=SumEvent(), cycles=UPDATE_LATENCY)
        m.d.comb += [
            announced.input.eq(event.sum),
            announced.input_valid.eq(self.active),
            delay.input.eq(announced.output),
            delay.input_valid.eq(announced.output_valid),
            delay.hold.eq(hold_before),
            self.update_row.eq(update.row),
            self.accumulate.eq(update.accumulate),
            self.shift.eq(update.shift),
            self.sums.eq(mxu.sums),
            written.input.eq(update),
            written.input_valid.eq(self.update),
            self.advance_sum.eq(written.output_valid & written.output.final),
            self.advance_sum_to.eq(written.output.row + 1),
            self.sum_done.eq(written.output_valid & written.output.last),
        ]
        return m
