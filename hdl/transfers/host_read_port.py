# SPDX-License-Identifier: Apache-2.0
"""The read half of the host port, shared by the host reader and the instruction fetch."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.registers import DATA_ID, FETCH_ID
from systola.hdl.commands import HOST_OFFSET_BITS
from systola.hdl.parts.skid_buffer import SkidBuffer
from systola.hdl.transfers.axi import ReadSignature, is_error

READS_IN_FLIGHT = 64
"""Bursts under way at one time; enough for a beat a cycle from single-beat bursts at 60 cycles."""

FETCH_INTERVAL = 3
"""Cycles from one request of the fetch to its next, at least."""


class ReadRequest(data.StructLayout):
    """One burst: byte offset in the window, and beats - 1."""

    def __init__(self) -> None:
        super().__init__({"offset": HOST_OFFSET_BITS, "length": 8})


class ReadBeat(data.StructLayout):
    """One beat of read data."""

    def __init__(self, *, data_bytes: int):
        super().__init__({"data": 8 * data_bytes, "error": 1})


class HostReadPort(wiring.Component):
    """Sends bursts to host memory and hands the beats back by AXI id.

    A request of data appears on AR in the next cycle at the earliest, one a cycle. The fetch's is
    copied into a register first, which is why it takes a cycle more, and its `ready`, a register,
    comes behind the grant: it may ask once in FETCH_INTERVAL cycles. Data goes first, unless
    `fetch_urgent` was up in the cycle before. `ready` of data comes from registers by a gate.
    Beats pass through without delay. The fetch takes each of its beats at once; `data_beat.ready`
    stops the channel for both, whosever beat comes next, so it must depend neither on that nor on
    anything that waits for the fetch.
    `stop`: asks for nothing more and swallows the beats; `quiet` once nothing is under way.
    """

    def __init__(self, *, config: Config):
        beat = ReadBeat(data_bytes=config.host_bus_bytes)
        super().__init__(
            {
                "bus": Out(
                    ReadSignature(
                        address_bits=config.address_bits, data_bytes=config.host_bus_bytes
                    )
                ),
                "base": In(config.address_bits),
                "data_request": In(stream.Signature(ReadRequest())),
                "data_beat": Out(stream.Signature(beat)),
                "fetch_request": In(stream.Signature(ReadRequest())),
                "fetch_urgent": In(1),
                "fetch_beat": Out(stream.Signature(beat)),
                "stop": In(1),
                "quiet": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus
        placed = data.StructLayout({"address": len(self.base), "length": 8, "id": 1})

        # A fetch waits in `fetched`, with the sum with `base`, so that the choice comes last before
        # AR.
        fetched = Signal(placed)
        fetch_waits = Signal()
        fetch_goes = Signal()
        urgent = Signal()
        asked = Signal(placed)
        m.d.comb += [
            asked.address.eq(self.base + self.data_request.payload.offset),
            asked.length.eq(self.data_request.payload.length),
            asked.id.eq(DATA_ID),
        ]
        with m.If(~fetch_waits):
            m.d.sync += [
                fetched.address.eq(self.base + self.fetch_request.payload.offset),
                fetched.length.eq(self.fetch_request.payload.length),
                fetched.id.eq(FETCH_ID),
            ]

        sender = m.submodules.sender = SkidBuffer(payload=placed)
        room = Signal()  # for one more burst under way
        goes = Signal()
        fetch_first = Signal()
        sent = Signal()
        m.d.comb += [
            goes.eq(sender.input.ready & room & ~self.stop),
            fetch_first.eq(fetch_waits & (urgent | ~self.data_request.valid)),
            fetch_goes.eq(goes & fetch_first),
            self.data_request.ready.eq(goes & ~(fetch_waits & urgent)),
            sent.eq(goes & (fetch_waits | self.data_request.valid)),
            sender.input.valid.eq(sent),
            sender.input.payload.eq(Mux(fetch_first, fetched, asked)),
            bus.arvalid.eq(sender.output.valid),
            bus.arid.eq(sender.output.payload.id),
            bus.araddr.eq(sender.output.payload.address),
            bus.arlen.eq(sender.output.payload.length),
            sender.output.ready.eq(bus.arready),
        ]
        m.d.sync += [
            urgent.eq(self.fetch_urgent),
            fetch_waits.eq(self.fetch_request.valid & ~fetch_goes & ~self.fetch_request.ready),
            self.fetch_request.ready.eq(fetch_goes),
        ]

        # Counted a cycle late.
        under_way = Signal(range(READS_IN_FLIGHT + 1))
        began = Signal()
        ended = Signal()
        m.d.sync += [
            began.eq(sent),
            ended.eq(bus.rvalid & bus.rready & bus.rlast),
            under_way.eq(under_way + began - ended),
            self.quiet.eq((under_way == 0) & ~began & ~sent),
            # Up to three more have begun when the last of them shows.
            room.eq(under_way < READS_IN_FLIGHT - 2),
        ]

        m.d.comb += bus.rready.eq(self.data_beat.ready | self.stop)
        for beat, number, passes in (
            (self.data_beat, DATA_ID, 1),
            (self.fetch_beat, FETCH_ID, self.data_beat.ready),
        ):
            m.d.comb += [
                beat.valid.eq(bus.rvalid & (bus.rid == number) & passes & ~self.stop),
                beat.payload.data.eq(bus.rdata),
                beat.payload.error.eq(is_error(bus.rresp)),
            ]
        return m
