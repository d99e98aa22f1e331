# SPDX-License-Identifier: Apache-2.0
"""Cuts a run of beats into AXI bursts."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.hdl.axi import BOUNDARY_BYTES


class Run(data.StructLayout):
    """Contiguous `beats`, at least one, from a byte `address` on. `last` goes with its last
    burst."""

    def __init__(self, *, address_bits: int, beat_bits: int):
        super().__init__({"address": address_bits, "beats": beat_bits, "last": 1})


class Burst(data.StructLayout):
    """A burst of `length` + 1 beats. `last`: the last one of the last run."""

    def __init__(self, *, address_bits: int):
        super().__init__({"address": address_bits, "length": 8, "last": 1})


class BurstCutter(wiring.Component):
    """Offers the bursts of one `run` after the other, in the order of their addresses.

    Bursts end at multiples of their largest size, `max_burst_beats` beats, so that all but the
    first and the last of a run have that size, and none crosses 4 KiB. Addresses are multiples of
    `bus_bytes`. Latency: one cycle from run to first burst. Throughput: a burst a cycle, from run
    to run as well. `burst` comes from registers by a few gates.
    """

    def __init__(self, *, address_bits: int, beat_bits: int, bus_bytes: int, max_burst_beats: int):
        assert bus_bytes * max_burst_beats <= BOUNDARY_BYTES
        self._shift = exact_log2(bus_bytes)
        self._bits = exact_log2(max_burst_beats)
        self._run = Run(address_bits=address_bits, beat_bits=beat_bits)
        burst = Burst(address_bits=address_bits)
        super().__init__(
            {"run": In(stream.Signature(self._run)), "burst": Out(stream.Signature(burst))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift, bits = self._shift, self._bits
        run, burst = self.run.payload, self.burst.payload

        # A run seen as whole bursts: it begins `place` beats behind the start of one and ends
        # `behind` beats behind the start of another, `steps` (+ 1 if they `spill`) bursts later.
        place = run.address[shift : shift + bits]
        odd = run.beats[:bits]  # beats besides whole bursts
        before_last = Signal.like(run.beats)
        behind = Signal(bits + 1)
        spills = Signal()
        fits = Signal()
        m.d.comb += [
            before_last.eq(run.beats - 1),
            behind.eq(place + odd),
            # The carry of `place` + `before_last`, and `before_last >> bits` == 0, without a wait
            # for the carries of `before_last`.
            spills.eq((behind[:bits] != 0) & (behind[bits] | (odd == 0))),
            fits.eq((run.beats[bits + 1 :] == 0) & (~run.beats[bits] | (odd == 0))),
        ]

        largest = Const((1 << bits) - 1, 8)
        steps = Signal(len(run.beats) - bits)
        none = Signal()  # `steps` is 0
        spill = Signal()
        ends = Signal()  # this burst ends its run
        last_run = Signal()
        begins = Signal()
        # The length of a burst that does not end its run, that does, or that is all of it.
        whole, final, short = (Signal(8, name=name) for name in ("whole", "final", "short"))
        m.d.comb += [
            ends.eq(none & ~spill),
            burst.length.eq(Mux(ends, Mux(begins, short, final), whole)),
            burst.last.eq(ends & last_run),
            self.run.ready.eq(~self.burst.valid | (self.burst.ready & ends)),
        ]
        with m.If(self.run.ready):
            m.d.sync += [
                self.burst.valid.eq(self.run.valid),
                burst.address.eq(run.address),
                last_run.eq(run.last),
                begins.eq(1),
                whole.eq(largest - place),
                final.eq((behind - 1)[:bits]),
                short.eq(before_last[:bits]),
                steps.eq(before_last >> bits),
                none.eq(fits),
                spill.eq(spills),
            ]
        with m.Elif(self.burst.ready):
            upper = burst.address[shift + bits :]
            m.d.sync += [
                burst.address.eq(Cat(Const(0, shift + bits), upper + 1)),
                begins.eq(0),
                whole.eq(largest),
            ]
            with m.If(none):
                m.d.sync += spill.eq(0)
            with m.Else():
                m.d.sync += [steps.eq(steps - 1), none.eq(steps == 1)]
        return m
