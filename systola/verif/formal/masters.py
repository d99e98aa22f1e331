# SPDX-License-Identifier: Apache-2.0
"""Proofs of the units that have their own AXI bursts: host writer and weight fetch.

These units make the requested bursts, inside the window, with as many beats as announced.
"""

from dataclasses import replace

from amaranth.hdl import Assert, Assume, Cat, Const, Module, Mux, Signal, Value

from systola.hdl.transfers.axi import BOUNDARY_BYTES
from systola.hdl.transfers.host_writer import HostWriter
from systola.hdl.transfers.weight_fetch import READS_IN_FLIGHT as READS_OF_WEIGHTS
from systola.hdl.transfers.weight_fetch import WeightFetch
from systola.verif.formal.harness import (
    Harness,
    Tracked,
    Unit,
    anything,
    assert_stays,
    assume_stays,
    before,
    implies,
)
from systola.verif.formal.ports import TINY, within
from systola.verif.formal.proof import Fault, Proof

SHALLOW = replace(TINY, queue_depth=2, address_bits=32, weight_fifo_tiles=2, rows=2)
WINDOW_BASE, WINDOW_BYTES = 0x10000, 0x2000


class _HostWriter(Harness):
    """A host writer for proofs; it gets one command after the other, each a matrix in the window.

    The memory acknowledges a burst at any time after its address and data. The buffer may make the
    unit wait in any cycle.
    """

    def unit(self, m: Module) -> tuple[HostWriter, Unit]:
        config = SHALLOW
        dut = HostWriter(config=config)
        unit = Unit(m, dut)
        bus = dut.bus
        command, transfer = dut.queue.command, dut.queue.command.transfer
        stop = anything(m, 1, "stop")
        stopped = before(m, stop, "stopped_before")
        m.d.comb += [
            dut.base.eq(WINDOW_BASE),
            dut.stop.eq(stop),
            Assume(implies(stopped, stop)),  # once high, `stop` stays high until a reset
            dut.buffer.ready.eq(anything(m, 1, "buffer_ready")),
            Value.cast(dut.buffer.data).eq(anything(m, len(dut.buffer.data), "line")),
            dut.queue.blocked.host_memory.eq(anything(m, 1, "blocked")),
        ]
        for name in ("awready", "wready", "bid", "bvalid", "bresp"):
            port = Value.cast(getattr(bus, name))
            m.d.comb += port.eq(anything(m, len(port), f"any_{name}"))

        # Commands are small matrices anywhere, with one line in the buffer for each row.
        m.d.comb += [
            dut.queue.valid.eq(anything(m, 1, "command_valid")),
            command.eq(anything(m, len(command.as_value()), "command_payload")),
            Assume((transfer.address[:2] == 0) & (transfer.address < WINDOW_BYTES)),
            Assume((transfer.stride[:2] == 0) & (transfer.stride < 64)),
            Assume((transfer.rows != 0) & (transfer.rows <= 2)),
            Assume((transfer.blocks != 0) & (transfer.blocks <= 2)),
            Assume((transfer.beats != 0) & (transfer.beats <= 6)),
        ]
        assume_stays(m, dut.queue.valid, dut.queue.pop, command, "command")
        down = Mux(transfer.rows == 2, transfer.stride, 0)
        across = Mux(transfer.blocks == 2, config.output_pitch, 0)
        beats = Mux(transfer.rows == 2, 2, 1) * Mux(transfer.blocks == 2, 2, 1) * transfer.beats
        end = transfer.address + down + across + transfer.beats * config.host_bus_bytes
        m.d.comb += [
            Assume(implies(dut.queue.valid, end <= WINDOW_BYTES)),
            Assume(command.buffer.end == command.buffer.base + beats),
        ]
        return dut, unit


