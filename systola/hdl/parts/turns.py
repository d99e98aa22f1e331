# SPDX-License-Identifier: Apache-2.0
"""Registers of several users that take turns, a cycle each, in the same logic."""

from amaranth.hdl import Module, Shape, Signal


def registers_in_turn(m: Module, shape: Shape, *, turns: int, name: str) -> list[Signal]:
    """Return `turns` registers in a ring. In each cycle their contents move on by one register.

    The last register belongs to the user that has its turn. In the next cycle the first register
    belongs to this user. So a user changes its register by an assignment to the first one; else the
    register keeps its value. With one turn this is a single register.
    """
    ring = [
        Signal(shape, name=name if turns == 1 else f"{name}_{place}", reset_less=True)
        for place in range(turns)
    ]
    if turns > 1:
        m.d.sync += [ring[place].eq(ring[place - 1]) for place in range(turns)]
    return ring
