# SPDX-License-Identifier: Apache-2.0
"""The write channels of an AXI4 slave, for the on-board memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.boards.memory_access import ACCESS_LATENCY, MemoryAccessSignature
from systola.hdl.transfers.axi import Response, WriteSignature


class BurstWritePort(wiring.Component):
    """A unit that turns write bursts into accesses, one burst after the other.

    | port     | meaning |
    |---|---|
    | `bus`    | the write channels, a slave |
    | `access` | accesses to the memory |

    It accepts INCR bursts of full width only, see hdl/transfers/axi.py. Throughput: a beat a cycle
    within a burst; between bursts the unit waits for the answer to the last beat. A burst that
    leaves the memory answers DECERR, and writes the beats that lie inside.
    """

    def __init__(self, *, address_bits: int, data_bytes: int):
        self._data_bytes = data_bytes
        sizes = {"address_bits": address_bits, "data_bytes": data_bytes}
        super().__init__(
            {"bus": In(WriteSignature(**sizes)), "access": Out(MemoryAccessSignature(**sizes))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, access = self.bus, self.access
        address = Signal.like(bus.awaddr, reset_less=True)
        id_ = Signal(reset_less=True)
        failed = Signal()
        waiting = Signal(range(ACCESS_LATENCY + 1))
        m.d.comb += [
            access.address.eq(address),
            access.write.eq(1),
            access.data.eq(bus.wdata),
            access.strobes.eq(bus.wstrb),
            bus.bid.eq(id_),
            bus.bresp.eq(Mux(failed, Response.DECERR, Response.OKAY)),
        ]
        with m.If(access.answer & access.outside):
            m.d.sync += failed.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += bus.awready.eq(1)
                m.d.sync += [address.eq(bus.awaddr), id_.eq(bus.awid), failed.eq(0)]
                with m.If(bus.awvalid):
                    m.next = "BEATS"
            with m.State("BEATS"):
                m.d.comb += [access.valid.eq(bus.wvalid), bus.wready.eq(access.ready)]
                m.d.sync += waiting.eq(ACCESS_LATENCY)
                with m.If(access.valid & access.ready):
                    m.d.sync += address.eq(address + self._data_bytes)
                    with m.If(bus.wlast):
                        m.next = "AWAIT"
            with m.State("AWAIT"):
                m.d.sync += waiting.eq(waiting - 1)
                with m.If(waiting == 0):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += bus.bvalid.eq(1)
                with m.If(bus.bready):
                    m.next = "IDLE"
        return m
