# SPDX-License-Identifier: Apache-2.0
"""The generators of Random: an xorshift64 for each RANDOM_LANES columns (Marsaglia, 2003)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import DITHER_BITS, RANDOM_GROUP, RANDOM_LANES, RANDOM_WARM_UP

BITS = 8 * RANDOM_LANES
SEED_BITS = BITS - 1
READY = RANDOM_WARM_UP + 2
"""Smallest number of cycles from `load` to the first `take`."""


def stepped(m: Module, name: str, x: Value) -> Value:
    """Return the generator's state that follows the state `x`."""
    for number, (distance, left) in enumerate(((13, True), (7, False), (17, True))):
        next_state = Signal(BITS, name=f"{name}_{number}")
        m.d.comb += next_state.eq(x ^ (x << distance if left else x >> distance))
        x = next_state
    return x


class RandomBytes(wiring.Component):
    """A unit with the random number generators: it makes lines of random bytes, and random
    roundings.

    | port     | meaning |
    |---|---|
    | `load`   | the generators begin with `seed` |
    | `seed`   | bits of the first state below the highest bit |
    | `take`   | `result` becomes the next line |
    | `result` | the bytes of the line in the cycle after `take`, else 0 |
    | `draw`   | the generators make a step, so that `dither` changes in the next cycle |
    | `dither` | lowest DITHER_BITS bits of each byte of the present states |

    `dither` is 0 until the first `load`. A `take` makes a step, too. The first `take` comes READY
    cycles after `load` or later. A `draw` comes neither with a `take` nor within READY cycles of a
    `load`. Throughput: one line or step a cycle. No back-pressure.
    """

    def __init__(self, *, cols: int):
        self._cols = cols
        super().__init__(
            {
                "load": In(1),
                "seed": In(SEED_BITS),
                "take": In(1),
                "result": Out(8 * cols),
                "draw": In(1),
                "dither": Out(DITHER_BITS * cols),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # steps of the generators remaining until their state gives the first line
        steps_remaining = Signal(range(READY))
        state_steps = Signal()
        m.d.comb += state_steps.eq((steps_remaining != 0) | self.take | self.draw)
        with m.If(self.load):
            m.d.sync += steps_remaining.eq(READY - 1)
        with m.Elif(steps_remaining != 0):
            m.d.sync += steps_remaining.eq(steps_remaining - 1)
        lines: list[Value] = []
        low: list[Value] = []
        for group in range(-(-self._cols // RANDOM_LANES)):
            lane_state = Signal(BITS, name=f"lane_state_{group}")
            differs = Const(group * RANDOM_GROUP % (1 << SEED_BITS), BITS)
            with m.If(self.load | state_steps):
                m.d.sync += lane_state.eq(
                    Mux(
                        self.load,
                        Cat(self.seed, 1) ^ differs,
                        stepped(m, f"state_{group}_after", lane_state),
                    )
                )
            x = [lane_state.word_select(number, 8) for number in range(RANDOM_LANES)]
            lines += [
                byte ^ (x[(number + 1) % RANDOM_LANES] & x[(number + 2) % RANDOM_LANES])
                for number, byte in enumerate(x)
            ]
            low += [byte[:DITHER_BITS] for byte in x]
        m.d.comb += self.dither.eq(Cat(low[: self._cols]))
        m.d.sync += self.result.eq(Mux(self.take, Cat(lines[: self._cols]), 0))
        return m
