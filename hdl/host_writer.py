# SPDX-License-Identifier: Apache-2.0
"""DMA out: Write_Host_Memory."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.hdl.axi import WriteSignature, is_error
from systola.hdl.burst_planner import BurstPlanner
from systola.hdl.commands import ADDRESS_BITS, HostTransfer, HostWriteCommand
from systola.hdl.unified_buffer import READ_LATENCY, BufferReadSignature

LINES_AHEAD = 8
"""Lines read from the buffer ahead of the bus."""
BURSTS_AHEAD = 16
"""Bursts announced on AW ahead of their data."""
WRITES_IN_FLIGHT = 64
"""Bursts without an answer at one time."""


class HostWriter(wiring.Component):
    """Writes the lines of one instruction at a time to host memory.

    AW runs ahead of W by up to BURSTS_AHEAD bursts. Throughput: one beat a cycle. `line` is the
    next line to be read from the buffer; `line_blocked` when an older instruction still has to
    write it. `blocked` holds back the whole instruction. `advance` tells that line `advance_to` - 1
    has been read, `done` that the last write was acknowledged.

    `error` is up with an answer that is an error. `stop`: announces no more bursts, and finishes
    the announced ones with no byte enabled; `quiet` once nothing is under way.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "command": In(HostWriteCommand()),
                "command_valid": In(1),
                "blocked": In(1),
                "line": Out(ADDRESS_BITS),
                "line_blocked": In(1),
                "buffer": Out(BufferReadSignature(config=config)),
                "bus": Out(
                    WriteSignature(
                        address_bits=config.address_bits, data_bytes=config.host_bus_bytes
                    )
                ),
                "base": In(config.address_bits),
                "advance": Out(1),
                "advance_to": Out(ADDRESS_BITS),
                "done": Out(1),
                "error": Out(1),
                "stop": In(1),
                "quiet": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, bus = self._config, self.bus
        bus_bytes = config.host_bus_bytes

        # Announce bursts.
        planner = m.submodules.planner = BurstPlanner(
            transfer=HostTransfer(),
            bus_bytes=bus_bytes,
            max_burst_beats=config.max_burst_beats,
            pitch=config.output_pitch,
        )
        bursts = m.submodules.bursts = SyncFIFO(width=8, depth=BURSTS_AHEAD)
        unanswered = Signal(range(WRITES_IN_FLIGHT + 1))
        planned = Signal()
        announced = Signal()
        announces = Signal()
        burst = planner.burst
        m.d.comb += [
            planner.transfer.valid.eq(self.command_valid & ~self.blocked & ~planned),
            planner.transfer.payload.eq(self.command.transfer),
            burst.ready.eq(
                (~bus.awvalid | bus.awready)
                & bursts.w_rdy
                & ~unanswered[exact_log2(WRITES_IN_FLIGHT)]
                & ~self.stop
            ),
            announces.eq(burst.valid & burst.ready),
            bursts.w_en.eq(announces),
            bursts.w_data.eq(burst.payload.length),
        ]
        with m.If(planner.transfer.valid & planner.transfer.ready):
            m.d.sync += planned.eq(1)
        with m.If(bus.awready):
            m.d.sync += bus.awvalid.eq(0)
        with m.If(announces):
            m.d.sync += [
                bus.awvalid.eq(1),
                bus.awaddr.eq(self.base + burst.payload.address),
                bus.awlen.eq(burst.payload.length),
                announced.eq(burst.payload.last),
            ]

        # Read lines.
        line_layout = data.StructLayout({"data": 8 * config.cols, "tail": 1})
        lines = m.submodules.lines = SyncFIFO(width=line_layout.size, depth=LINES_AHEAD)
        fresh = Signal(init=1)
        kept = Signal(ADDRESS_BITS)
        arriving = Signal(READ_LATENCY)  # lines on their way, the oldest last
        tail_arriving = Signal(READ_LATENCY)
        on_the_way = sum(arriving[i] for i in range(READ_LATENCY))
        unread = fresh | (kept != self.command.buffer.end)
        m.d.comb += [
            self.line.eq(Mux(fresh, self.command.buffer.base, kept)),
            self.advance_to.eq(self.line + 1),
            self.buffer.address.eq(self.line),
            self.buffer.enable.eq(
                self.command_valid
                & unread
                & ~self.line_blocked
                & (lines.w_level + on_the_way < LINES_AHEAD)
            ),
            self.advance.eq(self.buffer.enable & self.buffer.ready),
            lines.w_en.eq(arriving[-1]),
            lines.w_data.eq(Cat(self.buffer.data[: 8 * config.cols], tail_arriving[-1])),
        ]
        tail = self.command.tail
        column = Signal(12)  # block of the row, where rows have their blocks side by side
        last_column = column + 1 == tail.every
        m.d.sync += [
            arriving.eq(Cat(self.advance, arriving)),
            tail_arriving.eq(
                Cat(Mux(tail.every == 0, self.line >= tail.line, last_column), tail_arriving)
            ),
        ]
        with m.If(self.advance):
            m.d.sync += [
                kept.eq(self.advance_to),
                fresh.eq(0),
                column.eq(Mux(last_column, 0, column + 1)),
            ]

        # Send beats.
        line = data.View(line_layout, lines.r_data)
        line_beats = config.output_pitch // bus_bytes
        part = Signal(range(max(line_beats, 2)))
        sent = Signal(8)
        padded = Signal(8 * config.output_pitch)
        valid_bytes = Signal(9)
        enabled = Signal(config.output_pitch)
        masked = Signal()  # `stop`, from the next beat on: an offered beat must not change
        with m.If(~bus.wvalid | bus.wready):
            m.d.sync += masked.eq(self.stop)
        m.d.comb += [
            padded.eq(line.data),
            valid_bytes.eq(Mux(line.tail, tail.bytes, config.cols)),
            enabled.eq(Cat(i < valid_bytes for i in range(config.cols))),
            bus.wvalid.eq(bursts.r_rdy & (lines.r_rdy | masked)),
            bus.wdata.eq(padded.word_select(part, 8 * bus_bytes)),
            bus.wstrb.eq(Mux(masked, 0, enabled.word_select(part, bus_bytes))),
            bus.wlast.eq(sent == bursts.r_data),
            bursts.r_en.eq(bus.wvalid & bus.wready & bus.wlast),
            lines.r_en.eq(bus.wvalid & bus.wready & (part == line_beats - 1)),
        ]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [
                part.eq(Mux(part == line_beats - 1, 0, part + 1)),
                sent.eq(Mux(bus.wlast, 0, sent + 1)),
            ]

        # Collect answers.
        answered = bus.bvalid & bus.bready
        m.d.sync += unanswered.eq(unanswered + announces - answered)
        m.d.comb += [
            bus.bready.eq(1),
            self.error.eq(bus.bvalid & is_error(bus.bresp)),
            self.quiet.eq(unanswered == 0),
            self.done.eq(announced & self.quiet),
        ]
        with m.If(self.done):
            m.d.sync += [planned.eq(0), announced.eq(0), fresh.eq(1), column.eq(0)]
        return m