class WriteAddressHarness(_HostWriter):
    """A proof harness for the host writer's addresses (AW), which run ahead of the data.

    No data are sent here. The window has two pages, so that bursts come to the edge between the
    pages and to the end of the window.
    """

    def claims(self, m: Module) -> None:
        dut, unit = self.unit(m)
        bus = dut.bus
        base, limit = Const(WINDOW_BASE), Const(WINDOW_BYTES)
        m.d.comb += Assume(~bus.wready & ~dut.buffer.ready & ~bus.bvalid)
        assert_stays(m, bus.awvalid, bus.awready, Cat(bus.awaddr, bus.awlen), "aw")
        size = (bus.awlen + 1) * SHALLOW.host_bus_bytes
        m.d.comb += [
            Assert(implies(bus.awvalid, bus.awaddr >= base)),
            Assert(implies(bus.awvalid, within(bus.awaddr, size, base + limit))),
            Assert(implies(bus.awvalid, within(bus.awaddr[:12], size, Value.cast(BOUNDARY_BYTES)))),
        ]
        self._state(m, dut, unit)

    def _state(self, m: Module, dut: HostWriter, unit: Unit) -> None:
        """Add the lemmas about the planner's runs, the cutter's bursts and the bursts on offer."""
        transfer = dut.queue.command.transfer
        bus_bytes, most = SHALLOW.host_bus_bytes, SHALLOW.max_burst_beats
        shift, bits = (bus_bytes - 1).bit_length(), (most - 1).bit_length()
        run_valid, row_left, block_left = (
            unit.inside(f"planner.{name}")
            for name in ("run_valid", "rows_remaining", "blocks_remaining")
        )
        across = Mux(block_left != transfer.blocks, SHALLOW.output_pitch, 0)
        down = Mux(row_left != transfer.rows, transfer.stride, 0)
        m.d.comb += self.lemmas(
            implies(run_valid, dut.queue.valid),
            implies(run_valid, (row_left != 0) & (row_left <= transfer.rows)),
            implies(run_valid, (block_left != 0) & (block_left <= transfer.blocks)),
            implies(
                run_valid,
                unit.inside("planner.block_address") << shift == transfer.address + across,
            ),
            implies(
                run_valid,
                unit.inside("planner.address") << shift == transfer.address + across + down,
            ),
        )
        ahead = unit.inside("ahead")
        m.d.comb += self.lemmas(
            (ahead & (ahead + 1)[: len(ahead)]) == 0,
            implies(ahead[-1], unit.inside("bursts_full")),
            (unit.inside("there") == 0) & (unit.inside("on_the_way") == 0),
        )
        # All bursts that the cutter has yet to make of its run lie in the window.
        valid = unit.inside("planner.cutter.burst__valid")
        place = unit.inside("planner.cutter.burst_address")
        length = unit.inside("planner.cutter.burst_length")
        behind, ends_run, final = (
            unit.inside(f"planner.cutter.{name}")
            for name in ("bursts_remaining", "is_last_burst", "final_length")
        )
        largest_last = final == most - 1
        beats = ((behind - largest_last) << bits) + final + 1 - place[:bits]
        m.d.comb += self.lemmas(
            implies(valid, dut.queue.valid),
            implies(valid, ends_run == (behind == largest_last)),
            implies(valid, (beats > 0) & (beats <= 6)),
            implies(valid & ends_run, length + 1 == beats),
            implies(valid & ~ends_run, length + place[:bits] == most - 1),
            implies(valid, (place + beats) << shift <= WINDOW_BYTES),
        )
        for name, there in (
            ("shown", dut.bus.awvalid),
            ("spare", unit.inside("address_sender.spare_valid")),
        ):
            word = unit.inside(f"address_sender.{name}")
            address, size = (
                word[: len(dut.bus.awaddr)],
                (word[len(dut.bus.awaddr) :] + 1) * bus_bytes,
            )
            m.d.comb += self.lemmas(
                implies(there, (address >= WINDOW_BASE) & (address[:shift] == 0)),
                implies(there, address + size <= WINDOW_BASE + WINDOW_BYTES),
                implies(there, address[:12] + size <= BOUNDARY_BYTES),
            )


