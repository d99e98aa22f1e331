# SPDX-License-Identifier: Apache-2.0
"""Cuts a transfer into AXI bursts."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from systola.hdl.axi import BOUNDARY_BYTES


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
    """Offers the bursts of a `Transfer` one after the other, in memory order of blocks, then rows.

    `start` says that `transfer` is there; it must then stay until the cycle of `take` & `last`.
    `address`, `length` (beats - 1) and `last` describe the next burst while `valid`; `take` goes on
    to the one after it. One burst a cycle, no latency. No burst is longer than `max_burst_beats` or
    crosses 4 KiB. Addresses are multiples of `bus_bytes`.
    """

    def __init__(self, *, transfer: Transfer, bus_bytes: int, max_burst_beats: int, pitch: int = 0):
        self._bus_bytes = bus_bytes
        self._pitch = pitch
        self._max_burst_beats = max_burst_beats
        self._address_bits = address_bits = transfer["address"].width
        super().__init__(
            {
                "start": In(1),
                "transfer": In(transfer),
                "valid": Out(1),
                "address": Out(address_bits),
                "length": Out(8),
                "last": Out(1),
                "take": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        transfer = self.transfer
        shift = exact_log2(self._bus_bytes)

        # In its first cycle a transfer is taken as it comes, without a cycle for loading registers.
        fresh = Signal(init=1)
        state = data.StructLayout(
            {
                "address": self._address_bits,
                "left": len(transfer.beats),
                "run": self._address_bits,
                "block": self._address_bits,
                "row": 16,
                "column": 12,
            }
        )
        kept = Signal(state)
        now = Signal(state)
        with m.If(fresh):
            m.d.comb += [
                now.address.eq(transfer.address),
                now.left.eq(transfer.beats),
                now.run.eq(transfer.address),
                now.block.eq(transfer.address),
                now.row.eq(transfer.rows),
                now.column.eq(transfer.blocks),
            ]
        with m.Else():
            m.d.comb += now.eq(kept)

        limit = Const(self._max_burst_beats, ceil_log2(BOUNDARY_BYTES))
        to_boundary = Signal(range(BOUNDARY_BYTES // self._bus_bytes + 1))
        beats = Signal.like(to_boundary)
        short = Signal.like(to_boundary)
        m.d.comb += [
            to_boundary.eq(
                BOUNDARY_BYTES // self._bus_bytes - now.address[shift : ceil_log2(BOUNDARY_BYTES)]
            ),
            short.eq(Mux(now.left < limit, now.left, limit)),
            beats.eq(Mux(short < to_boundary, short, to_boundary)),
        ]
        run_ends = beats == now.left
        block_ends = now.row == 1
        m.d.comb += [
            self.valid.eq(self.start),
            self.address.eq(now.address),
            self.length.eq(beats - 1),
            self.last.eq(run_ends & block_ends & (now.column == 1)),
        ]

        with m.If(self.take):
            m.d.sync += [kept.eq(now), fresh.eq(self.last)]
            next_run = Signal(self._address_bits)
            with m.If(run_ends):
                m.d.sync += [
                    kept.left.eq(transfer.beats),
                    kept.address.eq(next_run),
                    kept.run.eq(next_run),
                ]
                with m.If(block_ends):
                    m.d.comb += next_run.eq(now.block + self._pitch)
                    m.d.sync += [
                        kept.row.eq(transfer.rows),
                        kept.column.eq(now.column - 1),
                        kept.block.eq(next_run),
                    ]
                with m.Else():
                    m.d.comb += next_run.eq(now.run + transfer.stride)
                    m.d.sync += kept.row.eq(now.row - 1)
            with m.Else():
                m.d.sync += [
                    kept.left.eq(now.left - beats),
                    kept.address.eq(now.address + (beats << shift)),
                ]
        return m
