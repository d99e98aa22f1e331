# SPDX-License-Identifier: Apache-2.0
"""Proofs of how transfers are cut into AXI bursts.

All requested beats are in a burst, once and in order, and no burst crosses a 4 KiB boundary.
"""

from amaranth.hdl import Assert, Assume, Module, Mux, Signal

from systola.hdl.commands import Transfer
from systola.hdl.transfers.axi import BOUNDARY_BYTES
from systola.hdl.transfers.burst_cutter import BurstCutter, Run
from systola.hdl.transfers.burst_planner import BurstPlanner
from systola.verif.formal.harness import (
    Harness,
    Unit,
    anything,
    assert_stays,
    assume_stays,
    implies,
)
from systola.verif.formal.proof import Fault, Proof

BUS_BYTES = 256
"""Bytes of a beat in the proofs, so that 4 KiB are only 16 beats.

Bursts of up to 8 beats then often reach the edge of 4 KiB. Addresses that are counted in beats
behave alike for any width of the bus.
"""
BURST_BEATS = 8
ADDRESS_BITS = 16
BEAT_BITS = 7


class BurstCutterHarness(Harness):
    """A proof harness for the burst cutter, which follows a run (successive beats) from its start.

    The unit only adds to the address and counts the beats down. So an address of 16 bits and a
    count of 7 bits have all the carries and corners of wider ones.
    """

    def claims(self, m: Module) -> None:
        dut = BurstCutter(
            address_bits=ADDRESS_BITS,
            beat_bits=BEAT_BITS,
            bus_bytes=BUS_BYTES,
            max_burst_beats=BURST_BEATS,
        )
        unit = Unit(m, dut)
        run, burst = dut.run, dut.burst
        m.d.comb += [
            run.valid.eq(anything(m, 1, "run_valid")),
            run.payload.eq(anything(m, len(run.payload.as_value()), "run_payload")),
            burst.ready.eq(anything(m, 1, "burst_ready")),
            Assume(run.payload.beats != 0),
            Assume(run.payload.address[: (BUS_BYTES - 1).bit_length()] == 0),
        ]
        assert_stays(m, burst.valid, burst.ready, burst.payload, "burst")

        # These signals show the part of the present run that is not yet in a burst.
        address = Signal(ADDRESS_BITS)
        left = Signal(BEAT_BITS)
        last = Signal()
        first = Signal()
        beats = Signal(range(BURST_BEATS + 1))
        taken = burst.valid & burst.ready
        m.d.comb += beats.eq(burst.payload.length + 1)
        with m.If(taken):
            m.d.sync += [
                address.eq(address + beats * BUS_BYTES),
                left.eq(left - beats),
                first.eq(0),
            ]
        enters = run.valid & run.ready
        free = (left == 0) | (taken & (beats == left))
        with m.If(enters):
            m.d.sync += [
                address.eq(run.payload.address),
                left.eq(run.payload.beats),
                last.eq(run.payload.last),
                first.eq(1),
            ]
        within = burst.payload.address[: (BOUNDARY_BYTES - 1).bit_length()]
        ends = beats == left
        full = beats == BURST_BEATS
        m.d.comb += [
            Assert(burst.valid == (left != 0)),
            Assert(run.ready == free),
            Assert(implies(burst.valid, burst.payload.address == address)),
            Assert(implies(burst.valid, (burst.payload.length < BURST_BEATS) & (beats <= left))),
            Assert(implies(burst.valid, within + beats * BUS_BYTES <= BOUNDARY_BYTES)),
            Assert(implies(burst.valid & ~first & ~ends, full)),
            Assert(implies(burst.valid, burst.payload.last == (last & ends))),
        ]

        # These lemmas relate the unit's registers to the rest of the run: the bursts to come, and
        # their lengths.
        shift, bits = (BUS_BYTES - 1).bit_length(), (BURST_BEATS - 1).bit_length()
        behind, ends_run = unit.inside("bursts_remaining"), unit.inside("is_last_burst")
        final, last_run = unit.inside("final_length"), unit.inside("last_run")
        place = address[shift : shift + bits]
        largest_last = final == BURST_BEATS - 1
        m.d.comb += self.lemmas(
            implies(burst.valid, ends_run == (behind == largest_last)),
            implies(burst.valid, last_run == last),
            implies(burst.valid, ((behind - largest_last) << bits) + final + 1 == place + left),
            implies(burst.valid & ends_run, burst.payload.length + 1 == left),
            implies(burst.valid & ~ends_run, burst.payload.length + place == BURST_BEATS - 1),
            address[:shift] == 0,
        )