class WriteDataHarness(_HostWriter):
    """A proof harness for the host writer's data (W) and the ends of its commands.

    All matrices lie at the same address.
    """

    def claims(self, m: Module) -> None:
        dut, _ = self.unit(m)
        bus = dut.bus
        transfer = dut.queue.command.transfer
        m.d.comb += [
            Assume((transfer.address == 0) & (transfer.stride == 32)),
            Assert(bus.bready),
        ]
        stop = dut.stop
        stopped = before(m, stop, "stopped")
        beats = dut.queue.command.buffer.end - dut.queue.command.buffer.base
        assert_stays(m, bus.wvalid, bus.wready, Cat(bus.wdata, bus.wstrb, bus.wlast), "w")
        # The bursts of data (W) have the order and the lengths of the addresses (AW). None begins
        # before its address is offered.
        waited = before(m, bus.awvalid & ~bus.awready, "aw_offered_before")
        announced = bus.awvalid & ~waited
        sent = bus.wvalid & bus.wready
        place = Signal(8)  # number of the next beat in its burst, counted from 0
        item = Tracked(
            m, enters=announced, word=bus.awlen, exits=sent & bus.wlast, most=16, through=True
        )
        with m.If(sent):
            m.d.sync += place.eq(Mux(bus.wlast, 0, place + 1))
        current = item.follows & (item.ahead == 0)
        m.d.comb += [
            Assert(implies(bus.wvalid, (item.count != 0) | announced)),
            Assert(implies(current & bus.wvalid, bus.wlast == (place == item.word))),
        ]

        # A command is popped only after all its beats and answers. `quiet` is high only if no burst
        # is open.
        accepted, answered, finished = (Signal(6, name=n) for n in ("aws", "bs", "ws"))
        beat_count = Signal(8)
        m.d.sync += [
            accepted.eq(accepted + (bus.awvalid & bus.awready)),
            finished.eq(finished + (sent & bus.wlast)),
            answered.eq(answered + bus.bvalid),
            beat_count.eq(Mux(dut.queue.pop, 0, beat_count + sent)),
        ]
        long_stopped = before(m, stop & stopped, "long_stopped")
        w_waited = before(m, bus.wvalid & ~bus.wready, "w_offered_before")
        # After `stop`, at most one more address is offered, and one more beat with data. The
        # strobes of later beats are 0.
        late_address, late_beat = Signal(), Signal()
        with m.If(long_stopped):
            m.d.sync += [
                late_address.eq(late_address | announced),
                late_beat.eq(late_beat | (bus.wvalid & ~w_waited)),
            ]
        m.d.comb += [
            Assume(implies(bus.bvalid, (answered < accepted) & (answered < finished))),
            Assert(implies(dut.quiet, ~(bus.awvalid | bus.wvalid) & (answered == accepted))),
            Assert(implies(dut.queue.pop & ~stop, beat_count == beats)),
            Assert(implies(dut.queue.pop, (answered == accepted) & (answered == finished))),
            Assert(implies(long_stopped & announced, ~late_address)),
            Assert(implies(long_stopped & bus.wvalid & ~w_waited & late_beat, bus.wstrb == 0)),
        ]


