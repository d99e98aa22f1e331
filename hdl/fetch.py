# SPDX-License-Identifier: Apache-2.0
"""Instruction fetch: reads the program ahead of the sequencer."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import INSTRUCTION_BYTES
from systola.hdl.commands import HOST_OFFSET_BITS
from systola.hdl.host_read_port import ReadBeat, ReadRequest

CHUNK_BYTES = 64
"""Bytes of one fetch burst, where bus width and burst limit allow it."""
AHEAD = 8
"""Instructions fetched ahead at most."""


class FetchedInstruction(data.StructLayout):
    """An instruction word, and whether its fetch was answered with an error."""

    def __init__(self) -> None:
        super().__init__({"word": 8 * INSTRUCTION_BYTES, "error": 1})


class Fetch(wiring.Component):
    """Delivers the instructions from byte offset `program` on, in order, while `enable`.

    It asks for a chunk as soon as there is room for it; `urgent` when it has nothing left, nothing
    on its way, and the decoder has nothing either (`starved`). Chunks at or beyond `limit` (bytes
    of the host window) are not asked for: `exhausted` tells that all instructions inside the window
    have been handed out.
    Latency: beat to instruction one cycle.
    """

    def __init__(self, *, config: Config):
        self._bus_bytes = config.host_bus_bytes
        self._chunk = max(
            config.host_bus_bytes,
            min(CHUNK_BYTES, config.max_burst_beats * config.host_bus_bytes),
        )
        super().__init__(
            {
                "enable": In(1),
                "program": In(32),
                "limit": In(HOST_OFFSET_BITS),
                "request": Out(stream.Signature(ReadRequest())),
                "starved": In(1),
                "urgent": Out(1),
                "beat": In(stream.Signature(ReadBeat(data_bytes=config.host_bus_bytes))),
                "instruction": Out(stream.Signature(FetchedInstruction())),
                "exhausted": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word = 8 * INSTRUCTION_BYTES
        unit_bytes = max(self._bus_bytes, INSTRUCTION_BYTES)
        per_unit = unit_bytes // INSTRUCTION_BYTES
        chunk_units = self._chunk // unit_bytes
        depth = max(AHEAD // per_unit, 2 * chunk_units)

        fifo = m.submodules.fifo = SyncFIFO(width=8 * unit_bytes + 1, depth=depth)
        on_their_way = Signal(range(depth + 1))
        room = depth - chunk_units - on_their_way >= fifo.level

        following = Signal(HOST_OFFSET_BITS)
        kept = Signal(HOST_OFFSET_BITS)
        started = Signal()
        inside = following < self.limit
        m.d.comb += [
            following.eq(Mux(started, kept, self.program)),
            self.request.valid.eq(self.enable & room & inside),
            self.request.payload.offset.eq(following),
            self.request.payload.length.eq(self._chunk // self._bus_bytes - 1),
        ]
        requested = self.request.valid & self.request.ready
        with m.If(requested):
            m.d.sync += [started.eq(1), kept.eq(following + self._chunk)]

        # Narrow buses: beats are collected to an instruction.
        beats = unit_bytes // self._bus_bytes
        m.d.comb += [
            self.beat.ready.eq(1),
            fifo.w_en.eq(self.beat.valid),
            fifo.w_data.eq(Cat(self.beat.payload.data, self.beat.payload.error)),
        ]
        if beats > 1:
            earlier = Signal((beats - 1) * 8 * self._bus_bytes)
            earlier_error = Signal()
            count = Signal(range(beats))
            complete = count == beats - 1
            error = earlier_error | self.beat.payload.error
            m.d.comb += [
                fifo.w_en.eq(self.beat.valid & complete),
                fifo.w_data.eq(Cat(earlier, self.beat.payload.data, error)),
            ]
            with m.If(self.beat.valid):
                m.d.sync += [
                    earlier.eq(Cat(earlier, self.beat.payload.data)[8 * self._bus_bytes :]),
                    earlier_error.eq(error & ~complete),
                ]
                with m.If(complete):
                    m.d.sync += count.eq(0)
                with m.Else():
                    m.d.sync += count.eq(count + 1)
        arrived = fifo.w_en
        m.d.sync += on_their_way.eq(on_their_way + requested * chunk_units - arrived)

        # Wide buses: a beat holds several instructions.
        m.d.comb += [
            self.instruction.valid.eq(fifo.r_rdy),
            self.instruction.payload.word.eq(fifo.r_data[:word]),
            self.instruction.payload.error.eq(fifo.r_data[-1]),
            fifo.r_en.eq(self.instruction.ready),
        ]
        if per_unit > 1:
            index = Signal(range(per_unit))
            m.d.comb += [
                self.instruction.payload.word.eq(fifo.r_data.word_select(index, word)),
                fifo.r_en.eq(self.instruction.ready & (index == per_unit - 1)),
            ]
            with m.If(fifo.r_rdy & self.instruction.ready):
                m.d.sync += index.eq(index + 1)

        empty = ~fifo.r_rdy & (on_their_way == 0)
        m.d.comb += [
            self.urgent.eq(empty & self.starved),
            self.exhausted.eq(self.enable & empty & ~inside),
        ]
        return m
