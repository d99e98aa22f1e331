# SPDX-License-Identifier: Apache-2.0
"""Proofs of the host's read port, an AXI master.

An offer of the port stays until it is taken. The bursts are the requested ones, and each beat goes
to its requester.
"""

from dataclasses import replace

from amaranth.hdl import Assert, Assume, Cat, Module, Signal, Value
from amaranth.lib import data

from systola.arch.config import PRESETS
from systola.arch.registers import DATA_ID, FETCH_ID
from systola.hdl.transfers.axi import BOUNDARY_BYTES, Response
from systola.hdl.transfers.host_read_port import READS_IN_FLIGHT, HostReadPort
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
"""A machine with short bursts, so that bursts end often. Addresses have their full width."""


def within(address: Value, size: Value, window: Value) -> Value:
    return (address + size) <= window


class HostReadPortHarness(Harness):
    """A proof harness for the read port, with two requesters and a memory with any delays and IDs.

    Each request lies inside the window and a page. The memory answers only requests. The memory
    decides whether a burst has as many beats as requested: `rlast` ends a burst.
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

        # AR has each request once, in order, inside the window and inside one page. The fetch gets
        # `ready` a cycle after its request was sent.
        fetched = unit.inside("fetch_goes")
        taken = dut.data_request.valid & dut.data_request.ready
        size = (bus.arlen + 1) * config.host_bus_bytes
        placed = data.StructLayout({"address": config.address_bits, "length": 8, "id": 1})
        asked, here = Signal(placed), Signal(placed)
        sends, sent = taken | fetched, bus.arvalid & bus.arready
        m.d.comb += [
            asked.address.eq(base + dut.data_request.payload.offset),
            asked.length.eq(dut.data_request.payload.length),
            asked.id.eq(DATA_ID),
            here.eq(Cat(bus.araddr, bus.arlen, bus.arid)),
        ]
        with m.If(fetched):
            m.d.comb += [
                asked.address.eq(base + dut.fetch_request.payload.offset),
                asked.length.eq(dut.fetch_request.payload.length),
                asked.id.eq(FETCH_ID),
            ]
        item = Tracked(m, enters=sends, word=asked, exits=sent, most=2)
        told = Signal()
        m.d.sync += told.eq(fetched)
        shown = item.follows & (item.ahead == 0)
        assert_stays(m, bus.arvalid, bus.arready, here, "ar")
        m.d.comb += [
            Assert(~(taken & fetched)),
            Assert(implies(fetched, dut.fetch_request.valid & ~told)),
            Assert(dut.fetch_request.ready == told),
            Assert(implies(dut.stop, ~sends)),
            Assert(bus.arvalid == (item.count != 0)),
            Assert(implies(shown, here.as_value() == item.word)),
            Assert(implies(bus.arvalid, bus.araddr >= base)),
            Assert(implies(bus.arvalid, within(bus.araddr, size, base + limit))),
            Assert(implies(bus.arvalid, within(bus.araddr[:12], size, Value.cast(BOUNDARY_BYTES)))),
        ]
        waits, kept = (
            unit.inside("sender.spare_valid"),
            data.View(placed, unit.inside("sender.spare")),
        )
        fetch_waits, copied = (
            unit.inside("fetch_waits"),
            data.View(placed, unit.inside("fetch_burst")),
        )
        kept_size = (kept.length + 1) * config.host_bus_bytes
        m.d.comb += self.lemmas(
            item.count == bus.arvalid + waits,
            unit.inside("sender.spare_free") == ~waits,
            implies(item.follows & (item.ahead == 1), kept.as_value() == item.word),
            implies(waits, kept.address >= base),
            implies(waits, within(kept.address, kept_size, base + limit)),
            implies(waits, within(kept.address[:12], kept_size, Value.cast(BOUNDARY_BYTES))),
            implies(fetch_waits, dut.fetch_request.valid & ~told),
            implies(fetch_waits, copied.address == base + dut.fetch_request.payload.offset),
            implies(fetch_waits, copied.length == dut.fetch_request.payload.length),
            implies(fetch_waits, copied.id == FETCH_ID),
            implies(told, dut.fetch_request.valid),
        )

        # Each beat on R goes to the requester of its ID, or nowhere on `stop`.
        # number of bursts requested and not yet answered
        under_way = Signal(range(READS_IN_FLIGHT + 2))
        answered = bus.rvalid & bus.rready
        began = before(m, sends, "began_before")
        ended = before(m, answered & bus.rlast, "ended_before")
        was_open = before(m, (under_way + ended != 0) | sends, "was_open", init=1)
        m.d.sync += under_way.eq(under_way + sends - (answered & bus.rlast))
        m.d.comb += [
            Assume(implies(bus.rvalid, under_way > item.count)),
            Assert(under_way <= READS_IN_FLIGHT),
            Assert(implies(dut.quiet, under_way == 0)),
            Assert(implies(~was_open, dut.quiet)),
        ]
        m.d.comb += self.lemmas(
            unit.inside("burst_began") == began,
            unit.inside("burst_ended") == ended,
            unit.inside("bursts_under_way") + began == under_way + ended,
            implies(unit.inside("has_room"), under_way + ended < READS_IN_FLIGHT),
            dut.quiet == ~was_open,
            item.count <= under_way,
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
                old="eq(bus.arready)",
                new="eq(bus.arready | self.fetch_urgent)",
            ),
            Fault(
                unit="host_read_port",
                old="bursts_under_way.eq(bursts_under_way + burst_began - burst_ended)",
                new="bursts_under_way.eq(bursts_under_way - burst_ended)",
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
