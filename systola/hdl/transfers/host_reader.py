# SPDX-License-Identifier: Apache-2.0
"""DMA in: reads from host memory, Load_Parameters and Load_Table."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.arch.isa import PARAMETER_PLANES, TABLE_BYTES
from systola.hdl.commands import HostTransfer, Kind, address_bits
from systola.hdl.control.signatures import list_signature, queue_signature
from systola.hdl.parts.promise import at_most_one, promised, promised_offer
from systola.hdl.parts.sums_to import sums_to
from systola.hdl.ports import BufferWriteSignature, ParameterWriteSignature, TableWriteSignature
from systola.hdl.transfers.burst_planner import BurstPlanner
from systola.hdl.transfers.copy_walk import CopyWalk
from systola.hdl.transfers.host_read_port import ReadBeat, ReadRequest


class _Write(data.StructLayout):
    """A write of a line or of a plane of a parameter entry.

    | field       | meaning |
    |---|---|
    | `buffer`    | a line of the buffer is written |
    | `planes`    | a bit for each plane of the entry: it is written |
    | `fills`     | the last plane of the entry is written |
    | `last`      | this is the last write of an instruction; also set for a table, which is written
                    by a port of its own |
    | `address`   | the line or entry |
    | `following` | the address after `address` |
    | `data`      | the bytes |
    """

    def __init__(self, *, config: Config):
        bytes_written = max(config.input_pitch, config.output_pitch, config.host_bus_bytes)
        super().__init__(
            {
                "buffer": 1,
                "planes": PARAMETER_PLANES,
                "fills": 1,
                "last": 1,
                "address": address_bits(config),
                "following": address_bits(config),
                "data": 8 * bytes_written,
            }
        )


class HostReader(wiring.Component):
    """A unit that requests the beats of one instruction after the other, and writes them to the
    chip.

    | port           | meaning |
    |---|---|
    | `transfers`    | queue of the instructions that have not requested all their beats; `pop`: all
                       beats are under way |
    | `entries`      | queue of the instructions that have not got all their beats; the next one
                       must show in the cycle after `pop`, or before its first beat comes |
    | `host_reading` | the list of the instructions: reports each line or parameter entry as it is
                       written, and retires two cycles after the last write |
    | `request`      | requests of beats |
    | `beat`         | the beats |
    | `buffer`       | writes of lines |
    | `parameters`   | writes of planes of parameter entries |
    | `tables`       | writes of bytes of tables |
    | `error`        | in the cycle before, memory answered with an error to a beat of the oldest
                       instruction in `entries` |

    Requests run ahead of the data by any number of instructions. Latency: two cycles from transfer
    to request, two from the last beat of a line to its write. Throughput: a beat a cycle into
    buffer and parameters, a byte a cycle into tables. A cycle is lost between instructions. Only
    the `ready` of the buffer holds up the beats, and only after two lines. All writes come from
    registers.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "transfers": In(queue_signature("host_reads", config)),
                "entries": In(queue_signature("host_read", config)),
                "host_reading": In(list_signature("host_reading", config)),
                "request": Out(stream.Signature(ReadRequest())),
                "beat": In(stream.Signature(ReadBeat(data_bytes=config.host_bus_bytes))),
                "buffer": Out(BufferWriteSignature(config=config)),
                "parameters": Out(ParameterWriteSignature(config=config)),
                "tables": Out(TableWriteSignature(tables=config.tables)),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        bus = config.host_bus_bytes

        planner = m.submodules.planner = BurstPlanner(
            transfer=HostTransfer(config=config),
            bus_bytes=bus,
            max_burst_beats=config.max_burst_beats,
            pitch=config.input_pitch,
        )
        burst = planner.burst
        m.d.comb += [
            planner.transfer.valid.eq(self.transfers.unblocked),
            planner.transfer.payload.eq(self.transfers.command),
            self.transfers.pop.eq(planner.transfer.ready),
            self.request.valid.eq(burst.valid),
            self.request.payload.offset.eq(burst.payload.address),
            self.request.payload.length.eq(burst.payload.length),
            burst.ready.eq(self.request.ready),
        ]

        # Beats are collected to a line of the buffer or to a plane of parameters. A beat of a table
        # is a line by itself. A complete line moves on to the ports.
        line = Signal(_Write(config=config)["data"].width, reset_less=True)
        line_complete = Signal()
        entry_begun = Signal()  # a beat of the oldest entry has been taken
        # The kind of `entry`, in a register from the start of the entry on. So the logic below does
        # not wait for the memory of entries.
        kind = Signal(Kind)
        is_last_line = Signal()  # the line is the last one of `entry`
        more_bytes = Signal()  # bytes of a table remain to be written before the line moves
        write_free = Signal()  # the port is free: the line before has been written
        line_moves = Signal()
        m.d.comb += [
            line_moves.eq(line_complete & write_free & ~more_bytes),
            self.beat.ready.eq(~line_complete | (line_moves & ~is_last_line)),
            self.entries.pop.eq(line_moves & is_last_line),
        ]
        with m.If(~entry_begun):
            m.d.sync += kind.eq(self.entries.command.kind)
        self._collect(m, line, line_complete, entry_begun, line_moves)
        byte = self._write_table(m, line, entry_begun, kind, line_complete & write_free, more_bytes)
        moved = self._walk(m, line, entry_begun, kind, line_moves, is_last_line, byte)
        self._write(m, moved, write_free)
        message = "a line changes before the buffer takes it"
        line_written = Cat(self.buffer.address, self.buffer.data)
        buffer = self.buffer
        promised_offer(m, platform, buffer.enable, buffer.ready, line_written, message)
        planes = self.parameters.planes
        promised(m, platform, at_most_one(planes), "two planes are written at once")
        promised(m, platform, ~(buffer.enable & planes.any()), "a plane is a line, too")
        return m

    def _collect(
        self,
        m: Module,
        line: Signal,
        line_complete: Signal,
        entry_begun: Signal,
        line_moves: Signal,
    ) -> None:
        """Collect the beats of a line in `line`, and drive `line_complete` and `entry_begun`."""
        config = self._config
        bus = config.host_bus_bytes
        beat_count = Signal(range(len(line) // (8 * bus)))
        last_beat = Signal.like(beat_count)
        beat_taken = Signal()
        beat_completes = Signal()
        m.d.comb += [
            beat_taken.eq(self.beat.valid & self.beat.ready),
            beat_completes.eq(beat_taken & (beat_count == last_beat)),
        ]
        with m.Switch(self.entries.command.kind):
            with m.Case(Kind.BUFFER):
                m.d.comb += last_beat.eq(config.input_pitch // bus - 1)
            with m.Case(Kind.PARAMETERS):
                m.d.comb += last_beat.eq(config.output_pitch // bus - 1)
        m.d.sync += [
            self.error.eq(beat_taken & self.beat.payload.error),
            line_complete.eq(beat_completes | (line_complete & ~line_moves)),
            entry_begun.eq((entry_begun | beat_taken) & ~self.entries.pop),
        ]
        with m.If(~line_complete | line_moves):
            # The word is written whether a beat has come or not. The next beat overwrites it.
            m.d.sync += line.word_select(beat_count, 8 * bus).eq(self.beat.payload.data)
        with m.If(beat_completes):
            m.d.sync += beat_count.eq(0)
        with m.Elif(beat_taken):
            m.d.sync += beat_count.eq(beat_count + 1)

    def _write_table(
        self,
        m: Module,
        line: Signal,
        entry_begun: Signal,
        kind: Signal,
        may_go: Value,
        more_bytes: Signal,
    ) -> Signal:
        """Write the bytes of a line into a table, one by one; return the next byte's number."""
        entry, bus = self.entries.command, self._config.host_bus_bytes
        byte_number = Signal(range(TABLE_BYTES))
        place = byte_number[: exact_log2(bus)]
        byte_goes = Signal()
        m.d.comb += byte_goes.eq(may_go & (kind == Kind.TABLE))
        m.d.sync += [
            self.tables.enable.eq(byte_goes),
            self.tables.address.eq(Cat(byte_number, entry.destination)),
            self.tables.data.eq(line.word_select(place, 8)),
        ]
        with m.If(~entry_begun):
            m.d.sync += more_bytes.eq(entry.kind == Kind.TABLE)
        with m.Elif(byte_goes):
            m.d.sync += [byte_number.eq(byte_number + 1), more_bytes.eq(place != bus - 2)]
        return byte_number

    def _walk(
        self,
        m: Module,
        line: Signal,
        entry_begun: Signal,
        kind: Signal,
        line_moves: Signal,
        is_last_line: Signal,
        byte: Signal,
    ) -> data.View:
        """Return the write of the present line: to which address, and with which bytes.

        The registers of this function follow `entry` until its first beat is taken. From then on
        they go on by one step with each line that moves.
        """
        config, entry = self._config, self.entries.command
        walk = m.submodules.walk = CopyWalk(config=config)
        plane_chosen = Signal(PARAMETER_PLANES, init=1)
        address_done = Signal()  # the line or plane completes its address
        address_is_last = Signal()
        beats = TABLE_BYTES // config.host_bus_bytes
        m.d.comb += [
            walk.first.eq(entry.destination),
            walk.tail.eq(entry.tail),
            walk.restart.eq(~entry_begun),
            walk.step.eq(line_moves & address_done),
            is_last_line.eq(address_is_last & address_done),
        ]
        with m.If(~entry_begun):
            m.d.sync += [
                address_is_last.eq(entry.destination == entry.last),
                address_done.eq(entry.kind != Kind.PARAMETERS),
            ]
        with m.Else():
            with m.If(kind == Kind.TABLE):
                # A table counts as a single address, so the flag marks the last line of the table.
                # It comes one cycle late. This is early enough: a line takes several cycles.
                m.d.sync += address_is_last.eq(
                    byte[exact_log2(config.host_bus_bytes) :] == beats - 1
                )
            with m.Elif(walk.step):
                m.d.sync += address_is_last.eq(sums_to(entry.last, walk.address, 0, carry=1))
            with m.If(line_moves & (kind == Kind.PARAMETERS)):
                m.d.sync += [
                    plane_chosen.eq(plane_chosen.rotate_left(1)),
                    address_done.eq(plane_chosen[-2]),
                ]

        # The bytes that a line in the tail keeps. They may come from a register, since `entry` is
        # there before its first line is complete.
        bytes_in_tail = Signal(config.rows)
        m.d.sync += bytes_in_tail.eq(
            Cat((entry.kind != Kind.BUFFER) | (i < entry.tail.bytes) for i in range(config.rows))
        )
        kept = Cat((~walk.in_tail | bit).replicate(8) for bit in bytes_in_tail)
        line_write = Signal(_Write(config=config))
        m.d.comb += [
            line_write.buffer.eq(line_moves & (kind == Kind.BUFFER)),
            line_write.planes.eq(Mux(line_moves & (kind == Kind.PARAMETERS), plane_chosen, 0)),
            line_write.fills.eq(line_moves & (kind == Kind.PARAMETERS) & address_done),
            line_write.last.eq(self.entries.pop),
            line_write.address.eq(walk.address),
            line_write.following.eq(walk.following),
            line_write.data.eq(Cat(line[: len(kept)] & kept, line[len(kept) :])),
        ]
        return line_write

    def _write(self, m: Module, line_write: data.View, write_free: Signal) -> None:
        """Drive the write ports and the list from registers."""
        shown_write = Signal.like(line_write)
        m.d.comb += [
            write_free.eq(~shown_write.buffer | self.buffer.ready),
            self.buffer.enable.eq(shown_write.buffer),
            self.buffer.address.eq(shown_write.address),
            self.buffer.data.eq(shown_write.data[: 8 * self._config.rows]),
            self.parameters.planes.eq(shown_write.planes),
            self.parameters.address.eq(shown_write.address),
            self.parameters.data.eq(shown_write.data),
            self.host_reading.advance.eq(
                (shown_write.buffer & self.buffer.ready) | shown_write.fills
            ),
            self.host_reading.advance_to.eq(shown_write.following),
        ]
        with m.If(write_free):
            m.d.sync += shown_write.eq(line_write)
        # In the cycle before, the last write of an instruction was on the ports, and was taken.
        last_shown = Signal()
        write_waited = Signal()
        m.d.sync += [
            last_shown.eq(shown_write.last),
            write_waited.eq(~write_free),
            self.host_reading.retire.eq(last_shown & ~write_waited),
        ]
