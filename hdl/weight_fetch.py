# SPDX-License-Identifier: Apache-2.0
"""Weight fetch: Read_Weights, from weight memory into the weight FIFO."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import WEIGHT_READS_IN_FLIGHT
from systola.hdl.axi import ReadSignature, is_error
from systola.hdl.burst_planner import BurstPlanner
from systola.hdl.commands import PC_BITS, WeightCommand, WeightTransfer

READS_IN_FLIGHT = 8
"""Bursts under way at one time."""
ROW_LATENCY = 2
"""Cycles from a row's last beat to `row_valid`: those of a SyncFIFOBuffered."""


class WeightFetch(wiring.Component):
    """Streams the tiles of one Read_Weights after the other into a FIFO of rows.

    Throughput: one beat a cycle, or the fraction `weight_throttle` of it; the FIFO of
    `weight_fifo_tiles` tiles is the back-pressure. `row` with `row_valid` is the oldest row, taken
    by `row_take`. Latency: ROW_LATENCY cycles from a row's last beat to `row_valid`.

    `command_pop` when all data of the oldest command has been asked for; the next one then asks for
    its own, without waiting for it. `stop`: asks for nothing more and swallows the beats; `quiet`
    once nothing is under way. `error` is up with a beat that memory answered with an error, and
    `error_pc` tells for which instruction.
    """

    def __init__(self, *, config: Config):
        self._config = config
        self._depth = config.weight_fifo_tiles * config.rows
        super().__init__(
            {
                "command": In(WeightCommand(config=config)),
                "command_valid": In(1),
                "command_pop": Out(1),
                "bus": Out(
                    ReadSignature(
                        address_bits=config.address_bits, data_bytes=config.weight_bus_bytes
                    )
                ),
                "base": In(config.address_bits),
                "row": Out(8 * config.cols),
                "row_valid": Out(1),
                "row_take": In(1),
                "stop": In(1),
                "quiet": Out(1),
                "error": Out(1),
                "error_pc": Out(PC_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, bus = self._config, self.bus
        width = 8 * config.weight_bus_bytes

        planner = m.submodules.planner = BurstPlanner(
            transfer=WeightTransfer(config=config),
            bus_bytes=config.weight_bus_bytes,
            max_burst_beats=config.max_burst_beats,
        )
        # Commands whose data is not complete, from their first burst on.
        awaited_layout = data.StructLayout(
            {"pc": PC_BITS, "beats": len(self.command.transfer.beats)}
        )
        awaited = m.submodules.awaited = SyncFIFO(
            width=awaited_layout.size, depth=WEIGHT_READS_IN_FLIGHT
        )
        begun = Signal()
        under_way = Signal(range(READS_IN_FLIGHT + 1))
        m.d.comb += [
            planner.start.eq(self.command_valid & (begun | awaited.w_rdy)),
            awaited.w_en.eq(planner.take & ~begun),
            awaited.w_data.eq(Cat(self.command.pc, self.command.transfer.beats)),
            self.command_pop.eq(planner.take & planner.last),
            planner.transfer.eq(self.command.transfer),
            planner.take.eq(
                planner.valid
                & (~bus.arvalid | bus.arready)
                & (under_way != READS_IN_FLIGHT)
                & ~self.stop
            ),
        ]
        with m.If(bus.arready):
            m.d.sync += bus.arvalid.eq(0)
        with m.If(planner.take):
            m.d.sync += [
                bus.arvalid.eq(1),
                bus.araddr.eq(self.base + planner.address),
                bus.arlen.eq(planner.length),
                begun.eq(~planner.last),
            ]
        beat = bus.rvalid & bus.rready
        m.d.sync += under_way.eq(under_way + planner.take - (beat & bus.rlast))
        m.d.comb += self.quiet.eq(under_way == 0)

        # The throttle lets a beat pass in `numerator` of `denominator` cycles.
        allowed = Signal()
        numerator, denominator = config.weight_throttle
        if numerator == denominator:
            m.d.comb += allowed.eq(1)
        else:
            phase = Signal(range(denominator))
            advanced = phase + numerator
            m.d.comb += allowed.eq(advanced >= denominator)
            m.d.sync += phase.eq(Mux(allowed, advanced - denominator, advanced))

        fifo = m.submodules.fifo = SyncFIFOBuffered(width=8 * config.cols, depth=self._depth)
        m.d.comb += [
            bus.rready.eq((fifo.w_rdy & allowed) | self.stop),
            self.error.eq(beat & is_error(bus.rresp)),
            self.row.eq(fifo.r_data),
            self.row_valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.row_take),
        ]

        beats = config.weight_row_pitch // config.weight_bus_bytes
        if beats == 1:
            m.d.comb += [fifo.w_data.eq(bus.rdata), fifo.w_en.eq(beat)]
        else:
            row = Signal((beats - 1) * width)
            count = Signal(range(beats))
            m.d.comb += [
                fifo.w_data.eq(row | (bus.rdata << len(row))),
                fifo.w_en.eq(beat & (count == beats - 1)),
            ]
            with m.If(beat):
                m.d.sync += row.word_select(count, width).eq(bus.rdata)
                m.d.sync += count.eq(Mux(count == beats - 1, 0, count + 1))

        oldest = data.View(awaited_layout, awaited.r_data)
        received = Signal.like(oldest.beats)
        m.d.comb += [
            awaited.r_en.eq(beat & (received + 1 == oldest.beats)),
            self.error_pc.eq(oldest.pc),
        ]
        with m.If(beat):
            m.d.sync += received.eq(Mux(awaited.r_en, 0, received + 1))
        return m
