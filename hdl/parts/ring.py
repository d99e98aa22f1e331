# SPDX-License-Identifier: Apache-2.0
"""Pointers into rings, and how many places of one are taken."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value


def stepped(pointer: Value, depth: int) -> Value:
    """The place behind `pointer` in a ring of `depth` places."""
    return Mux(pointer == depth - 1, 0, pointer + 1)


def counted(m: Module, name: str, *, most: int, push: Value, retire: Value) -> Signal:
    """A register with as many ones, from bit 0, as payloads are in a ring, at most `most`.

    In ones, what comes late, such as a handshake, has one look-up table before the register.
    """
    count = Signal(most, name=name)
    with m.If(push != retire):
        m.d.sync += count.eq(Mux(push, Cat(1, count), count >> 1))
    return count
