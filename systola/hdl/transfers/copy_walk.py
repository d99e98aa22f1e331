# SPDX-License-Identifier: Apache-2.0
"""The unit that walks through the lines of a copy between host memory and the chip."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.commands import Tail, address_bits
from systola.hdl.parts.sums_to import sums_to


class CopyWalk(wiring.Component):
    """A counter that goes from address to address and marks lines that are in the tail.

    | port        | meaning |
    |---|---|
    | `first`     | the first address |
    | `tail`      | the lines that have fewer bytes; stays as it is from a restart on |
    | `restart`   | sets `address` to `first` |
    | `step`      | sets `address` to `following`; does nothing together with `restart` |
    | `address`   | the present address, a register |
    | `following` | the address after `address` |
    | `in_tail`   | the line is in the tail, a register |
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
        # `in_tail` is computed for the next `address`, so that the work on a line waits for no
        # comparison. With `tail.every`, rows have their blocks side by side. Then `block_number`
        # counts the blocks of a row, from 1 on. The sign of a difference comes directly out of a
        # carry chain. A comparison does not.
        block_number = Signal.like(tail.every)
        next_block = Signal.like(tail.every)
        tail_begun = Signal()  # without `tail.every`: this line and all later ones are in the tail
        m.d.comb += [
            self.following.eq(self.address + 1),
            block_number.eq(Mux(self.restart | self.in_tail, 1, next_block)),
            tail_begun.eq(
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
                self.in_tail.eq(Mux(tail.every != 0, block_number == tail.every, tail_begun)),
                next_block.eq(block_number + 1),
            ]
        return m
