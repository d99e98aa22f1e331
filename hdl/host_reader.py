# SPDX-License-Identifier: Apache-2.0
"""DMA in: reads from host memory, Load_Parameters and Load_Table."""

from amaranth.hdl import Cat, Module, Mux, Signal
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
    instruction that still has bursts to ask for (`transfer_blocked`: an older instruction still
    uses its destination), `entry` the oldest whose data is not complete. Throughput: a beat a
    cycle into buffer and parameters, a byte a cycle into tables; a cycle is lost between
    instructions. The buffer's `ready` is the only back-pressure on the beats.

    `advance` tells that the line or parameter entry at on-chip address `advance_to` - 1 is written,
    `done` that all of `entry` is.
    `error` is up with a beat of `entry` that memory answered with an error.
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
        m.d.comb += [
            planner.start.eq(self.transfer_valid & ~self.transfer_blocked),
            planner.transfer.eq(self.transfer),
            planner.take.eq(self.request.valid & self.request.ready),
            self.request.valid.eq(planner.valid),
            self.request.payload.offset.eq(planner.address),
            self.request.payload.length.eq(planner.length),
            self.transfer_pop.eq(planner.take & planner.last),
        ]

        # Beats are collected to a line (buffer), a plane (parameters), or stand alone (table).
        kind = self.entry.kind
        line = Signal(8 * max(config.input_pitch, config.output_pitch, bus))
        line_beats = len(line) // (8 * bus)
        full = Signal()
        count = Signal(range(max(line_beats, 2)))
        last_beat = Signal.like(count)
        with m.Switch(kind):
            with m.Case(Kind.BUFFER):
                m.d.comb += last_beat.eq(config.input_pitch // bus - 1)
            with m.Case(Kind.PARAMETERS):
                m.d.comb += last_beat.eq(config.output_pitch // bus - 1)
            with m.Default():
                m.d.comb += last_beat.eq(0)

        emptied = Signal()
        # The beat behind the last one belongs to another instruction, which `entry` shows only
        # after `done`.
        m.d.comb += self.beat.ready.eq(~full | (emptied & ~self.done))
        with m.If(emptied):
            m.d.sync += full.eq(0)
        with m.If(self.beat.valid & self.beat.ready):
            m.d.comb += self.error.eq(self.beat.payload.error)
            m.d.sync += line.word_select(count, 8 * bus).eq(self.beat.payload.data)
            with m.If(count == last_beat):
                m.d.sync += [full.eq(1), count.eq(0)]
            with m.Else():
                m.d.sync += count.eq(count + 1)

        address = self.entry.destination.base
        ends = self.advance_to == self.entry.destination.end
        plane = Signal(PARAMETER_PLANES, init=1)
        byte = Signal(range(TABLE_BYTES))
        m.d.comb += [
            self.parameters.data.eq(line),
            self.parameters.address.eq(address),
            self.tables.address.eq(Cat(byte, address)),
            self.tables.data.eq(line.word_select(byte % bus, 8)),
            self.buffer.address.eq(address),
            self.advance_to.eq(address + 1),
        ]
        tail = self.entry.tail
        column = Signal(12)  # block of the row, where rows have their blocks side by side
        last_column = column + 1 == tail.every
        in_tail = Mux(tail.every == 0, address >= tail.line, last_column)
        with m.If(self.advance):
            m.d.sync += column.eq(Mux(self.done | last_column, 0, column + 1))
        m.d.comb += self.buffer.data.eq(
            Cat(
                Mux(~in_tail | (i < tail.bytes), line.word_select(i, 8), 0)
                for i in range(config.rows)
            )
        )
        with m.If(full):
            with m.Switch(kind):
                with m.Case(Kind.BUFFER):
                    m.d.comb += [
                        self.buffer.enable.eq(1),
                        emptied.eq(self.buffer.ready),
                        self.advance.eq(emptied),
                        self.done.eq(emptied & ends),
                    ]
                with m.Case(Kind.PARAMETERS):
                    m.d.comb += [
                        self.parameters.planes.eq(plane),
                        emptied.eq(1),
                        self.advance.eq(plane[-1]),
                        self.done.eq(plane[-1] & ends),
                    ]
                    m.d.sync += plane.eq(plane.rotate_left(1))
                with m.Case(Kind.TABLE):
                    m.d.comb += [
                        self.tables.enable.eq(1),
                        emptied.eq(byte % bus == bus - 1),
                        self.done.eq(byte == TABLE_BYTES - 1),
                    ]
                    m.d.sync += byte.eq(byte + 1)
        return m
