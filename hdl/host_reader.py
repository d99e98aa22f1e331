# SPDX-License-Identifier: Apache-2.0
"""DMA in: reads from host memory, Load_Parameters and Load_Table."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

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
    its destination), `entry` the oldest whose data is not complete; `entry_pop` drops it, and the
    next one shows in the cycle after, or before its first beat comes. Latency: one cycle from
    transfer to request, two from the last beat of a line to its write. Throughput: a beat a cycle
    into buffer and parameters, a byte a cycle into tables; a cycle is lost between instructions.
    Nothing but the buffer's `ready` holds up the beats, and it only after three lines.

    `advance` tells that the line or parameter entry at on-chip address `advance_to` - 1 is written;
    `done`, in the cycle after the last write, that all of the oldest instruction is. All writes
    come from registers. `error` is up in the cycle after a beat of `entry` that memory answered
    with an error.
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
                "entry_pop": Out(1),
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
        width = 8 * max(config.input_pitch, config.output_pitch, bus)
        lines = [Signal(width, name=f"line_{i}", reset_less=True) for i in range(2)]
        full = Signal(2)
        filling = Signal()
        writing = Signal()
        closed = Signal()  # the last beat of `entry` has come
        emptied = Signal()
        self._collect(m, lines, full, filling, closed)
        for number in range(2):
            with m.If(emptied & (writing == number)):
                m.d.sync += full[number].eq(0)
        m.d.sync += writing.eq(writing ^ emptied)
        with m.If(self.entry_pop):
            m.d.sync += closed.eq(0)
        m.d.comb += self.entry_pop.eq(emptied & closed & ~full.bit_select(~writing, 1))
        line = Mux(writing, lines[1], lines[0])
        self._write(m, full.bit_select(writing, 1), line, emptied)
        return m

    def _collect(
        self, m: Module, lines: list[Signal], full: Signal, filling: Signal, closed: Signal
    ) -> None:
        """Beats into the line that is being filled, up to the last one of `entry`: what comes
        behind belongs to an instruction that `entry` does not show yet."""
        config, entry = self._config, self.entry
        bus = config.host_bus_bytes
        count = Signal(range(max(len(lines[0]) // (8 * bus), 2)))
        last_beat = Signal.like(count)
        plane = Signal(PARAMETER_PLANES, init=1)
        table_beat = Signal(range(max(TABLE_BYTES // bus, 2)))
        # Addresses to be filled, this one included, once the first one is.
        first = Signal(init=1)
        left = Signal(ADDRESS_BITS)
        left_is_one = Signal()
        is_last = Signal()
        address_ends = Signal()
        entry_ends = Signal()
        taken = Signal()
        completes = Signal()
        m.d.comb += [
            self.beat.ready.eq(~full.bit_select(filling, 1) & ~closed),
            taken.eq(self.beat.valid & self.beat.ready),
            completes.eq(taken & (count == last_beat)),
            is_last.eq(Mux(first, entry.lines == 1, left_is_one)),
        ]
        m.d.sync += self.error.eq(taken & self.beat.payload.error)
        with m.Switch(entry.kind):
            with m.Case(Kind.BUFFER):
                m.d.comb += [
                    last_beat.eq(config.input_pitch // bus - 1),
                    address_ends.eq(1),
                    entry_ends.eq(is_last),
                ]
            with m.Case(Kind.PARAMETERS):
                m.d.comb += [
                    last_beat.eq(config.output_pitch // bus - 1),
                    address_ends.eq(plane[-1]),
                    entry_ends.eq(plane[-1] & is_last),
                ]
                with m.If(completes):
                    m.d.sync += plane.eq(plane.rotate_left(1))
            with m.Case(Kind.TABLE):
                m.d.comb += [
                    address_ends.eq(entry_ends),
                    entry_ends.eq(table_beat == TABLE_BYTES // bus - 1),
                ]
                with m.If(completes):
                    m.d.sync += table_beat.eq(Mux(entry_ends, 0, table_beat + 1))
        for number, line in enumerate(lines):
            # A line that is not complete may change: its beat is overwritten by the one that comes.
            with m.If(~full[number] & (filling == number)):
                m.d.sync += line.word_select(count, 8 * bus).eq(self.beat.payload.data)
            with m.If(completes & (filling == number)):
                m.d.sync += full[number].eq(1)
        with m.If(completes):
            m.d.sync += [count.eq(0), filling.eq(~filling), closed.eq(entry_ends)]
            with m.If(address_ends):
                m.d.sync += [
                    first.eq(entry_ends),
                    left.eq(Mux(first, entry.lines, left) - 1),
                    left_is_one.eq(Mux(first, entry.lines == 2, left == 2)),
                ]
        with m.Elif(taken):
            m.d.sync += count.eq(count + 1)

    def _write(self, m: Module, valid: Value, line: Value, emptied: Signal) -> None:
        """The lines that are there into the registers of the write ports."""
        config, entry = self._config, self.entry
        kind, tail = entry.kind, entry.tail
        bus = config.host_bus_bytes

        # What holds for the next line. For the first one of `entry`, which shows a cycle at least
        # before that is there, it is worked out in registers of its own.
        first = Signal(init=1)
        steps = Signal()
        address = Signal(ADDRESS_BITS)
        in_tail = Signal()
        until_tail = Signal(ADDRESS_BITS)  # lines to the start of the tail, if it is not behind
        first_until_tail = Signal(ADDRESS_BITS)
        first_in_tail = Signal()
        within = Signal(config.rows)  # the bytes of a line in the tail
        # Where rows have their blocks side by side: those to the end of the row, this one included.
        columns_left = Signal(12)
        ends_row = Signal()
        m.d.sync += within.eq(Cat(i < tail.bytes for i in range(config.rows)))
        m.d.sync += [
            first_until_tail.eq(tail.line - entry.destination),
            first_in_tail.eq(Mux(tail.every == 0, entry.destination >= tail.line, tail.every == 1)),
        ]
        here = Mux(first, entry.destination, address)
        tail_here = Mux(first, first_in_tail, in_tail)
        until_here = Mux(first, first_until_tail, until_tail)
        columns_here = Mux(first, tail.every, columns_left)
        m.d.comb += ends_row.eq(columns_here == 1)
        with m.If(steps):
            m.d.sync += [
                first.eq(self.entry_pop),
                address.eq(here + 1),
                until_tail.eq(until_here - 1),
                columns_left.eq(Mux(ends_row, tail.every, columns_here - 1)),
                in_tail.eq(
                    Mux(
                        tail.every == 0,
                        tail_here | (until_here == 1),
                        Mux(ends_row, tail.every == 1, columns_here == 2),
                    )
                ),
            ]

        # The registers of the ports; of the buffer's they wait for `ready`.
        plane = Signal(PARAMETER_PLANES, init=1)
        byte = Signal(range(TABLE_BYTES))
        written = Signal(len(line))
        written_address = Signal(ADDRESS_BITS)
        fills_entry = Signal()  # the last plane of a parameter entry is written
        last = Signal()  # what is written is the last of its instruction
        free = Signal()
        kept = Cat(((kind != Kind.BUFFER) | ~tail_here | bit).replicate(8) for bit in within)
        m.d.comb += [
            free.eq(~self.buffer.enable | self.buffer.ready),
            self.buffer.address.eq(written_address),
            self.buffer.data.eq(written[: len(kept)]),
            self.parameters.address.eq(written_address),
            self.parameters.data.eq(written),
            self.advance.eq((self.buffer.enable & self.buffer.ready) | fills_entry),
        ]
        m.d.sync += self.done.eq(last & free)
        with m.If(free):
            m.d.sync += [
                self.buffer.enable.eq(valid & (kind == Kind.BUFFER)),
                self.parameters.planes.eq(Mux(valid & (kind == Kind.PARAMETERS), plane, 0)),
                fills_entry.eq(valid & (kind == Kind.PARAMETERS) & plane[-1]),
                last.eq(self.entry_pop),
                written.eq(Cat(line[: len(kept)] & kept, line[len(kept) :])),
                written_address.eq(here),
                self.advance_to.eq(here + 1),
            ]
        m.d.sync += [
            self.tables.enable.eq(valid & free & (kind == Kind.TABLE)),
            self.tables.address.eq(Cat(byte, entry.destination)),
            self.tables.data.eq(line.word_select(byte % bus, 8)),
        ]
        with m.Switch(kind):
            with m.Case(Kind.BUFFER):
                m.d.comb += [emptied.eq(valid & free), steps.eq(emptied)]
            with m.Case(Kind.PARAMETERS):
                m.d.comb += [emptied.eq(valid & free), steps.eq(emptied & plane[-1])]
                with m.If(emptied):
                    m.d.sync += plane.eq(plane.rotate_left(1))
            with m.Case(Kind.TABLE):
                m.d.comb += emptied.eq(valid & free & (byte % bus == bus - 1))
                with m.If(valid & free):
                    m.d.sync += byte.eq(byte + 1)
