# SPDX-License-Identifier: Apache-2.0
"""MatrixMultiply: moves weights and vectors into the array and sums into the accumulators."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.hdl.commands import ACCUMULATOR_BITS, ADDRESS_BITS, MatrixCommand
from systola.hdl.delay_line import DelayLine
from systola.hdl.mxu import MXU
from systola.hdl.unified_buffer import BufferReadSignature
from systola.hdl.weight_loader import WeightLoader

FEED_LATENCY = 2
"""Cycles from the issue of a vector to its entry into the array: buffer read, register."""


class SumEvent(data.StructLayout):
    """What the accumulators do with the sums of one vector.

    `final`: the row gets nothing more from its instruction; `last`: neither does any other row.
    """

    def __init__(self) -> None:
        super().__init__({"row": ACCUMULATOR_BITS, "accumulate": 1, "final": 1, "last": 1})


class MatrixUnit(wiring.Component):
    """Issues one vector a cycle: `line` of the buffer to accumulator `row`, in the order n, k, m.

    A vector waits while `line_blocked` or `row_blocked` (an older instruction still uses that line
    or row), and the first of a tile for its weights. A tile is switched without a bubble when
    it has been loaded into the shadow weights, which takes `rows` cycles beside the tile before.
    What is issued reaches the accumulators `latency` cycles later, not counting those in which a
    missing weight row holds the whole unit.

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
                "line_blocked": In(1),
                "row": Out(ACCUMULATOR_BITS),
                "row_blocked": In(1),
                "buffer": Out(BufferReadSignature(config=config)),
                "weight_row": In(8 * config.cols),
                "weight_arrived": In(1),
                "weight_take": Out(1),
                "update_read": Out(1),
                "update_address": Out(accumulator),
                "write_enable": Out(1),
                "write_address": Out(accumulator),
                "accumulate": Out(1),
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
        """Cycles from the issue of a vector to the write of its accumulator row."""
        return FEED_LATENCY + MXU.latency(config)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, command = self._config, self.command
        loader = m.submodules.loader = WeightLoader(config=config)
        mxu = m.submodules.mxu = MXU(config=config)

        # Where the instruction stands. In its first cycle it is taken as it comes.
        position = data.StructLayout(
            {
                "line": ADDRESS_BITS,
                "row": ACCUMULATOR_BITS,
                "first_row": ACCUMULATOR_BITS,
                "rows_left": 16,
                "k_left": 12,
                "n_left": 12,
                "first_vector": 1,
                "first_k": 1,
            }
        )
        fresh = Signal(init=1)
        kept = Signal(position)
        now = Signal(position)
        with m.If(fresh):
            m.d.comb += [
                now.line.eq(command.buffer),
                now.row.eq(command.accumulator),
                now.first_row.eq(command.accumulator),
                now.rows_left.eq(command.rows),
                now.k_left.eq(command.k_tiles),
                now.n_left.eq(command.n_tiles),
                now.first_vector.eq(1),
                now.first_k.eq(1),
            ]
        with m.Else():
            m.d.comb += now.eq(kept)
        tile_ends = now.rows_left == 1
        last_k = now.k_left == 1
        last_n = now.n_left == 1
        ends = tile_ends & last_k & last_n

        lacks_weights = Signal()
        m.d.comb += [
            self.line.eq(now.line),
            self.row.eq(now.row),
            lacks_weights.eq(self.command_valid & now.first_vector & ~loader.ready),
            self.awaiting_weights.eq(loader.hold | (lacks_weights & ~self.weight_arrived)),
            self.weights_moving.eq(lacks_weights & self.weight_arrived),
            self.active.eq(
                self.command_valid
                & ~lacks_weights
                & ~self.line_blocked
                & ~self.row_blocked
                & ~loader.hold
            ),
        ]
        with m.If(self.active):
            m.d.sync += [
                fresh.eq(ends),
                kept.eq(now),
                kept.line.eq(now.line + 1),
                kept.row.eq(now.row + 1),
                kept.rows_left.eq(now.rows_left - 1),
                kept.first_vector.eq(0),
            ]
            with m.If(tile_ends):
                m.d.sync += [
                    kept.rows_left.eq(command.rows),
                    kept.row.eq(now.first_row),
                    kept.k_left.eq(now.k_left - 1),
                    kept.first_vector.eq(1),
                    kept.first_k.eq(0),
                ]
                with m.If(last_k):
                    m.d.sync += [
                        kept.line.eq(command.buffer),
                        kept.row.eq(now.row + 1),
                        kept.first_row.eq(now.row + 1),
                        kept.k_left.eq(command.k_tiles),
                        kept.n_left.eq(now.n_left - 1),
                        kept.first_k.eq(1),
                    ]
        m.d.comb += [
            self.advance_read.eq(self.active & last_n),
            self.advance_read_to.eq(now.line + 1),
            self.read_done.eq(self.active & ends),
        ]

        # Vectors and weights into the array. The swap goes one cycle ahead of its vector.
        swap = Signal()
        vector = Signal(8 * config.rows, reset_less=True)
        # A line that comes in the first cycle of a hold is kept: the buffer may soon overwrite it.
        came = Signal()
        saved = Signal(8 * config.rows, reset_less=True)
        m.d.sync += came.eq(~loader.hold)
        with m.If(came):
            m.d.sync += saved.eq(self.buffer.data)
        with m.If(~loader.hold):
            m.d.sync += [
                swap.eq(self.active & now.first_vector),
                vector.eq(Mux(came, self.buffer.data, saved)),
            ]
        m.d.comb += [
            self.buffer.enable.eq(self.active),
            self.buffer.address.eq(now.line),
            loader.swap.eq(self.active & now.first_vector),
            loader.arrived.eq(self.weight_arrived),
            self.weight_take.eq(loader.take),
            mxu.vector.eq(vector),
            mxu.swap.eq(swap),
            mxu.weights.eq(self.weight_row),
            mxu.load.eq(loader.load),
            mxu.hold.eq(loader.hold),
            mxu.clear.eq(self.clear),
        ]

        # The sums meet their accumulator row: read a cycle before, then written.
        event = Signal(SumEvent())
        m.d.comb += [
            event.row.eq(now.row),
            event.accumulate.eq(~now.first_k | command.accumulate),
            event.final.eq(last_k),
            event.last.eq(ends),
        ]
        delay = m.submodules.delay = DelayLine(layout=SumEvent(), cycles=self.latency(config) - 1)
        write = Signal(SumEvent())
        write_valid = Signal()
        updated = Signal(SumEvent())
        updated_valid = Signal()
        m.d.comb += [
            delay.input.eq(event),
            delay.input_valid.eq(self.active),
            delay.hold.eq(loader.hold),
        ]
        with m.If(~loader.hold):
            m.d.sync += [write.eq(delay.output), write_valid.eq(delay.output_valid)]
        m.d.comb += [
            # On hold the row to be written is read again, as Activate may use the port.
            updated.eq(Mux(loader.hold, write, delay.output)),
            updated_valid.eq(Mux(loader.hold, write_valid, delay.output_valid)),
            self.update_read.eq(updated_valid & updated.accumulate),
            self.update_address.eq(updated.row),
            self.write_enable.eq(write_valid & ~loader.hold),
            self.write_address.eq(write.row),
            self.accumulate.eq(write.accumulate),
            self.sums.eq(mxu.sums),
            self.advance_sum.eq(self.write_enable & write.final),
            self.advance_sum_to.eq(write.row + 1),
            self.sum_done.eq(self.write_enable & write.last),
        ]
        return m
