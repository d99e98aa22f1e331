# SPDX-License-Identifier: Apache-2.0
"""DMA in: reads from host memory, Load_Parameters and Load_Table."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from systola.arch.config import Config
from systola.arch.isa import PARAMETER_PLANES, TABLE_BYTES
from systola.hdl.activation_lane import TableWriteSignature
from systola.hdl.burst_planner import BurstPlanner
from systola.hdl.commands import ADDRESS_BITS, HostReadEntry, HostTransfer, Kind
from systola.hdl.host_read_port import ReadBeat, ReadRequest
from systola.hdl.unified_buffer import BufferWriteSignature


class ParameterWriteSignature(wiring.Signature):
    """Write port of the parameter memory: the planes in `planes` of one entry."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "planes": Out(PARAMETER_PLANES),
                "address": Out(ceil_log2(config.parameter_entries)),
                "data": Out(8 * config.cols),
            }
        )


class HostReader(wiring.Component):
    """Asks for the beats of one instruction after the other and puts them where they belong.

    Requests run ahead of the data by any number of instructions: `transfer` is the oldest
    instruction that still has runs to ask for (`transfer_blocked`: an older instruction still uses
    its destination), `entry` the oldest whose data is not complete. Latency: one cycle from
    transfer to request, one from the last beat of a line to its write. Throughput: a beat a cycle
    into buffer and parameters, a byte a cycle into tables; a cycle is lost between instructions.
    Nothing but the buffer's `ready` holds up the beats, and it only after two lines.

    `advance` tells that the line or parameter entry at on-chip address `advance_to` - 1 is written,
    `done` that all of `entry` is, or, of a table, will be in the next cycle.
    `error` is up in the cycle after a beat of `entry` that memory answered with an error.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "transfer": In(HostTransfer()),
                "transfer_valid": In(1),
                "transfer_blocked": In(1),
                "transfer_pop": Out(1),
                "entry": In(HostReadEntry()),
                "request": Out(stream.Signature(ReadRequest())),
                "beat": In(stream.Signature(ReadBeat(data_bytes=config.host_bus_bytes))),
                "buffer": Out(BufferWriteSignature(config=config)),
                "parameters": Out(ParameterWriteSignature(config=config)),
                "tables": Out(TableWriteSignature(tables=config.tables)),
                "advance": Out(1),
                "advance_to": Out(ADDRESS_BITS),
                "done": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        bus = config.host_bus_bytes

        planner = m.submodules.planner = BurstPlanner(
            transfer=HostTransfer(),
            bus_bytes=bus,
            max_burst_beats=config.max_burst_beats,
            pitch=config.input_pitch,
        )
        burst = planner.burst
        m.d.comb += [
            planner.transfer.valid.eq(self.transfer_valid & ~self.transfer_blocked),
            planner.transfer.payload.eq(self.transfer),
            self.transfer_pop.eq(planner.transfer.valid & planner.transfer.ready),
            self.request.valid.eq(burst.valid),
            self.request.payload.offset.eq(burst.payload.address),
            self.request.payload.length.eq(burst.payload.length),
            burst.ready.eq(self.request.ready),
        ]

        # Beats are collected to a line (buffer), a plane (parameters), or stand alone (table). One
        # of two registers is filled while the other one is written.
        kind = self.entry.kind
        width = 8 * max(config.input_pitch, config.output_pitch, bus)
        lines = [Signal(width, name=f"line_{i}", reset_less=True) for i in range(2)]
        full = Signal(2)
        filling = Signal()
        writing = Signal()
        count = Signal(range(max(width // (8 * bus), 2)))
        last_beat = Signal.like(count)
        with m.Switch(kind):
            with m.Case(Kind.BUFFER):
                m.d.comb += last_beat.eq(config.input_pitch // bus - 1)
            with m.Case(Kind.PARAMETERS):
                m.d.comb += last_beat.eq(config.output_pitch // bus - 1)
            with m.Default():
                m.d.comb += last_beat.eq(0)

        valid = Signal()
        emptied = Signal()
        last = Signal()
        taken = Signal()
        m.d.comb += [
            valid.eq(full.bit_select(writing, 1)),
            # The beat behind the last one belongs to another instruction, which `entry` shows only
            # after `done`.
            self.beat.ready.eq(~full.bit_select(filling, 1) & ~(valid & last)),
            taken.eq(self.beat.valid & self.beat.ready),
        ]
        m.d.sync += self.error.eq(taken & self.beat.payload.error)
        for number, line in enumerate(lines):
            # A line that is not complete may change: its beat is overwritten by the one that comes.
            with m.If(~full[number] & (filling == number)):
                m.d.sync += line.word_select(count, 8 * bus).eq(self.beat.payload.data)
            with m.If(taken & (filling == number) & (count == last_beat)):
                m.d.sync += full[number].eq(1)
            with m.If(emptied & (writing == number)):
                m.d.sync += full[number].eq(0)
        with m.If(taken):
            with m.If(count == last_beat):
                m.d.sync += [count.eq(0), filling.eq(~filling)]
            with m.Else():
                m.d.sync += count.eq(count + 1)
        m.d.sync += writing.eq(writing ^ emptied)

        # What holds for the line that is written next, from where that will be.
        address, end = self.entry.destination.base, self.entry.destination.end
        tail = self.entry.tail
        last_line = Signal()
        in_tail = Signal()
        within = Signal(config.rows)  # the bytes of a line in the tail
        left = Signal.like(end)
        behind = Signal(signed(len(address) + 1))  # lines since the start of the tail
        # Where rows have their blocks side by side: those to the end of the row, this one included.
        columns_left = Signal(12)
        starts = Signal(init=1)  # nothing of `entry` is written
        ends_row = Signal()
        m.d.comb += [
            left.eq(end - address),
            behind.eq(address - tail.line),
            ends_row.eq(columns_left == 1),
        ]
        m.d.sync += [
            last_line.eq(Mux(self.advance, left == 2, left == 1)),
            within.eq(Cat(i < tail.bytes for i in range(config.rows))),
        ]
        with m.If(kind != Kind.BUFFER):
            m.d.sync += in_tail.eq(0)
        with m.Elif(tail.every == 0):
            m.d.sync += in_tail.eq((behind >= 0) | (self.advance & (behind == -1)))
        with m.Elif(self.advance):
            m.d.sync += in_tail.eq(Mux(ends_row, tail.every == 1, columns_left == 2))
        with m.Else():
            m.d.sync += in_tail.eq(Mux(starts, tail.every == 1, ends_row))
        with m.If(self.advance):
            m.d.sync += [
                columns_left.eq(Mux(ends_row, tail.every, columns_left - 1)),
                starts.eq(self.done),
            ]
        with m.Elif(starts):
            m.d.sync += columns_left.eq(tail.every)

        plane = Signal(PARAMETER_PLANES, init=1)
        byte = Signal(range(TABLE_BYTES))
        data = Signal(width)
        line = Mux(writing, lines[1], lines[0])
        kept = Cat((~in_tail | bit).replicate(8) for bit in within)
        m.d.comb += [
            data.eq(Cat(line[: len(kept)] & kept, line[len(kept) :])),
            self.buffer.data.eq(data[: len(kept)]),
            self.buffer.address.eq(address),
            self.parameters.data.eq(data),
            self.parameters.address.eq(address),
            self.advance_to.eq(address + 1),
        ]
        # A table is written a cycle later.
        m.d.sync += [
            self.tables.enable.eq(valid & (kind == Kind.TABLE)),
            self.tables.address.eq(Cat(byte, address)),
            self.tables.data.eq(data.word_select(byte % bus, 8)),
        ]
        with m.Switch(kind):
            with m.Case(Kind.BUFFER):
                m.d.comb += [
                    self.buffer.enable.eq(valid),
                    emptied.eq(valid & self.buffer.ready),
                    self.advance.eq(emptied),
                    last.eq(last_line),
                    self.done.eq(emptied & last),
                ]
            with m.Case(Kind.PARAMETERS):
                m.d.comb += [
                    self.parameters.planes.eq(Mux(valid, plane, 0)),
                    emptied.eq(valid),
                    self.advance.eq(valid & plane[-1]),
                    last.eq(plane[-1] & last_line),
                    self.done.eq(valid & last),
                ]
                with m.If(valid):
                    m.d.sync += plane.eq(plane.rotate_left(1))
            with m.Case(Kind.TABLE):
                m.d.comb += [
                    emptied.eq(valid & (byte % bus == bus - 1)),
                    last.eq(byte[exact_log2(bus) :].all()),
                    self.done.eq(emptied & last),
                ]
                with m.If(valid):
                    m.d.sync += byte.eq(byte + 1)
        return m
