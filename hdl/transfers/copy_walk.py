# SPDX-License-Identifier: Apache-2.0
"""The lines of a copy between host memory and the chip."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.commands import Tail, address_bits
from systola.hdl.parts.sums_to import sums_to


class CopyWalk(wiring.Component):
    """Goes from address to address and tells which lines are `in_tail`.

    In the cycle after `restart`, `address` is `first`; in the cycle after `step`, without
    `restart`, it is `following`, the one behind. `tail` stays as it is from a restart on.
    `address` and `in_tail` are registers.
    """

    def __init__(self, *, config: Config):
        address = address_bits(config)
        super().__init__(
            {
                "first": In(address),
                "tail": In(Tail(config=config)),
                "restart": In(1),
                "step": In(1),
                "address": Out(address),
                "following": Out(address),
                "in_tail": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tail = self.tail
        # `in_tail` is worked out for the line that `address` goes to: nothing of a line waits for a
        # comparison. Where rows have their blocks side by side, `place`, from 1 on, is that of this
        # line in its row. The sign of a difference comes out of the carry chain as it is, a
        # comparison does not.
        place, column = Signal.like(tail.every), Signal.like(tail.every)
        enters = Signal()  # else all lines from one on are in the tail
        m.d.comb += [
            self.following.eq(self.address + 1),
            place.eq(Mux(self.restart | self.in_tail, 1, column)),
            enters.eq(
                Mux(
                    self.restart,
                    ~(self.first - tail.line)[-1],
                    self.in_tail | sums_to(tail.line, self.address, 0, carry=1),
                )
            ),
        ]
        with m.If(self.restart | self.step):
            m.d.sync += [
                self.address.eq(Mux(self.restart, self.first, self.following)),
                self.in_tail.eq(Mux(tail.every != 0, place == tail.every, enters)),
                column.eq(place + 1),
            ]
        return m
