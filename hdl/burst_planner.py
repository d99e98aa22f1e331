# SPDX-License-Identifier: Apache-2.0
"""The AXI bursts of a matrix in memory."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from systola.hdl.burst_cutter import Burst, BurstCutter


class Transfer(data.StructLayout):
    """A matrix in memory as runs of contiguous beats.

    `runs` runs of `beats` beats, `rows` to a block: run m of block b starts at
    `address` + m * `stride` + b * pitch. One run is the whole transfer when it is contiguous.
    """

    def __init__(self, *, address_bits: int, beat_bits: int):
        super().__init__(
            {
                "address": address_bits,
                "beats": beat_bits,
                "rows": 16,
                "stride": 24,
                "blocks": 12,
            }
        )


class BurstPlanner(wiring.Component):
    """Offers the bursts of one `transfer` after the other, in memory order of blocks, then rows,
    each run cut by a `BurstCutter`.

    A transfer is taken in the cycle after its last run goes to the cutter; `ready` is a register.
    Latency: one cycle from transfer to first burst. Throughput: a burst a cycle; only the second
    run of a transfer, and the first one of the next transfer, may come a cycle later.
    """

    def __init__(self, *, transfer: Transfer, bus_bytes: int, max_burst_beats: int, pitch: int):
        self._pitch = pitch
        self._address_bits = transfer["address"].width
        self._cutter = BurstCutter(
            address_bits=self._address_bits,
            beat_bits=transfer["beats"].width,
            bus_bytes=bus_bytes,
            max_burst_beats=max_burst_beats,
        )
        burst = Burst(address_bits=self._address_bits)
        super().__init__(
            {"transfer": In(stream.Signature(transfer)), "burst": Out(stream.Signature(burst))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cutter = m.submodules.cutter = self._cutter
        connect(m, cutter.burst, flipped(self.burst))
        transfer = self.transfer.payload

        # The first run is taken as it comes. Then `address` is worked out for the next one.
        first = Signal(init=1)
        later = Signal()  # not `first`, for the choice of payloads
        offered = Signal()
        address = Signal(self._address_bits)
        block = Signal(self._address_bits)
        row = Signal(16)
        column = Signal(12)
        row_is_last = Signal()
        column_is_last = Signal()
        one_row = Signal()
        one_block = Signal()
        taken = Signal()
        ended = Signal()  # with this run
        m.d.comb += [
            one_row.eq(transfer.rows == 1),
            one_block.eq(transfer.blocks == 1),
            cutter.run.valid.eq(
                offered | (first & self.transfer.valid & ~self.transfer.ready),
            ),
            cutter.run.payload.address.eq(Mux(later, address, transfer.address)),
            cutter.run.payload.beats.eq(transfer.beats),
            cutter.run.payload.last.eq(
                Mux(later, row_is_last & column_is_last, one_row & one_block)
            ),
            taken.eq(cutter.run.valid & cutter.run.ready),
            ended.eq(cutter.run.payload.last),
        ]
        m.d.sync += self.transfer.ready.eq(taken & ended)
        with m.If(taken):
            m.d.sync += [first.eq(ended), later.eq(~ended)]
        with m.If(first):
            m.d.sync += [
                offered.eq(0),
                address.eq(transfer.address),
                block.eq(transfer.address),
                row.eq(transfer.rows),
                row_is_last.eq(one_row),
                column.eq(transfer.blocks),
                column_is_last.eq(one_block),
            ]
        with m.Elif(cutter.run.ready | ~offered):
            next_row = Signal(self._address_bits)
            next_block = Signal(self._address_bits)
            m.d.comb += [next_row.eq(address + transfer.stride), next_block.eq(block + self._pitch)]
            m.d.sync += [
                offered.eq(~(offered & row_is_last & column_is_last)),
                address.eq(Mux(row_is_last, next_block, next_row)),
            ]
            with m.If(row_is_last):
                m.d.sync += [
                    block.eq(next_block),
                    row.eq(transfer.rows),
                    row_is_last.eq(one_row),
                    column.eq(column - 1),
                    column_is_last.eq(column == 2),
                ]
            with m.Else():
                m.d.sync += [row.eq(row - 1), row_is_last.eq(row == 2)]
        return m