class BurstPlannerHarness(Harness):
    """A proof harness for the burst planner: a transfer becomes a run for each block and row.

    It follows the runs on their way to the burst cutter.
    """

    PITCH = 512

    def claims(self, m: Module) -> None:
        layout = Transfer(address_bits=ADDRESS_BITS, beat_bits=BEAT_BITS)
        dut = BurstPlanner(
            transfer=layout, bus_bytes=BUS_BYTES, max_burst_beats=BURST_BEATS, pitch=self.PITCH
        )
        unit = Unit(m, dut)
        transfer = dut.transfer
        wanted = transfer.payload
        m.d.comb += [
            transfer.valid.eq(anything(m, 1, "transfer_valid")),
            wanted.eq(anything(m, layout.size, "transfer_payload")),
            dut.burst.ready.eq(anything(m, 1, "burst_ready")),
            Assume((wanted.beats != 0) & (wanted.rows != 0) & (wanted.blocks != 0)),
            Assume((wanted.address | wanted.stride)[: (BUS_BYTES - 1).bit_length()] == 0),
        ]
        assume_stays(m, transfer.valid, transfer.ready, wanted, "transfer")
        # BurstCutterHarness proves that the cutter makes bursts of the runs that it takes. So only
        # the runs are checked here.
        valid, ready = unit.inside("run__valid"), unit.inside("cutter.run__ready")
        run = Run(address_bits=ADDRESS_BITS, beat_bits=BEAT_BITS)(unit.inside("run__payload"))
        assert_stays(m, valid, ready, run, "run")

        under_way = Signal()
        here, block_here = Signal(ADDRESS_BITS), Signal(ADDRESS_BITS)
        ends = Signal()
        row, block = Signal(16), Signal(12)
        last_row, last_block = row == wanted.rows - 1, block == wanted.blocks - 1
        taken = valid & ready
        begun = Signal()  # whether the transfer's first run has been taken
        address, block_address = Signal(ADDRESS_BITS), Signal(ADDRESS_BITS)
        m.d.comb += [
            here.eq(Mux(begun, address, wanted.address)),
            block_here.eq(Mux(begun, block_address, wanted.address)),
            ends.eq(taken & last_row & last_block),
        ]
        m.d.sync += under_way.eq(transfer.valid & ~ends)
        with m.If(taken):
            m.d.sync += begun.eq(~ends)
            with m.If(last_row):
                m.d.sync += [
                    row.eq(0),
                    block.eq(Mux(last_block, 0, block + 1)),
                    address.eq(block_here + self.PITCH),
                    block_address.eq(block_here + self.PITCH),
                ]
            with m.Else():
                m.d.sync += [
                    row.eq(row + 1),
                    address.eq(here + wanted.stride),
                    block_address.eq(block_here),
                ]
        m.d.comb += [
            # A waiting transfer begins as soon as the transfer before it is complete.
            Assert(valid == under_way),
            Assert(transfer.ready == ends),
            Assert(implies(valid, run.address == here)),
            Assert(implies(valid, run.beats == wanted.beats)),
            Assert(implies(valid, run.last == (last_row & last_block))),
        ]

        shift = (BUS_BYTES - 1).bit_length()
        rows_left, blocks_left = unit.inside("rows_remaining"), unit.inside("blocks_remaining")
        m.d.comb += self.lemmas(
            implies(begun, valid),
            implies(valid, transfer.valid),
            implies(valid, (row < wanted.rows) & (block < wanted.blocks)),
            implies(~begun, (row == 0) & (block == 0)),
            (address | block_address)[:shift] == 0,
            implies(valid, unit.inside("row_is_last") == (rows_left == 1)),
            implies(valid, unit.inside("block_is_last") == (blocks_left == 1)),
            implies(valid, rows_left == wanted.rows - row),
            implies(valid, blocks_left == wanted.blocks - block),
            implies(valid, unit.inside("block_address") == block_here[shift:]),
        )


PROOFS = (
    Proof(
        unit="burst_cutter",
        claim="each beat of a run in one burst, in order, full bursts inside, none across 4 KiB",
        harness=BurstCutterHarness,
        depth=2,
        faults=(
            Fault(
                unit="burst_cutter",
                old="beats_to_end.eq(run.beats + first_beat)",
                new="beats_to_end.eq(run.beats)",
            ),
            Fault(
                unit="burst_cutter",
                old="burst_length.eq(Mux(next_is_last, final_length, largest))",
                new="burst_length.eq(largest)",
            ),
            Fault(
                unit="burst_cutter",
                old="bursts_remaining == Mux(final_length == largest, 2, 1)",
                new="bursts_remaining == 1",
            ),
            Fault(
                unit="burst_cutter",
                old="(beats_to_end[bits] & beats_to_end[:bits].any())",
                new="beats_to_end[bits]",
            ),
        ),
        fault_depth=6,
    ),
    Proof(
        unit="burst_planner",
        claim="the runs of each block and row of a transfer, once, in order",
        harness=BurstPlannerHarness,
        depth=2,
        faults=(
            Fault(
                unit="burst_planner",
                old="block_is_last.eq(blocks_remaining == 2)",
                new="block_is_last.eq(blocks_remaining <= 3)",
            ),
            Fault(
                unit="burst_planner",
                old="moved = Mux(row_is_last, block_address, address)",
                new="moved = address",
            ),
        ),
        fault_depth=10,
    ),
)
