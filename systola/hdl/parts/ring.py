# SPDX-License-Identifier: Apache-2.0
"""Functions for pointers into rings, and for the number of taken places."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value


def stepped(pointer: Value, depth: int) -> Value:
    """Return the place after `pointer` in a ring of `depth` places."""
    return Mux(pointer == depth - 1, 0, pointer + 1)


def counted(m: Module, name: str, *, most: int, push: Value, pop: Value) -> Signal:
    """Make a thermometer code: a register with as many ones, from bit 0, as a ring has payloads.

    There are at most `most` payloads. In this code a late signal, such as a handshake, passes a
    single look-up table before the register.
    """
    count = Signal(most, name=name)
    with m.If(push != pop):
        m.d.sync += count.eq(Mux(push, Cat(1, count), count >> 1))
    return count
