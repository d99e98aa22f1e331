# SPDX-License-Identifier: Apache-2.0
"""Weight fetch: Read_Weights, from weight memory into the weight FIFO."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.axi import ReadSignature, is_error
from systola.hdl.burst_cutter import BurstCutter
from systola.hdl.commands import PC_BITS, WeightCommand
from systola.hdl.weight_fifo import LATENCY, WeightFifo

READS_IN_FLIGHT = 8
"""Bursts under way at one time."""
ROW_LATENCY = LATENCY
"""Cycles from a row's last beat to `row_valid`."""


class WeightFetch(wiring.Component):
    """Streams the tiles of one Read_Weights after the other into a FIFO of rows.

    Throughput: one beat a cycle, or the fraction `weight_throttle` of it; the FIFO of
    `weight_fifo_tiles` tiles is the back-pressure. `row` with `row_valid` is the oldest row, taken
    by `row_take`; it must go into a register. Latency: two cycles from the command to the bus,
    ROW_LATENCY cycles from a row's last beat to `row_valid`.

    `command_pop`, a register, when all bursts of the command before have been asked for; commands
    follow one another without waiting for data. `stop`: asks for nothing more and swallows the
    beats; `quiet` once nothing is under way. `error` is up in the cycle after a beat that memory
    answered with an error, and `error_pc` tells for which instruction.
    """

    def __init__(self, *, config: Config):
        self._config = config
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

        # Ask for bursts.
        cutter = m.submodules.cutter = BurstCutter(
            address_bits=config.address_bits,
            beat_bits=len(self.command.transfer.beats),
            bus_bytes=config.weight_bus_bytes,
            max_burst_beats=config.max_burst_beats,
        )
        pc = Signal(PC_BITS)  # the instruction of the bursts that are being cut
        next_pc = Signal(PC_BITS)  # of a run that waits in the cutter
        begins = Signal()
        ended = Signal()
        m.d.comb += [
            cutter.run.valid.eq(self.command_valid & ~self.command_pop),
            cutter.run.payload.address.eq(self.command.transfer.address),
            cutter.run.payload.beats.eq(self.command.transfer.beats),
            cutter.run.payload.last.eq(1),
            begins.eq(cutter.run.valid & cutter.run.ready),
        ]
        m.d.sync += self.command_pop.eq(begins)
        with m.If(begins & (~cutter.burst.valid | ended)):
            m.d.sync += pc.eq(self.command.pc)
        with m.Elif(ended):
            m.d.sync += pc.eq(next_pc)
        with m.If(begins):
            m.d.sync += next_pc.eq(self.command.pc)

        under_way = m.submodules.under_way = SyncFIFO(width=PC_BITS, depth=READS_IN_FLIGHT)
        burst = cutter.burst
        moves = Signal()
        asks = Signal()
        asked = Signal()
        none = Signal()
        full = Signal()  # of bursts under way
        m.d.comb += [
            moves.eq(~bus.arvalid | bus.arready),
            burst.ready.eq(moves & ~full & ~self.stop),
            asks.eq(burst.valid & burst.ready),
            ended.eq(asks & burst.payload.last),
            under_way.w_en.eq(asks),
            under_way.w_data.eq(pc),
        ]
        with m.If(moves):
            m.d.sync += [
                bus.arvalid.eq(asks),
                bus.araddr.eq(self.base + burst.payload.address),
                bus.arlen.eq(burst.payload.length),
            ]
        beat = Signal()
        m.d.comb += [
            beat.eq(bus.rvalid & bus.rready),
            under_way.r_en.eq(beat & bus.rlast),
            self.quiet.eq(none & ~asked),
        ]
        level = under_way.level
        m.d.sync += [
            asked.eq(asks),
            none.eq(~under_way.r_rdy),
            full.eq((level == READS_IN_FLIGHT) | ((level == READS_IN_FLIGHT - 1) & asks)),
            self.error.eq(beat & is_error(bus.rresp)),
            self.error_pc.eq(under_way.r_data),
        ]

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

        # Collect the beats of a row.
        fifo = m.submodules.fifo = WeightFifo(
            width=8 * config.cols, depth=config.weight_fifo_tiles * config.rows
        )
        arrives = Signal()
        m.d.comb += [
            arrives.eq(bus.rvalid & ~fifo.full & allowed),
            bus.rready.eq((~fifo.full & allowed) | self.stop),
            self.row.eq(fifo.row),
            self.row_valid.eq(fifo.row_valid),
            fifo.row_take.eq(self.row_take),
        ]
        beats = config.weight_row_pitch // config.weight_bus_bytes
        if beats == 1:
            m.d.comb += [fifo.pushed.eq(bus.rdata), fifo.push.eq(arrives)]
        else:
            row = Signal((beats - 1) * width)
            count = Signal(range(beats))
            complete = count == beats - 1
            m.d.comb += [
                fifo.pushed.eq(Cat(row, bus.rdata)),
                fifo.push.eq(arrives & complete),
            ]
            with m.If(arrives):
                m.d.sync += [
                    row.word_select(count, width).eq(bus.rdata),
                    count.eq(Mux(complete, 0, count + 1)),
                ]
        return m
