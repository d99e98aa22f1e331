# SPDX-License-Identifier: Apache-2.0
"""The AXI masters: offers that stay, the bursts that were asked for, as many beats as announced."""

from dataclasses import replace

from amaranth.hdl import Assert, Assume, Cat, Module, Signal, Value
from amaranth.lib import data

from systola.arch.config import PRESETS
from systola.hdl.axi import BOUNDARY_BYTES, Response
from systola.hdl.host_read_port import DATA_ID, FETCH_ID, READS_IN_FLIGHT, HostReadPort
from systola.verif.formal.harness import (
    Harness,
    Tracked,
    Unit,
    anything,
    assert_stays,
    assume_stays,
    before,
    constant,
    implies,
)
from systola.verif.formal.proof import Fault, Proof

TINY = replace(PRESETS["tiny"], max_burst_beats=4)
"""Short bursts, so that they end often; addresses have all their bits."""


def within(address: Value, size: Value, window: Value) -> Value:
    return (address + size) <= window


class HostReadPortHarness(Harness):
    """Requests that stay inside a window and a page; a memory that answers what it was asked for,
    with any ids, at any time.

    Whether a burst has as many beats as it asked for is the memory's business: `rlast` ends it.
    """

    def claims(self, m: Module) -> None:
        config = TINY
        dut = HostReadPort(config=config)
        unit = Unit(m, dut)
        bus = dut.bus
        base = constant(m, config.address_bits, "base")
        limit = constant(m, 33, "limit")
        m.d.comb += [
            dut.base.eq(base),
            Assume(base[:12] == 0),
            Assume(base + limit <= (1 << config.address_bits)),
            dut.fetch_urgent.eq(anything(m, 1, "urgent")),
            dut.stop.eq(anything(m, 1, "stop")),
            dut.data_beat.ready.eq(anything(m, 1, "data_ready")),
            dut.fetch_beat.ready.eq(1),
        ]
        for name in ("arready", "rid", "rdata", "rresp", "rlast", "rvalid"):
            port = Value.cast(getattr(bus, name))
            m.d.comb += port.eq(anything(m, len(port), f"any_{name}"))
        for name in ("data_request", "fetch_request"):
            request = getattr(dut, name)
            asked = request.payload
            size = (asked.length + 1) * config.host_bus_bytes
            m.d.comb += [
                request.valid.eq(anything(m, 1, f"{name}_valid")),
                asked.eq(anything(m, len(asked.as_value()), f"{name}_payload")),
                Assume(within(asked.offset, size, limit)),
                Assume(within(asked.offset[:12], size, Value.cast(BOUNDARY_BYTES))),
            ]
            assume_stays(m, request.valid, request.ready, asked, name)

        # AR: what was asked for, once, in order, in the window and in one page. The fetch is told a
        # cycle later that its request goes; a request of data that is taken may wait inside, and
        # the fetch goes past it.
        fetched = unit.inside("fetch_goes")
        taken = dut.data_request.valid & dut.data_request.ready
        asked = dut.data_request.payload
        size = (bus.arlen + 1) * config.host_bus_bytes
        on_offer = bus.arvalid & (bus.arid == DATA_ID)
        item = Tracked(m, enters=taken, word=asked, exits=on_offer & bus.arready, most=2)
        one = data.View(asked.shape(), item.word)
        told = Signal()
        fetch = Signal(asked.shape())  # the one that went last
        m.d.sync += told.eq(fetched)
        with m.If(fetched):
            m.d.sync += fetch.eq(dut.fetch_request.payload)
        fetch_offered = bus.arvalid & (bus.arid == FETCH_ID)
        fetch_stays = before(m, fetch_offered & ~bus.arready, "fetch_stays")
        shown = item.follows & (item.ahead == 0) & on_offer
        went = before(m, bus.arvalid & ~bus.arready, "ar_waited")
        stopped = before(m, dut.stop, "stopped")
        assert_stays(m, bus.arvalid, bus.arready, Cat(bus.araddr, bus.arlen, bus.arid), "ar")
        m.d.comb += [
            Assert(implies(fetched, dut.fetch_request.valid & ~told)),
            Assert(dut.fetch_request.ready == told),
            Assert(fetch_offered == (told | fetch_stays)),
            Assert(implies(stopped & bus.arvalid, went)),
            Assert(implies(on_offer, item.count != 0)),
            Assert(implies(shown, bus.araddr == base + one.offset)),
            Assert(implies(shown, bus.arlen == one.length)),
            Assert(implies(fetch_offered, bus.araddr == base + fetch.offset)),
            Assert(implies(fetch_offered, bus.arlen == fetch.length)),
            Assert(implies(bus.arvalid, bus.araddr >= base)),
            Assert(implies(bus.arvalid, within(bus.araddr, size, base + limit))),
            Assert(implies(bus.arvalid, within(bus.araddr[:12], size, Value.cast(BOUNDARY_BYTES)))),
        ]
        placed = data.StructLayout({"address": config.address_bits, "length": 8, "id": 1})
        waits, kept = unit.inside("data_waits"), data.View(placed, unit.inside("kept"))
        fetch_waits, copied = unit.inside("fetch_waits"), data.View(placed, unit.inside("fetched"))
        kept_size = (kept.length + 1) * config.host_bus_bytes
        behind = item.follows & waits & (item.ahead == on_offer)
        m.d.comb += self.lemmas(
            item.count == waits + on_offer,
            implies(behind, kept.address == base + one.offset),
            implies(behind, kept.length == one.length),
            implies(waits, kept.id == DATA_ID),
            implies(waits, kept.address >= base),
            implies(waits, within(kept.address, kept_size, base + limit)),
            implies(waits, within(kept.address[:12], kept_size, Value.cast(BOUNDARY_BYTES))),
            implies(fetch_waits, dut.fetch_request.valid & ~told),
            implies(fetch_waits, copied.address == base + dut.fetch_request.payload.offset),
            implies(fetch_waits, copied.length == dut.fetch_request.payload.length),
            implies(fetch_waits, copied.id == FETCH_ID),
            implies(told, dut.fetch_request.valid),
        )

        # R: each beat goes to one side, or nowhere on `stop`.
        under_way = Signal(range(READS_IN_FLIGHT + 2))  # with the one on offer
        answered = bus.rvalid & bus.rready
        offers = bus.arvalid & ~went
        open_now = Signal(range(READS_IN_FLIGHT + 2))
        ended = before(m, answered & bus.rlast, "ended")
        was_open = before(m, open_now + ended != 0, "was_open", init=1)
        m.d.sync += under_way.eq(open_now - (answered & bus.rlast))
        m.d.comb += [
            open_now.eq(under_way + offers),
            Assume(implies(bus.rvalid, under_way > went)),
            Assert(open_now <= READS_IN_FLIGHT),
            Assert(implies(dut.quiet, open_now == 0)),
            Assert(implies(~offers & ~was_open, dut.quiet)),
        ]
        m.d.comb += self.lemmas(
            unit.inside("began") == offers,
            unit.inside("ended") == ended,
            unit.inside("under_way") + offers == open_now + ended,
            implies(unit.inside("room"), open_now + ended < READS_IN_FLIGHT),
            unit.inside("none") == ~before(m, open_now + ended != 0, "open_before", init=1),
            implies(went, under_way != 0),
            under_way <= READS_IN_FLIGHT,
        )
        to_data = dut.data_beat.valid & dut.data_beat.ready
        to_fetch = dut.fetch_beat.valid
        failed = (bus.rresp == Response.SLVERR) | (bus.rresp == Response.DECERR)
        m.d.comb += [
            Assert(to_data == (answered & ~dut.stop & (bus.rid == DATA_ID))),
            Assert(to_fetch == (answered & ~dut.stop & (bus.rid == FETCH_ID))),
            Assert(implies(to_data, dut.data_beat.payload.data == bus.rdata)),
            Assert(implies(to_data, dut.data_beat.payload.error == failed)),
            Assert(implies(to_fetch, dut.fetch_beat.payload.data == bus.rdata)),
            Assert(implies(to_fetch, dut.fetch_beat.payload.error == failed)),
        ]


PROOFS = (
    Proof(
        unit="host_read_port",
        claim="AR stays, asks once for each request, in its window and page; beats to their side",
        harness=HostReadPortHarness,
        depth=3,
        faults=(
            Fault(
                unit="host_read_port",
                old="moves.eq(~bus.arvalid | bus.arready)",
                new="moves.eq(~bus.arvalid | bus.arready | self.fetch_urgent)",
            ),
            Fault(
                unit="host_read_port",
                old="under_way.eq(under_way + began - ended)",
                new="under_way.eq(under_way - ended)",
            ),
            Fault(
                unit="host_read_port",
                old="passes & ~self.stop",
                new="~self.stop",
            ),
        ),
        fault_depth=6,
    ),
)
