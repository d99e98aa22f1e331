# SPDX-License-Identifier: Apache-2.0
"""The read channels of an AXI4 slave, for the on-board memory."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from systola.boards.memory_access import ACCESS_LATENCY, MemoryAccessSignature
from systola.hdl.transfers.axi import ReadSignature, Response

BEATS_AHEAD = 8
"""Number of beats that are read before the master takes them.

The number is above the latency, so that there can be a beat in each cycle.
"""


class BurstReadPort(wiring.Component):
    """A unit that turns read bursts into accesses, and their answers into beats, in order.

    | port     | meaning |
    |---|---|
    | `bus`    | the read channels, a slave |
    | `access` | accesses to the memory |

    It accepts INCR bursts of full width only, see hdl/transfers/axi.py. Throughput: a beat a cycle
    within a burst, if the memory and the master keep up; one cycle is lost between bursts. Beats
    outside the memory answer DECERR.
    """

    def __init__(self, *, address_bits: int, data_bytes: int):
        self._data_bytes = data_bytes
        sizes = {"address_bits": address_bits, "data_bytes": data_bytes}
        super().__init__(
            {"bus": In(ReadSignature(**sizes)), "access": Out(MemoryAccessSignature(**sizes))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, access = self.bus, self.access
        m.submodules.beats = beats = SyncFIFOBuffered(
            width=8 * self._data_bytes + 3, depth=BEATS_AHEAD
        )

        busy = Signal()
        address = Signal.like(bus.araddr, reset_less=True)
        left = Signal.like(bus.arlen, reset_less=True)
        id_ = Signal(reset_less=True)
        ahead = Signal(range(BEATS_AHEAD + 1))
        asked = Signal()
        taken = Signal()
        m.d.comb += [
            bus.arready.eq(~busy),
            access.valid.eq(busy & (ahead != BEATS_AHEAD)),
            access.address.eq(address),
            asked.eq(access.valid & access.ready),
            taken.eq(bus.rvalid & bus.rready),
        ]
        m.d.sync += ahead.eq(ahead + asked - taken)
        with m.If(asked):
            m.d.sync += [
                address.eq(address + self._data_bytes),
                left.eq(left - 1),
                busy.eq(left != 0),
            ]
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [
                busy.eq(1),
                address.eq(bus.araddr),
                left.eq(bus.arlen),
                id_.eq(bus.arid),
            ]

        # Identifier and last flag of a beat are delayed by the latency of the memory, so that they
        # leave with its data.
        beside = Cat(id_, left == 0)
        for _ in range(ACCESS_LATENCY):
            delayed = Signal(2, reset_less=True)
            m.d.sync += delayed.eq(beside)
            beside = delayed
        outside = Signal()
        m.d.comb += [
            beats.w_en.eq(access.answer),
            beats.w_data.eq(Cat(access.read_data, access.outside, beside)),
            bus.rvalid.eq(beats.r_rdy),
            beats.r_en.eq(bus.rready),
            Cat(bus.rdata, outside, bus.rid, bus.rlast).eq(beats.r_data),
            bus.rresp.eq(Mux(outside, Response.DECERR, Response.OKAY)),
        ]
        return m
