# SPDX-License-Identifier: Apache-2.0
"""DMA out: Write_Host_Memory."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.hdl.commands import HostTransfer, address_bits
from systola.hdl.control.signatures import list_signature, queue_signature
from systola.hdl.parts.interlock import Check, Interlock
from systola.hdl.parts.payload_ring import PayloadRing
from systola.hdl.parts.promise import promised, promised_offer
from systola.hdl.parts.ring import counted
from systola.hdl.parts.skid_buffer import SkidBuffer
from systola.hdl.ports import BUFFER_LATENCY, BufferReadSignature
from systola.hdl.transfers.axi import WriteSignature, is_error
from systola.hdl.transfers.burst_planner import BurstPlanner
from systola.hdl.transfers.copy_walk import CopyWalk

WATCHED = ("host_reading", "activate_writing")
"""Names of the lists with instructions that may still write a line which this unit reads."""
LINES_AHEAD = 8
"""Number of lines that are read from the buffer ahead of the bus.

One more line may be on its way that is not counted yet.
"""
BURSTS_AHEAD = 16
"""Largest number of bursts announced on AW ahead of their data."""
WRITES_IN_FLIGHT = 64
"""Largest number of bursts that memory has not answered."""


class _Line(data.StructLayout):
    """A line to be read.

    `tail`: the line is in the tail, so only some of its bytes are written. `used` is always 1: each
    `Check` of the interlock needs such a bit.
    """

    def __init__(self, *, config: Config):
        super().__init__({"line": address_bits(config), "tail": 1, "used": 1})


class _Length(data.StructLayout):
    """A burst of `length` + 1 beats. `single`: it has one beat."""

    def __init__(self) -> None:
        super().__init__({"length": 8, "single": 1})


class HostWriter(wiring.Component):
    """A unit that writes the lines of one instruction at a time to host memory.

    | port           | meaning |
    |---|---|
    | `queue`        | the queue of commands; `blocked.host_memory` holds back all bursts |
    | `host_writing` | the list of the commands: reports each line in the cycle after its read, and
                       retires when all is written, in the cycle after the last acknowledgement |
    | `buffer`       | reads of lines |
    | `bus`          | the write channels of host memory; the outputs of AW and W are registers |
    | `base`         | address of the host window |
    | `error`        | an answer was an error in the cycle before |
    | `stop`         | announces no more bursts, and finishes the announced ones with no byte
                       enabled |
    | `quiet`        | no burst is under way |

    A beat that was already on its way at `stop` still writes its bytes.

    AW runs ahead of W by up to BURSTS_AHEAD bursts. Throughput: one beat a cycle. Lines pass an
    `Interlock`: they are read two cycles after `progress` shows that the awaited entries have got
    past them. A line goes out on W BUFFER_LATENCY + 2 cycles after its read.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "queue": In(queue_signature("host_writes", config)),
                "host_writing": In(list_signature("host_writing", config)),
                "buffer": Out(BufferReadSignature(config=config)),
                "bus": Out(
                    WriteSignature(
                        address_bits=config.address_bits, data_bytes=config.host_bus_bytes
                    )
                ),
                "base": In(config.address_bits),
                "error": Out(1),
                "stop": In(1),
                "quiet": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bursts = m.submodules.bursts = PayloadRing(payload=_Length(), depth=BURSTS_AHEAD)
        line = data.StructLayout({"data": 8 * self._config.cols, "tail": 1})
        lines = m.submodules.lines = PayloadRing(payload=line, depth=LINES_AHEAD + 1)
        ahead = counted(m, "ahead", most=BURSTS_AHEAD, push=bursts.push, pop=bursts.pop)
        there = counted(m, "there", most=LINES_AHEAD + 1, push=lines.push, pop=lines.pop)
        offered = self._announce(m, bursts, ahead) | ahead[1]
        self._read(m, lines)
        self._send(m, bursts, ahead[0] & offered, lines, there[0])
        bus, message = self.bus, "a beat changes before memory takes it"
        beat = Cat(bus.wdata, bus.wstrb, bus.wlast)
        promised_offer(m, platform, bus.wvalid, bus.wready, beat, message)
        for ring, count, what in ((bursts, ahead, "burst"), (lines, there, "line")):
            room = ~ring.push | ring.pop | ~count[-1]
            promised(m, platform, room, f"a {what} is kept that has no room")
            promised(m, platform, ~ring.pop | count[0], f"a {what} leaves that is not there")
        return m

    def _announce(self, m: Module, bursts: PayloadRing, ahead: Signal) -> Value:
        """Announce bursts on AW and count their answers.

        Returns whether AW has taken the youngest of `bursts`.
        """
        config, bus = self._config, self.bus
        planner = m.submodules.planner = BurstPlanner(
            transfer=HostTransfer(config=config),
            bus_bytes=config.host_bus_bytes,
            max_burst_beats=config.max_burst_beats,
            pitch=config.output_pitch,
        )
        burst = planner.burst
        address = data.StructLayout({"address": len(bus.awaddr), "length": 8})
        sender = m.submodules.address_sender = SkidBuffer(payload=address)
        transfer_planned = Signal()
        last_announced = Signal()
        burst_announced = Signal()
        burst_asked = Signal()
        bursts_full = Signal()  # no further burst may be announced
        # number of bursts without an answer, not counting a burst with `burst_asked`
        bursts_unanswered = Signal(range(WRITES_IN_FLIGHT + 1))
        m.d.comb += [
            planner.transfer.valid.eq(
                self.queue.valid & ~self.queue.blocked.host_memory & ~transfer_planned
            ),
            planner.transfer.payload.eq(self.queue.command.transfer),
            burst.ready.eq(sender.input.ready & ~bursts_full & ~self.stop),
            burst_announced.eq(burst.valid & burst.ready),
            sender.input.valid.eq(burst_announced),
            sender.input.payload.address.eq(self.base + burst.payload.address),
            sender.input.payload.length.eq(burst.payload.length),
            bus.awvalid.eq(sender.output.valid),
            bus.awaddr.eq(sender.output.payload.address),
            bus.awlen.eq(sender.output.payload.length),
            sender.output.ready.eq(bus.awready),
            bursts.push.eq(burst_announced),
            bursts.pushed.length.eq(burst.payload.length),
            bursts.pushed.single.eq(burst.payload.length == 0),
        ]
        with m.If(planner.transfer.ready):
            m.d.sync += transfer_planned.eq(1)
        with m.If(burst_announced):
            m.d.sync += last_announced.eq(burst.payload.last)
        m.d.sync += [
            burst_asked.eq(burst_announced),
            bursts_unanswered.eq(bursts_unanswered + burst_asked - bus.bvalid),
            self.quiet.eq((bursts_unanswered == 0) & ~burst_asked & ~burst_announced),
            # `bursts_full` rises a cycle late, and `bursts_unanswered` counts a cycle late. So one
            # more burst may be ahead of its data, and two more may be without an answer.
            bursts_full.eq(ahead[BURSTS_AHEAD - 2] | (bursts_unanswered >= WRITES_IN_FLIGHT - 2)),
            self.error.eq(bus.bvalid & is_error(bus.bresp)),
            self.host_writing.retire.eq(
                last_announced & ~burst_asked & (bursts_unanswered == 1) & bus.bvalid
            ),
        ]
        m.d.comb += [bus.bready.eq(1), self.queue.pop.eq(self.host_writing.retire)]
        with m.If(self.queue.pop):
            m.d.sync += [transfer_planned.eq(0), last_announced.eq(0)]
        # A burst may still wait for AW. The data of this burst must not be sent before.
        return sender.input.ready

    def _read(self, m: Module, lines: PayloadRing) -> None:
        """Read each line out of the buffer once it is written there and this unit has room."""
        line = _Line(config=self._config)
        interlock = m.submodules.interlock = Interlock(
            item=line,
            checks=[Check(watched=name, address="line", used="used") for name in WATCHED],
            depth=self._config.queue_depth,
            widths=dict.fromkeys(WATCHED, line["line"].width),
        )
        walk = m.submodules.walk = CopyWalk(config=self._config)
        walk_begun = Signal()
        line_valid = Signal()  # a line is offered to the interlock
        offered, queue = interlock.input, self.queue
        m.d.comb += [
            walk.first.eq(queue.command.buffer.base),
            walk.tail.eq(queue.command.tail),
            walk.restart.eq(~walk_begun),
            walk.step.eq(line_valid & offered.ready),
            offered.valid.eq(line_valid),
            offered.payload.line.eq(walk.address),
            offered.payload.used.eq(1),
            offered.payload.tail.eq(walk.in_tail),
            *(interlock.awaited[name].eq(queue.masks[name]) for name in WATCHED),
            *(interlock.progress[name].eq(queue.progress[name]) for name in WATCHED),
        ]
        with m.If(~walk_begun):
            m.d.sync += [walk_begun.eq(queue.valid), line_valid.eq(queue.valid)]
        with m.Elif(walk.step):
            m.d.sync += line_valid.eq(walk.following < queue.command.buffer.end)
        with m.If(queue.pop):
            m.d.sync += walk_begun.eq(0)

        # Lines that have passed the interlock wait here for the buffer. So the interlock does not
        # depend on the buffer's `ready`.
        passed = interlock.output
        reader = m.submodules.line_reader = SkidBuffer(payload=line)
        shown = reader.output.payload
        lines_held = Signal(range(LINES_AHEAD + 2))  # number of lines in this unit, one cycle late
        line_taken = Signal()
        line_read = Signal()
        m.d.comb += [
            passed.ready.eq(reader.input.ready & ~lines_held[exact_log2(LINES_AHEAD)]),
            line_taken.eq(passed.valid & passed.ready),
            reader.input.valid.eq(line_taken),
            reader.input.payload.eq(passed.payload),
            self.buffer.enable.eq(reader.output.valid),
            self.buffer.address.eq(shown.line),
            reader.output.ready.eq(self.buffer.ready),
            line_read.eq(reader.output.valid & self.buffer.ready),
        ]
        line_took = Signal()
        line_gone = Signal()
        m.d.sync += [
            line_took.eq(line_taken),
            line_gone.eq(lines.pop),
            lines_held.eq(lines_held + line_took - line_gone),
            self.host_writing.advance.eq(line_read),
            self.host_writing.advance_to.eq(shown.line + 1),
        ]
        # a shift register of reads under way, the oldest at the end
        on_the_way = Signal(BUFFER_LATENCY)
        tails_coming = Signal(BUFFER_LATENCY)
        m.d.sync += [
            on_the_way.eq(Cat(line_read, on_the_way)),
            tails_coming.eq(Cat(shown.tail, tails_coming)),
        ]
        m.d.comb += [
            lines.push.eq(on_the_way[-1]),
            lines.pushed.data.eq(self.buffer.data),
            lines.pushed.tail.eq(tails_coming[-1]),
        ]

    def _send(
        self,
        m: Module,
        bursts: PayloadRing,
        some_bursts: Value,
        lines: PayloadRing,
        some_lines: Value,
    ) -> None:
        """Send the beats of a line on W. After `stop` send beats that write nothing, with or
        without a line."""
        config, bus = self._config, self.bus
        bus_bytes = config.host_bus_bytes
        burst, line = bursts.oldest, lines.oldest
        line_beats = config.output_pitch // bus_bytes
        line_part = Signal(range(max(line_beats, 2)))
        last_part = Signal()
        padded_line = Signal(8 * config.output_pitch)
        bytes_in_tail = Signal(config.cols)  # the bytes that are written of a line in the tail
        bytes_enabled = Signal(config.output_pitch)
        burst_begun = Signal()  # a beat of the burst has been sent
        beats_remaining = Signal(8)  # beats remaining of a burst after its first beat
        one_beat_remaining = Signal()
        is_last_beat = Signal()
        channel_free = Signal()  # no beat waits on W
        beat_goes = Signal()
        m.d.sync += bytes_in_tail.eq(
            Cat(i < self.queue.command.tail.bytes for i in range(config.cols))
        )
        m.d.comb += [
            channel_free.eq(~bus.wvalid | bus.wready),
            beat_goes.eq(channel_free & some_bursts & (some_lines | self.stop)),
            last_part.eq(line_part == line_beats - 1),
            padded_line.eq(line.data),
            bytes_enabled.eq(Cat(~line.tail | bit for bit in bytes_in_tail)),
            is_last_beat.eq(Mux(burst_begun, one_beat_remaining, burst.single)),
            bursts.pop.eq(beat_goes & is_last_beat),
            lines.pop.eq(beat_goes & last_part & some_lines),
        ]
        with m.If(channel_free):
            m.d.sync += [
                bus.wvalid.eq(beat_goes),
                bus.wdata.eq(padded_line.word_select(line_part, 8 * bus_bytes)),
                bus.wstrb.eq(Mux(self.stop, 0, bytes_enabled.word_select(line_part, bus_bytes))),
                bus.wlast.eq(is_last_beat),
            ]
        with m.If(beat_goes):
            m.d.sync += [
                line_part.eq(Mux(last_part, 0, line_part + 1)),
                burst_begun.eq(~is_last_beat),
                beats_remaining.eq(Mux(burst_begun, beats_remaining - 1, burst.length)),
                one_beat_remaining.eq(Mux(burst_begun, beats_remaining == 2, burst.length == 1)),
            ]
