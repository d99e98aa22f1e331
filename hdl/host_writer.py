# SPDX-License-Identifier: Apache-2.0
"""DMA out: Write_Host_Memory."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.hdl.axi import WriteSignature, is_error
from systola.hdl.burst_planner import BurstPlanner
from systola.hdl.commands import ADDRESS_BITS, HostTransfer, HostWriteCommand
from systola.hdl.in_flight import Region
from systola.hdl.interlock import Check, Interlock
from systola.hdl.unified_buffer import READ_LATENCY, BufferReadSignature

WATCHED = ("host_reading", "activate_writing")
"""The lists whose instructions may still have to write a line."""
LINES_AHEAD = 8
"""Lines read from the buffer ahead of the bus."""
BURSTS_AHEAD = 16
"""Bursts announced on AW ahead of their data."""
WRITES_IN_FLIGHT = 64
"""Bursts without an answer at one time."""


class _Line(data.StructLayout):
    """A line to be read; `tail`: with the bytes of a tail only."""

    def __init__(self) -> None:
        super().__init__({"line": ADDRESS_BITS, "tail": 1, "used": 1})


class HostWriter(wiring.Component):
    """Writes the lines of one instruction at a time to host memory.

    AW runs ahead of W by up to BURSTS_AHEAD bursts. Throughput: one beat a cycle. Lines are read
    from the buffer when no entry of WATCHED that the masks name holds them any longer: two cycles
    after the lists show it, or three, as an `Interlock` has it. A line goes out on W
    READ_LATENCY + 1 cycles after its read. `blocked` holds back all bursts. `advance` tells that
    line `advance_to` - 1 has been read; `done`, in the cycle after the last acknowledgement, that
    all is written.

    `error` is up in the cycle after an answer that is an error. `stop`: announces no more bursts,
    and finishes the announced ones with no byte enabled; `quiet` once nothing is under way. The
    outputs of AW and W are registers.
    """

    def __init__(self, *, config: Config):
        self._config = config
        depth = config.queue_depth
        regions = data.ArrayLayout(Region(ADDRESS_BITS), depth)
        super().__init__(
            {
                "command": In(HostWriteCommand()),
                "command_valid": In(1),
                "blocked": In(1),
                "masks": In(data.StructLayout(dict.fromkeys(WATCHED, depth))),
                "regions": In(data.StructLayout(dict.fromkeys(WATCHED, regions))),
                "retired": In(data.StructLayout(dict.fromkeys(WATCHED, 1))),
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
        bursts = m.submodules.bursts = SyncFIFO(width=8, depth=BURSTS_AHEAD)
        line_layout = data.StructLayout({"data": 8 * self._config.cols, "tail": 1})
        lines = m.submodules.lines = SyncFIFO(width=line_layout.size, depth=LINES_AHEAD)
        self._announce(m, bursts)
        arriving = Signal()
        arrived = Signal(line_layout)
        consumed = Signal()
        self._read(m, arriving, arrived, consumed)

        # A line goes from the buffer to the bus, or waits in the queue.
        oldest = data.View(line_layout, Mux(lines.r_rdy, lines.r_data, arrived))
        m.d.comb += [
            lines.w_data.eq(arrived),
            lines.w_en.eq(arriving & (lines.r_rdy | ~consumed)),
            lines.r_en.eq(consumed),
        ]
        self._send(m, bursts, lines.r_rdy | arriving, oldest, consumed)
        return m

    def _announce(self, m: Module, bursts: SyncFIFO) -> None:
        """Bursts on AW, and their answers."""
        config, bus = self._config, self.bus
        planner = m.submodules.planner = BurstPlanner(
            transfer=HostTransfer(),
            bus_bytes=config.host_bus_bytes,
            max_burst_beats=config.max_burst_beats,
            pitch=config.output_pitch,
        )
        burst = planner.burst
        planned = Signal()
        announced = Signal()
        announces = Signal()
        full = Signal()  # of bursts announced, or without an answer
        unanswered = Signal(range(WRITES_IN_FLIGHT + 1))
        m.d.comb += [
            planner.transfer.valid.eq(self.command_valid & ~self.blocked & ~planned),
            planner.transfer.payload.eq(self.command.transfer),
            burst.ready.eq((~bus.awvalid | bus.awready) & ~full & ~self.stop),
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
        ahead = bursts.level
        last_one = unanswered[:-1].all()
        m.d.sync += [
            full.eq(
                (ahead[exact_log2(BURSTS_AHEAD)] & ~bursts.r_en)
                | (ahead[: exact_log2(BURSTS_AHEAD)].all() & announces & ~bursts.r_en)
                | (unanswered[exact_log2(WRITES_IN_FLIGHT)] & ~bus.bvalid)
                | (last_one & announces & ~bus.bvalid)
            ),
            unanswered.eq(unanswered + announces - bus.bvalid),
            self.error.eq(bus.bvalid & is_error(bus.bresp)),
            self.done.eq(announced & (unanswered == 1) & bus.bvalid),
        ]
        m.d.comb += [bus.bready.eq(1), self.quiet.eq(unanswered == 0)]
        with m.If(self.done):
            m.d.sync += [planned.eq(0), announced.eq(0)]

    def _read(self, m: Module, arriving: Signal, arrived: data.View, consumed: Signal) -> None:
        """Lines out of the buffer, as they are written and there is room for them."""
        interlock = m.submodules.interlock = Interlock(
            item=_Line(),
            checks=[Check(watched=name, address="line", used="used") for name in WATCHED],
            depth=self._config.queue_depth,
        )
        region, tail = self.command.buffer, self.command.tail
        begun = Signal()  # the first line is taken as it comes: nothing is in the interlock then
        line = Signal(ADDRESS_BITS)
        following = Signal(ADDRESS_BITS)
        left = Signal(ADDRESS_BITS)  # lines from the one before `following` on
        columns_left = Signal(12)  # blocks to the end of the row, where rows have them in a line
        ends_row = Signal()
        offered = interlock.input
        m.d.comb += [
            line.eq(Mux(begun, following, region.base)),
            ends_row.eq(Mux(begun, columns_left, tail.every) == 1),
            offered.valid.eq(Mux(begun, left != 1, self.command_valid)),
            offered.payload.line.eq(line),
            offered.payload.used.eq(1),
            offered.payload.tail.eq(Mux(tail.every == 0, line >= tail.line, ends_row)),
            interlock.masks.eq(self.masks),
            interlock.regions.eq(self.regions),
            interlock.retired.eq(self.retired),
        ]
        with m.If(offered.valid & offered.ready):
            m.d.sync += [
                begun.eq(1),
                following.eq(line + 1),
                left.eq(Mux(begun, left - 1, region.end - region.base)),
                columns_left.eq(
                    Mux(ends_row, tail.every, Mux(begun, columns_left, tail.every) - 1)
                ),
            ]
        with m.If(self.done):
            m.d.sync += begun.eq(0)

        passed = interlock.output
        held = Signal(range(LINES_AHEAD + 1))  # lines on their way or in the queue
        taken = Signal()
        read_line = Signal(ADDRESS_BITS)
        read_tail = Signal()
        m.d.comb += [
            passed.ready.eq(
                ~held[exact_log2(LINES_AHEAD)] & (~self.buffer.enable | self.buffer.ready)
            ),
            taken.eq(passed.valid & passed.ready),
            self.buffer.address.eq(read_line),
            self.advance.eq(self.buffer.enable & self.buffer.ready),
            self.advance_to.eq(read_line + 1),
        ]
        m.d.sync += held.eq(held + taken - consumed)
        with m.If(self.buffer.ready):
            m.d.sync += self.buffer.enable.eq(0)
        with m.If(taken):
            m.d.sync += [
                self.buffer.enable.eq(1),
                read_line.eq(passed.payload.line),
                read_tail.eq(passed.payload.tail),
            ]
        on_the_way = Signal(READ_LATENCY)  # the oldest last
        tails = Signal(READ_LATENCY)
        m.d.sync += [
            on_the_way.eq(Cat(self.advance, on_the_way)),
            tails.eq(Cat(read_tail, tails)),
        ]
        m.d.comb += [
            arriving.eq(on_the_way[-1]),
            arrived.data.eq(self.buffer.data),
            arrived.tail.eq(tails[-1]),
        ]

    def _send(
        self, m: Module, bursts: SyncFIFO, valid: Value, line: data.View, consumed: Signal
    ) -> None:
        """The beats of a line on W; on `stop` beats that write nothing, with or without a line."""
        config, bus = self._config, self.bus
        bus_bytes = config.host_bus_bytes
        line_beats = config.output_pitch // bus_bytes
        part = Signal(range(max(line_beats, 2)))
        sent = Signal(8)
        load = Signal()
        last_part = Signal()
        padded = Signal(8 * config.output_pitch)
        within = Signal(config.cols)  # the bytes of a line in the tail
        enabled = Signal(config.output_pitch)
        last = Signal()
        m.d.sync += within.eq(Cat(i < self.command.tail.bytes for i in range(config.cols)))
        m.d.comb += [
            load.eq((~bus.wvalid | bus.wready) & bursts.r_rdy & (valid | self.stop)),
            last_part.eq(part == line_beats - 1),
            consumed.eq(load & last_part & valid),
            padded.eq(line.data),
            enabled.eq(Cat(~line.tail | bit for bit in within)),
            last.eq(sent == bursts.r_data),
            bursts.r_en.eq(load & last),
        ]
        with m.If(bus.wready):
            m.d.sync += bus.wvalid.eq(0)
        with m.If(load):
            m.d.sync += [
                bus.wvalid.eq(1),
                bus.wdata.eq(padded.word_select(part, 8 * bus_bytes)),
                bus.wstrb.eq(Mux(self.stop, 0, enabled.word_select(part, bus_bytes))),
                bus.wlast.eq(last),
                part.eq(Mux(last_part, 0, part + 1)),
                sent.eq(Mux(last, 0, sent + 1)),
            ]
