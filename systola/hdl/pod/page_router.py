# SPDX-License-Identifier: Apache-2.0
"""One AXI4-Lite port for the registers of all cores and of the pod."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.registers import REGISTER_SPACE_BITS, pod_space_bits
from systola.hdl.parts.promise import at_most_one, promised, promised_offer
from systola.hdl.transfers.axi import LiteSignature

NOWHERE = (1 << REGISTER_SPACE_BITS) - 4
"""Byte offset in a page at which there is no register."""


class PageRouter(wiring.Component):
    """A router that passes each read and write of `bus` on to the page that its address names.

    | port    | meaning |
    |---|---|
    | `bus`   | accesses of the host |
    | `pages` | page 0 of the pod, and a page for each core |

    An address beyond the last page becomes NOWHERE in page 0. One read and one write run at a time.
    Each takes one cycle more than without the router. The next access begins after the answer to
    the access before.
    """

    def __init__(self, *, cores: int):
        self._pages = cores + 1
        page = LiteSignature(address_bits=REGISTER_SPACE_BITS)
        super().__init__(
            {
                "bus": In(LiteSignature(address_bits=pod_space_bits(cores))),
                "pages": Out(page).array(self._pages),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, pages = self.bus, [self.pages[i] for i in range(self._pages)]

        def asked(name: str, address: Signal, offered: Signal) -> tuple[Signal, Signal]:
            """Return the page that an address chooses, as a one-hot code, and the offset in this
            page.
            """
            chosen = Signal(self._pages, name=f"{name}_chosen")
            offset = Signal(REGISTER_SPACE_BITS, name=f"{name}_offset")
            number = address[REGISTER_SPACE_BITS:]
            with m.If(~chosen.any() & offered):
                m.d.sync += [
                    chosen.eq(Mux(number < self._pages, Const(1) << number, 1)),
                    offset.eq(Mux(number < self._pages, address[:REGISTER_SPACE_BITS], NOWHERE)),
                ]
            promised(m, platform, at_most_one(chosen), "an access is for two pages")
            return chosen, offset

        writes, write_offset = asked("write", bus.awaddr, bus.awvalid & bus.wvalid)
        reads, read_offset = asked("read", bus.araddr, bus.arvalid)
        # the access is taken
        write_taken = Signal()
        read_taken = Signal()
        m.d.comb += [
            bus.awready.eq(Cat(page.awvalid & page.awready for page in pages).any()),
            bus.wready.eq(bus.awready),
            bus.bvalid.eq(write_taken & Cat(page.bvalid for page in pages).any()),
            bus.arready.eq(Cat(page.arvalid & page.arready for page in pages).any()),
            bus.rvalid.eq(read_taken & Cat(page.rvalid for page in pages).any()),
        ]
        with m.If(bus.awready):
            m.d.sync += write_taken.eq(1)
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += [write_taken.eq(0), writes.eq(0)]
        with m.If(bus.arready):
            m.d.sync += read_taken.eq(1)
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += [read_taken.eq(0), reads.eq(0)]
        for number, page in enumerate(pages):
            m.d.comb += [
                page.awvalid.eq(writes[number] & ~write_taken),
                page.wvalid.eq(page.awvalid),
                page.awaddr.eq(write_offset),
                page.awprot.eq(bus.awprot),
                page.wdata.eq(bus.wdata),
                page.wstrb.eq(bus.wstrb),
                page.bready.eq(writes[number] & bus.bready),
                page.arvalid.eq(reads[number] & ~read_taken),
                page.araddr.eq(read_offset),
                page.arprot.eq(bus.arprot),
                page.rready.eq(reads[number] & bus.rready),
            ]
            with m.If(writes[number]):
                m.d.comb += bus.bresp.eq(page.bresp)
            with m.If(reads[number]):
                m.d.comb += [bus.rdata.eq(page.rdata), bus.rresp.eq(page.rresp)]
        promised(m, platform, ~write_taken | writes.any(), "a write is taken for no page")
        promised(m, platform, ~read_taken | reads.any(), "a read is taken for no page")
        message = "an answer to a write is withdrawn"
        promised_offer(m, platform, bus.bvalid, bus.bready, bus.bresp, message)
        message = "an answer to a read is withdrawn"
        answer = Cat(bus.rdata, bus.rresp)
        promised_offer(m, platform, bus.rvalid, bus.rready, answer, message)
        return m
