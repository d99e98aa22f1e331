# SPDX-License-Identifier: Apache-2.0
"""The unit that computes the AXI bursts of a matrix in memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from systola.hdl.commands import Transfer
from systola.hdl.parts.promise import promised, promised_to_stay
from systola.hdl.transfers.burst_cutter import Burst, BurstCutter


class BurstPlanner(wiring.Component):
    """A unit that offers the bursts of one `transfer` after the other.

    | port       | meaning |
    |---|---|
    | `transfer` | a transfer; not copied, so it must stay until `transfer.ready` |
    | `burst`    | its bursts, in memory order of blocks, then rows, as a `BurstCutter` makes them |

    `transfer.ready` is high in the cycle in which the last run goes to the cutter. Addresses and
    distances are multiples of `bus_bytes`. Latency: two cycles from transfer to first burst.
    Throughput: a burst a cycle; only the first burst of the next transfer may come a cycle later.
    """

    def __init__(self, *, transfer: Transfer, bus_bytes: int, max_burst_beats: int, pitch: int):
        self._shift = exact_log2(bus_bytes)
        self._pitch = pitch // bus_bytes
        address_bits = transfer["address"].width
        self._cutter = BurstCutter(
            address_bits=address_bits,
            beat_bits=transfer["beats"].width,
            bus_bytes=bus_bytes,
            max_burst_beats=max_burst_beats,
        )
        burst = Burst(address_bits=address_bits)
        super().__init__(
            {"transfer": In(stream.Signature(transfer)), "burst": Out(stream.Signature(burst))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift = self._shift
        cutter = m.submodules.cutter = self._cutter
        connect(m, cutter.burst, flipped(self.burst))
        transfer = self.transfer.payload

        # While one run of the transfer is offered, the next run is computed. Addresses count beats.
        run_valid = Signal()
        address = Signal(len(transfer.address) - shift)
        block_address = Signal.like(address)  # address of the first run of the present block
        rows_remaining = Signal.like(transfer.rows)
        blocks_remaining = Signal.like(transfer.blocks)
        row_is_last = Signal()
        block_is_last = Signal()
        run_is_last = Signal()
        next_address = Signal.like(address)
        step = Mux(row_is_last, self._pitch, transfer.stride[shift:])
        moved = Mux(row_is_last, block_address, address) + step
        m.d.comb += [
            run_is_last.eq(row_is_last & block_is_last),
            cutter.run.valid.eq(run_valid),
            cutter.run.payload.address.eq(Cat(Const(0, shift), address)),
            cutter.run.payload.beats.eq(transfer.beats),
            cutter.run.payload.last.eq(run_is_last),
            self.transfer.ready.eq(run_valid & cutter.run.ready & run_is_last),
            next_address.eq(Mux(run_valid, moved, transfer.address[shift:])),
        ]
        with m.If(~run_valid):
            m.d.sync += [
                run_valid.eq(self.transfer.valid),
                address.eq(next_address),
                block_address.eq(next_address),
                rows_remaining.eq(transfer.rows),
                row_is_last.eq(transfer.rows == 1),
                blocks_remaining.eq(transfer.blocks),
                block_is_last.eq(transfer.blocks == 1),
            ]
        with m.Elif(cutter.run.ready):
            m.d.sync += [run_valid.eq(~run_is_last), address.eq(next_address)]
            with m.If(row_is_last):
                m.d.sync += [
                    block_address.eq(next_address),
                    rows_remaining.eq(transfer.rows),
                    row_is_last.eq(transfer.rows == 1),
                    blocks_remaining.eq(blocks_remaining - 1),
                    block_is_last.eq(blocks_remaining == 2),
                ]
            with m.Else():
                m.d.sync += [
                    rows_remaining.eq(rows_remaining - 1),
                    row_is_last.eq(rows_remaining == 2),
                ]
        message = "a transfer changes before its last run goes to the cutter"
        promised_to_stay(m, platform, run_valid, transfer, message)
        right = row_is_last == (rows_remaining == 1)
        promised(m, platform, ~run_valid | right, "another row is taken for the last one")
        right = block_is_last == (blocks_remaining == 1)
        promised(m, platform, ~run_valid | right, "another block is taken for the last one")
        return m
