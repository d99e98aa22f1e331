# SPDX-License-Identifier: Apache-2.0
"""Cuts a run of beats into AXI bursts."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.hdl.transfers.axi import BOUNDARY_BYTES

COUNTED_BITS = 2
"""So many bits of a number of bursts are compared in one cycle; those above it, a cycle earlier."""


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
    to run as well. `burst` comes from registers by a few gates. `run.ready` is a register: a run
    that comes before the one that is being cut has ended waits in a place of its own.
    """

    def __init__(self, *, address_bits: int, beat_bits: int, bus_bytes: int, max_burst_beats: int):
        assert bus_bytes * max_burst_beats <= BOUNDARY_BYTES
        self._shift = exact_log2(bus_bytes)
        self._bits = exact_log2(max_burst_beats)
        self._run = Run(address_bits=address_bits, beat_bits=beat_bits)
        # A run, with what is known of its bursts before they begin.
        self.begun = data.StructLayout(
            {
                "address": address_bits,
                "last_run": 1,
                "whole": 8,
                "final": 8,
                "short": 8,
                "steps": beat_bits - self._bits,
                "few": 1,
                "none": 1,
                "spill": 1,
            }
        )
        burst = Burst(address_bits=address_bits)
        super().__init__(
            {"run": In(stream.Signature(self._run)), "burst": Out(stream.Signature(burst))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift, bits = self._shift, self._bits
        run, burst = self.run.payload, self.burst.payload
        largest = Const((1 << bits) - 1, 8)

        # A run seen as whole bursts: it begins `place` beats behind the start of one; its last beat
        # is `behind` beats behind the start of another, `steps` (+ 1 if `spill`) bursts later.
        place = run.address[shift : shift + bits]
        odd = run.beats[:bits]  # beats besides whole bursts
        short = Cat(odd[i] ^ ~odd[:i].any() for i in range(bits))  # one less, without carries
        before_last = Signal.like(run.beats)
        behind = Signal(bits + 1)
        incoming = Signal(self.begun)
        m.d.comb += [
            before_last.eq(run.beats - 1),
            behind.eq(place + short),
            incoming.address.eq(run.address),
            incoming.last_run.eq(run.last),
            incoming.whole.eq(largest - place),
            incoming.final.eq(behind[:bits]),
            incoming.short.eq(short),
            incoming.steps.eq(before_last >> bits),
            # The same of `steps`, which come later.
            incoming.few.eq(run.beats <= 1 << (bits + COUNTED_BITS)),
            incoming.none.eq(run.beats <= 1 << bits),
            incoming.spill.eq(behind[bits]),
        ]

        waiting = Signal(self.begun, reset_less=True)
        waits = Signal()
        moves = Signal()
        idle = Signal()
        m.d.comb += self.run.ready.eq(~waits)
        with m.If(~waits):
            m.d.sync += waiting.eq(incoming)
        m.d.sync += waits.eq((waits | self.run.valid) & ~(moves & idle))

        steps = Signal.like(incoming.steps)
        few = Signal()  # `steps` has COUNTED_BITS bits, as was seen in a cycle before
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
            idle.eq(~self.burst.valid | ends),
            moves.eq(~self.burst.valid | self.burst.ready),
        ]
        following = Signal(self.begun)
        m.d.comb += following.eq(Mux(waits, waiting, incoming))
        with m.If(moves):
            with m.If(idle):
                m.d.sync += [
                    self.burst.valid.eq(waits | self.run.valid),
                    burst.address.eq(following.address),
                    last_run.eq(following.last_run),
                    begins.eq(1),
                    whole.eq(following.whole),
                    final.eq(following.final),
                    short.eq(following.short),
                    steps.eq(following.steps),
                    few.eq(following.few),
                    none.eq(following.none),
                    spill.eq(following.spill),
                ]
            with m.Else():
                upper = burst.address[shift + bits :]
                m.d.sync += [
                    burst.address.eq(Cat(Const(0, shift + bits), upper + 1)),
                    begins.eq(0),
                    whole.eq(largest),
                ]
                with m.If(none):
                    m.d.sync += spill.eq(0)
                with m.Else():
                    m.d.sync += [
                        steps.eq(steps - 1),
                        few.eq((steps >> COUNTED_BITS) == 0),
                        none.eq(few & (steps[:COUNTED_BITS] == 1)),
                    ]
        return m
