# SPDX-License-Identifier: Apache-2.0
"""The read half of the host port, shared by the host reader and the instruction fetch."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.registers import DATA_ID, FETCH_ID
from systola.hdl.commands import HOST_OFFSET_BITS
from systola.hdl.parts.promise import promised
from systola.hdl.parts.skid_buffer import SkidBuffer
from systola.hdl.transfers.axi import ReadSignature, is_error

READS_IN_FLIGHT = 64
"""Largest number of bursts under way. It allows a burst of one beat a cycle at latency 60."""

FETCH_INTERVAL = 3
"""Least number of cycles from a request of the fetch to its next request."""


class ReadRequest(data.StructLayout):
    """A request for one burst: its byte offset in the host window, and its beats - 1."""

    def __init__(self) -> None:
        super().__init__({"offset": HOST_OFFSET_BITS, "length": 8})


class ReadBeat(data.StructLayout):
    """A beat of read data. `error`: memory has answered with an error."""

    def __init__(self, *, data_bytes: int):
        super().__init__({"data": 8 * data_bytes, "error": 1})


class HostReadPort(wiring.Component):
    """A port that sends bursts to host memory and returns the beats by AXI id.

    | port            | meaning |
    |---|---|
    | `bus`           | the read channels of host memory |
    | `base`          | address of the host window |
    | `data_request`  | a request for data; `ready` comes from registers through a gate |
    | `data_beat`     | the beats of data |
    | `fetch_request` | a request of the fetch; `ready` is a register |
    | `fetch_urgent`  | in the next cycle the fetch goes first |
    | `fetch_beat`    | the beats of the fetch, which takes each of them at once |
    | `stop`          | sends no more requests and swallows the beats |
    | `quiet`         | no burst is under way |

    A request for data appears on AR in the next cycle at the earliest, one a cycle. A request of
    the fetch is copied into a register first, so it takes a cycle more. Its `ready` comes after the
    grant, so the fetch may send one request in FETCH_INTERVAL cycles. Data goes first, unless
    `fetch_urgent` was high in the cycle before.

    Beats pass through without delay. A low `data_beat.ready` stops the channel for both users, even
    if the next beat belongs to the fetch. So `data_beat.ready` must depend neither on the owner of
    the next beat nor on anything that waits for the fetch.
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

        # A request of the fetch waits in `fetch_burst`, with `base` already added. So the choice
        # between both requests is the last logic before AR.
        fetch_burst = Signal(placed)
        fetch_waits = Signal()
        fetch_goes = Signal()
        fetch_is_urgent = Signal()
        data_burst = Signal(placed)
        m.d.comb += [
            data_burst.address.eq(self.base + self.data_request.payload.offset),
            data_burst.length.eq(self.data_request.payload.length),
            data_burst.id.eq(DATA_ID),
        ]
        with m.If(~fetch_waits):
            m.d.sync += [
                fetch_burst.address.eq(self.base + self.fetch_request.payload.offset),
                fetch_burst.length.eq(self.fetch_request.payload.length),
                fetch_burst.id.eq(FETCH_ID),
            ]

        sender = m.submodules.sender = SkidBuffer(payload=placed)
        has_room = Signal()  # there is room for one more burst under way
        may_send = Signal()
        fetch_first = Signal()
        burst_sent = Signal()
        m.d.comb += [
            may_send.eq(sender.input.ready & has_room & ~self.stop),
            fetch_first.eq(fetch_waits & (fetch_is_urgent | ~self.data_request.valid)),
            fetch_goes.eq(may_send & fetch_first),
            self.data_request.ready.eq(may_send & ~(fetch_waits & fetch_is_urgent)),
            burst_sent.eq(may_send & (fetch_waits | self.data_request.valid)),
            sender.input.valid.eq(burst_sent),
            sender.input.payload.eq(Mux(fetch_first, fetch_burst, data_burst)),
            bus.arvalid.eq(sender.output.valid),
            bus.arid.eq(sender.output.payload.id),
            bus.araddr.eq(sender.output.payload.address),
            bus.arlen.eq(sender.output.payload.length),
            sender.output.ready.eq(bus.arready),
        ]
        m.d.sync += [
            fetch_is_urgent.eq(self.fetch_urgent),
            fetch_waits.eq(self.fetch_request.valid & ~fetch_goes & ~self.fetch_request.ready),
            self.fetch_request.ready.eq(fetch_goes),
        ]

        # `bursts_under_way` counts one cycle late.
        bursts_under_way = Signal(range(READS_IN_FLIGHT + 1))
        burst_began = Signal()
        burst_ended = Signal()
        m.d.sync += [
            burst_began.eq(burst_sent),
            burst_ended.eq(bus.rvalid & bus.rready & bus.rlast),
            bursts_under_way.eq(bursts_under_way + burst_began - burst_ended),
            self.quiet.eq((bursts_under_way == 0) & ~burst_began & ~burst_sent),
            # `bursts_under_way` may not show the last three bursts yet.
            has_room.eq(bursts_under_way < READS_IN_FLIGHT - 2),
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
        room = bursts_under_way <= READS_IN_FLIGHT
        promised(m, platform, room, "more reads are under way than may be")
        data_goes = self.data_request.valid & self.data_request.ready
        promised(m, platform, ~(data_goes & fetch_goes), "data and fetch are granted at once")
        promised(m, platform, ~(self.stop & burst_sent), "a burst is sent while the port stops")
        one_side = ~(self.data_beat.valid & self.fetch_beat.valid)
        promised(m, platform, one_side, "a beat goes to both sides")
        rests = ~self.quiet | (bursts_under_way == 0)
        promised(m, platform, rests, "the port is quiet while reads are under way")
        return m
