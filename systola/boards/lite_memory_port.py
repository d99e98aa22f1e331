# SPDX-License-Identifier: Apache-2.0
"""AXI4-Lite access to a memory with a wider bus."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.boards.memory_access import MemoryAccessSignature
from systola.hdl.transfers.axi import LiteSignature, Response


class LiteMemoryPort(wiring.Component):
    """A port that reads and writes words of 32 bits, one at a time, in a memory with wider beats.

    | port     | meaning |
    |---|---|
    | `bus`    | AXI4-Lite slave |
    | `access` | accesses to the memory, of `data_bytes` each |

    Latency: some six cycles. Addresses outside the memory answer DECERR.
    """

    def __init__(self, *, address_bits: int, data_bytes: int):
        self._lane_bits = exact_log2(data_bytes // 4)
        access = MemoryAccessSignature(address_bits=address_bits, data_bytes=data_bytes)
        super().__init__(
            {"bus": In(LiteSignature(address_bits=address_bits)), "access": Out(access)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, access = self.bus, self.access
        write = Signal()
        address = Signal.like(bus.awaddr, reset_less=True)
        strobes = Signal(4, reset_less=True)
        data = Signal(32, reset_less=True)
        lane = Signal(self._lane_bits)
        response = Signal(Response)
        m.d.comb += [
            lane.eq(address[2:]),
            access.address.eq(address),
            access.write.eq(write),
            access.data.eq(data.replicate(1 << self._lane_bits)),
            access.strobes.eq(strobes << Cat(Const(0, 2), lane)),
            bus.rdata.eq(data),
            bus.rresp.eq(response),
            bus.bresp.eq(response),
        ]
        with m.FSM():
            with m.State("IDLE"):
                with m.If(bus.awvalid & bus.wvalid):
                    m.d.comb += [bus.awready.eq(1), bus.wready.eq(1)]
                    m.d.sync += [
                        write.eq(1),
                        address.eq(bus.awaddr),
                        strobes.eq(bus.wstrb),
                        data.eq(bus.wdata),
                    ]
                    m.next = "ASK"
                with m.Elif(bus.arvalid):
                    m.d.comb += bus.arready.eq(1)
                    m.d.sync += [write.eq(0), address.eq(bus.araddr)]
                    m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += access.valid.eq(1)
                with m.If(access.ready):
                    m.next = "AWAIT"
            with m.State("AWAIT"):
                m.d.sync += [
                    data.eq(access.read_data.word_select(lane, 32)),
                    response.eq(Mux(access.outside, Response.DECERR, Response.OKAY)),
                ]
                with m.If(access.answer):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += [bus.bvalid.eq(write), bus.rvalid.eq(~write)]
                with m.If(Mux(write, bus.bready, bus.rready)):
                    m.next = "IDLE"
        return m
