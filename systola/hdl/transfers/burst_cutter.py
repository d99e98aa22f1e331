# SPDX-License-Identifier: Apache-2.0
"""The unit that cuts runs of beats into AXI bursts."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.hdl.parts.promise import promised, promised_offer
from systola.hdl.parts.selecting_adder import SelectingAdder
from systola.hdl.transfers.axi import BOUNDARY_BYTES


class Run(data.StructLayout):
    """A run that has `beats` contiguous beats, at least one, from a byte `address` on.

    `last` marks the last run of a transfer. The last burst of this run becomes `last`.
    """

    def __init__(self, *, address_bits: int, beat_bits: int):
        super().__init__({"address": address_bits, "beats": beat_bits, "last": 1})


class Burst(data.StructLayout):
    """A burst that has `length` + 1 beats. `last` marks the last burst of the last run."""

    def __init__(self, *, address_bits: int):
        super().__init__({"address": address_bits, "length": 8, "last": 1})


class BurstCutter(wiring.Component):
    """A unit that cuts runs into bursts and offers them in the order of their addresses.

    | port    | meaning |
    |---|---|
    | `run`   | a run; taken together with the last burst of the run before |
    | `burst` | the bursts of the run |

    Bursts end at multiples of their largest size, `max_burst_beats` beats. So all bursts but the
    first and the last of a run have this size, and no burst crosses 4 KiB. Addresses are multiples
    of `bus_bytes`.

    Latency: one cycle from run to first burst. Throughput: a burst a cycle, from run to run as
    well. `burst` comes from registers. `run.ready` depends on registers and `burst.ready`.
    """

    def __init__(self, *, address_bits: int, beat_bits: int, bus_bytes: int, max_burst_beats: int):
        assert bus_bytes * max_burst_beats <= BOUNDARY_BYTES
        self._shift = exact_log2(bus_bytes)
        self._bits = exact_log2(max_burst_beats)
        run = Run(address_bits=address_bits, beat_bits=beat_bits)
        burst = Burst(address_bits=address_bits)
        super().__init__({"run": In(stream.Signature(run)), "burst": Out(stream.Signature(burst))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift, bits = self._shift, self._bits
        run, burst = self.run.payload, self.burst.payload
        largest = (1 << bits) - 1

        # `beats_to_end` is the end of the run in beats. It counts from the multiple of the largest
        # burst size at or below the address of the run.
        first_beat = run.address[shift : shift + bits]
        beats_to_end = Signal(len(run.beats) + 1)
        m.d.comb += beats_to_end.eq(run.beats + first_beat)
        burst_address = Signal(len(burst.address) - shift)
        burst_length = Signal(bits)
        final_length = Signal(bits)  # length of the burst that ends the run
        # Number of bursts of the run after the present burst. The number is one too large if the
        # last burst of the run has the largest size.
        bursts_remaining = Signal(len(beats_to_end) - bits)
        is_last_burst = Signal()  # the present burst is the last one of the run
        next_is_last = Signal()  # exactly one burst of the run follows the present burst
        last_run = Signal()
        m.d.comb += [
            burst.address.eq(Cat(Const(0, shift), burst_address)),
            burst.length.eq(burst_length),
            burst.last.eq(is_last_burst & last_run),
            self.run.ready.eq(~self.burst.valid | (is_last_burst & self.burst.ready)),
            next_is_last.eq(bursts_remaining == Mux(final_length == largest, 2, 1)),
        ]
        # The adder forms the address of the next burst, or takes the address of a run.
        blocks = m.submodules.blocks = SelectingAdder(width=len(burst_address) - bits)
        m.d.comb += [
            blocks.b.eq(burst_address[bits:]),
            blocks.c.eq(run.address[shift + bits :]),
            blocks.choose_b.eq((~self.run.ready).replicate(len(burst_address) - bits)),
            blocks.carry.eq(~self.run.ready),
        ]
        with m.If(self.run.ready | self.burst.ready):
            m.d.sync += burst_address.eq(
                Cat(Mux(self.run.ready, first_beat, 0)[:bits], blocks.total)
            )
        with m.If(self.run.ready):
            # A run fits in one burst if `beats_to_end` is at most `largest` + 1. If the run alone
            # has more beats, no sum is needed.
            beyond = beats_to_end[bits + 1] | (beats_to_end[bits] & beats_to_end[:bits].any())
            is_single = ~(run.beats[bits + 1 :].any() | beyond)
            m.d.sync += [
                self.burst.valid.eq(self.run.valid),
                burst_length.eq(Mux(is_single, run.beats - 1, ~first_beat)),
                final_length.eq(beats_to_end - 1),
                bursts_remaining.eq(beats_to_end[bits:]),
                is_last_burst.eq(is_single),
                last_run.eq(run.last),
            ]
        with m.Elif(self.burst.ready):
            m.d.sync += [
                burst_length.eq(Mux(next_is_last, final_length, largest)),
                bursts_remaining.eq(bursts_remaining - 1),
                is_last_burst.eq(next_is_last),
            ]
        offer, message = self.burst, "a burst changes before it is taken"
        shown = Cat(burst_address, burst_length, burst.last)
        promised_offer(m, platform, offer.valid, offer.ready, shown, message)
        fits = (burst_address[:bits] + burst_length) <= largest
        promised(m, platform, ~offer.valid | fits, "a burst crosses a multiple of the largest size")
        ends = ~offer.valid | is_last_burst
        promised(m, platform, ~self.run.ready | ends, "a run is taken before the last one ends")
        follow = bursts_remaining >= Mux(final_length == largest, 2, 1)
        promised(m, platform, ends | follow, "a run has no last burst")
        return m
