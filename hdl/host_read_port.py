# SPDX-License-Identifier: Apache-2.0
"""The read half of the host port, shared by the host reader and the instruction fetch."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.hdl.axi import ReadSignature, is_error
from systola.hdl.commands import HOST_OFFSET_BITS

READS_IN_FLIGHT = 64
"""Bursts under way at one time; enough for a beat a cycle from single-beat bursts at 60 cycles."""

DATA_ID = 0
FETCH_ID = 1


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

    A request is registered and appears on AR in the next cycle; one a cycle. Data goes first,
    unless `fetch_urgent`. Beats pass through without delay. The fetch takes each of its beats at
    once; `data_beat.ready` stops the channel for both, whosever beat comes next, so it must depend
    neither on that nor on anything that waits for the fetch.
    `stop`: takes no more requests and swallows the beats; `quiet` once nothing is under way.
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
        under_way = Signal(range(READS_IN_FLIGHT + 1))
        free = Signal()
        m.d.comb += free.eq(
            (~bus.arvalid | bus.arready) & ~under_way[exact_log2(READS_IN_FLIGHT)] & ~self.stop
        )

        fetch_goes = Signal()
        request = Signal(ReadRequest())
        m.d.comb += [
            fetch_goes.eq(
                self.fetch_request.valid & (self.fetch_urgent | ~self.data_request.valid)
            ),
            request.eq(Mux(fetch_goes, self.fetch_request.payload, self.data_request.payload)),
            self.fetch_request.ready.eq(free & fetch_goes),
            self.data_request.ready.eq(free & ~fetch_goes),
        ]
        sent = free & (self.fetch_request.valid | self.data_request.valid)
        with m.If(bus.arready):
            m.d.sync += bus.arvalid.eq(0)
        with m.If(sent):
            m.d.sync += [
                bus.arvalid.eq(1),
                bus.arid.eq(Mux(fetch_goes, FETCH_ID, DATA_ID)),
                bus.araddr.eq(self.base + request.offset),
                bus.arlen.eq(request.length),
            ]
        ended = bus.rvalid & bus.rready & bus.rlast
        m.d.sync += under_way.eq(under_way + sent - ended)
        m.d.comb += self.quiet.eq(under_way == 0)

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
