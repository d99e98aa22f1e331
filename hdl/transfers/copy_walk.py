# SPDX-License-Identifier: Apache-2.0
"""The lines of a copy between host memory and the chip."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.commands import Tail, address_bits


class CopyWalk(wiring.Component):
    """Goes from address to address and tells which lines are `in_tail`.

    In the cycle after `restart`, `address` is `first`; in the cycle after `step`, without
    `restart`, it is `following`, the one behind. `tail` stays as it is from a restart on.
    `address` is a register.
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
        column = Signal.like(tail.every)  # where rows have their blocks side by side, from 1 on
        ends_row = Signal()
        m.d.comb += [
            self.following.eq(self.address + 1),
            ends_row.eq(column == tail.every),
            self.in_tail.eq(Mux(tail.every != 0, ends_row, self.address >= tail.line)),
        ]
        with m.If(self.restart):
            m.d.sync += [self.address.eq(self.first), column.eq(1)]
        with m.Elif(self.step):
            m.d.sync += [self.address.eq(self.following), column.eq(Mux(ends_row, 1, column + 1))]
        return m
