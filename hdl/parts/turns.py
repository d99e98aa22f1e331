# SPDX-License-Identifier: Apache-2.0
"""A register for each of several who take turns, a cycle each, in the logic around it."""

from amaranth.hdl import Module, Shape, Signal


def registers_in_turn(m: Module, shape: Shape, *, turns: int, name: str) -> list[Signal]:
    """`turns` registers in a ring: the last one is that of whose turn it is, and the first one is
    what whose turn it was in the cycle before has now. Who sets the first one changes his own; else
    it stays what it is."""
    ring = [
        Signal(shape, name=name if turns == 1 else f"{name}_{place}", reset_less=True)
        for place in range(turns)
    ]
    if turns > 1:
        m.d.sync += [ring[place].eq(ring[place - 1]) for place in range(turns)]
    return ring