class WeightFetchHarness(Harness):
    """A proof harness for the weight fetch, which gets one command after the other in the window.

    The memory answers the bursts that it took. A beat is a row of weights here.
    """

    def claims(self, m: Module) -> None:
        config = SHALLOW
        dut = WeightFetch(config=config)
        Unit(m, dut)
        bus = dut.bus
        base, limit = Const(WINDOW_BASE), Const(WINDOW_BYTES)
        stop = anything(m, 1, "stop")
        stopped = before(m, stop, "stopped")
        transfer = dut.queue.command.transfer
        m.d.comb += [
            dut.base.eq(base),
            dut.stop.eq(stop),
            Assume(implies(stopped, stop)),  # once high, `stop` stays high until a reset
            dut.rows.pop.eq(dut.rows.valid & ~stop & anything(m, 1, "take")),
            dut.queue.valid.eq(anything(m, 1, "command_valid")),
            dut.queue.command.eq(anything(m, len(dut.queue.command.as_value()), "command_payload")),
            Assume((transfer.address[:2] == 0) & (transfer.address < WINDOW_BYTES)),
            Assume((transfer.beats != 0) & (transfer.beats <= 12)),
            Assume(transfer.address + transfer.beats * config.weight_bus_bytes <= limit),
        ]
        assume_stays(m, dut.queue.valid, dut.queue.pop, dut.queue.command, "command")
        for name in ("arready", "rid", "rdata", "rresp", "rlast", "rvalid"):
            port = Value.cast(getattr(bus, name))
            m.d.comb += port.eq(anything(m, len(port), f"any_{name}"))

        assert_stays(m, bus.arvalid, bus.arready, Cat(bus.araddr, bus.arlen), "ar")
        beats = bus.arlen + 1
        size = beats * config.weight_bus_bytes
        waited = before(m, bus.arvalid & ~bus.arready, "ar_offered_before")
        asked = bus.arvalid & ~waited
        late, long_stopped = Signal(), stopped & before(m, stopped, "long_stopped")
        # number of bursts that were offered or accepted, and are not yet answered in full
        under_way = Signal(range(READS_OF_WEIGHTS + 2))
        owed = Signal(8)  # number of beats of taken commands that were not yet requested
        answered = bus.rvalid & bus.rready
        m.d.sync += [
            under_way.eq(under_way + asked - (answered & bus.rlast)),
            owed.eq(owed + Mux(dut.queue.pop, transfer.beats, 0) - Mux(asked, beats, 0)),
        ]
        m.d.comb += [
            Assume(implies(bus.rvalid, under_way > (waited & bus.arvalid))),
            Assert(implies(bus.arvalid, bus.araddr >= base)),
            Assert(implies(bus.arvalid, within(bus.araddr, size, base + limit))),
            Assert(implies(bus.arvalid, within(bus.araddr[:12], size, Value.cast(BOUNDARY_BYTES)))),
            Assert(implies(asked, owed >= beats)),
            Assert(under_way + asked <= READS_OF_WEIGHTS),
            Assert(implies(dut.quiet, under_way + asked == 0)),
            Assert(implies(before(m, under_way + asked == 0, "was_quiet") & ~asked, dut.quiet)),
            Assert(implies(long_stopped & asked, ~late)),
        ]
        # After `stop`, one more burst may follow the burst on offer.
        with m.If(long_stopped & asked):
            m.d.sync += late.eq(1)

        # Each beat becomes one row, in order.
        rows = config.weight_fifo_tiles * config.rows
        arrives = answered & ~stop
        item = Tracked(m, enters=arrives, word=bus.rdata, exits=dut.rows.pop, most=rows)
        oldest = before(m, item.follows & (item.ahead == 0) & dut.rows.valid, "was_oldest")
        m.d.comb += Assert(implies(oldest, dut.rows.row == before(m, item.word, "oldest_word")))


PROOFS = (
    Proof(
        unit="host_writer",
        claim="AW stays; its bursts lie in the window and in one page",
        harness=WriteAddressHarness,
        depth=3,
        faults=(
            Fault(
                unit="host_writer",
                old="eq(bus.awready)",
                new="eq(bus.awready | ~self.queue.blocked.host_memory)",
            ),
            Fault(
                unit="burst_cutter",
                old="burst_length.eq(Mux(is_single, run.beats - 1, ~first_beat))",
                new="burst_length.eq(Mux(is_single, run.beats - 1, largest))",
            ),
        ),
        fault_depth=7,
        quick=False,
    ),
    Proof(
        unit="host_writer",
        claim="W stays, has the bursts that AW announced; done when all beats are answered",
        harness=WriteDataHarness,
        depth=13,
        bounded=True,
        faults=(
            Fault(
                unit="host_writer",
                old="Mux(burst_begun, beats_remaining == 2,",
                new="Mux(burst_begun, beats_remaining == 3,",
            ),
            Fault(
                unit="host_writer",
                old="channel_free.eq(~bus.wvalid | bus.wready)",
                new="channel_free.eq(~bus.wvalid | bus.wready | bus.awready)",
            ),
            Fault(
                unit="host_writer",
                old="(bursts_unanswered == 1) &",
                new="(bursts_unanswered <= 2) &",
            ),
        ),
        fault_depth=12,
        quick=False,
    ),
    Proof(
        unit="weight_fetch",
        claim="AR stays, in window and page, no more than commands ask for; rows once, in order",
        harness=WeightFetchHarness,
        depth=12,
        bounded=True,
        faults=(
            Fault(
                unit="weight_fetch",
                old="eq(bus.arready)",
                new="eq(bus.arready | bus.rvalid)",
            ),
            Fault(
                unit="weight_fetch",
                old="bus.rready.eq((~fifo.full & beat_allowed) | self.stop)",
                new="bus.rready.eq(beat_allowed | self.stop)",
            ),
        ),
        fault_depth=9,
        quick=False,
    ),
)
