# SPDX-License-Identifier: Apache-2.0
"""The AXI bursts of a matrix in memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from systola.hdl.commands import Transfer
from systola.hdl.parts.promise import promised_to_stay
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

        # One run of the transfer is offered while the next run is worked out. Addresses are in
        # beats.
        offered = Signal()
        address = Signal(len(transfer.address) - shift)
        block = Signal.like(address)  # address where the present block begins
        row = Signal.like(transfer.rows)
        column = Signal.like(transfer.blocks)
        row_is_last = Signal()
        column_is_last = Signal()
        last = Signal()
        following = Signal.like(address)
        step = Mux(row_is_last, self._pitch, transfer.stride[shift:])
        moved = Mux(row_is_last, block, address) + step
        m.d.comb += [
            last.eq(row_is_last & column_is_last),
            cutter.run.valid.eq(offered),
            cutter.run.payload.address.eq(Cat(Const(0, shift), address)),
            cutter.run.payload.beats.eq(transfer.beats),
            cutter.run.payload.last.eq(last),
            self.transfer.ready.eq(offered & cutter.run.ready & last),
            following.eq(Mux(offered, moved, transfer.address[shift:])),
        ]
        with m.If(~offered):
            m.d.sync += [
                offered.eq(self.transfer.valid),
                address.eq(following),
                block.eq(following),
                row.eq(transfer.rows),
                row_is_last.eq(transfer.rows == 1),
                column.eq(transfer.blocks),
                column_is_last.eq(transfer.blocks == 1),
            ]
        with m.Elif(cutter.run.ready):
            m.d.sync += [offered.eq(~last), address.eq(following)]
            with m.If(row_is_last):
                m.d.sync += [
                    block.eq(following),
                    row.eq(transfer.rows),
                    row_is_last.eq(transfer.rows == 1),
                    column.eq(column - 1),
                    column_is_last.eq(column == 2),
                ]
            with m.Else():
                m.d.sync += [row.eq(row - 1), row_is_last.eq(row == 2)]
        message = "a transfer changes before its last run goes to the cutter"
        promised_to_stay(m, platform, offered, transfer, message)
        return m
