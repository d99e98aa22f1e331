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
    `restart`, it is `following`, the one behind. `tail` stays as it is from a restart on. The
    addresses are registers, `in_tail` comes from registers by a gate.
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
        in_end = Signal()  # `address` is not before `tail.line`
        # Where rows have their blocks side by side: those to the end of the row, this one included.
        has_rows = Signal()
        one_column = Signal()
        columns_left = Signal.like(tail.every)
        ends_row = Signal()  # of several columns
        m.d.comb += self.in_tail.eq(Mux(has_rows, one_column | ends_row, in_end))
        m.d.sync += [has_rows.eq(tail.every != 0), one_column.eq(tail.every == 1)]
        with m.If(self.restart):
            m.d.sync += [
                self.address.eq(self.first),
                self.following.eq(self.first + 1),
                in_end.eq(~(self.first < tail.line)),
                columns_left.eq(tail.every),
                ends_row.eq(0),
            ]
        with m.Elif(self.step):
            m.d.sync += [
                self.address.eq(self.following),
                self.following.eq(self.following + 1),
                in_end.eq(~(self.following < tail.line)),
                columns_left.eq(Mux(ends_row, tail.every, columns_left - 1)),
                ends_row.eq(~ends_row & (columns_left == 2)),
            ]
        return m
