# SPDX-License-Identifier: Apache-2.0
"""A choice in turn among several requests."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.promise import at_most_one, promised


class RoundRobin(wiring.Component):
    """A choice in turn among `count` requesters, combinational.

    | port     | meaning |
    |---|---|
    | `wants`  | a bit for each requester |
    | `chosen` | the bit of the chosen requester, or 0 without a request |
    | `take`   | the chosen requester is served, and comes last from the next cycle on |

    The requesters form a circle, and `take` does not change their order in it. So a requester waits
    for `count` - 1 others at most.
    """

    def __init__(self, *, count: int):
        self._count = count
        super().__init__({"wants": In(count), "take": In(1), "chosen": Out(count)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # the requesters after the requester that was chosen last
        later_requesters = Signal(self._count)
        m.d.comb += self.chosen.eq(
            Mux(
                (self.wants & later_requesters).any(),
                _lowest(self.wants & later_requesters),
                _lowest(self.wants),
            )
        )
        with m.If(self.take & self.wants.any()):
            m.d.sync += later_requesters.eq(~(self.chosen | (self.chosen - 1)))
        promised(m, platform, at_most_one(self.chosen), "two requesters are chosen")
        promised(m, platform, (self.chosen & ~self.wants) == 0, "one is chosen that wants nothing")
        promised(m, platform, self.wants.any() == self.chosen.any(), "no requester is chosen")
        return m


def _lowest(bits: Value) -> Value:
    """Return the lowest set bit of some bits, at its place."""
    return bits & (~bits + 1)[: len(bits)]
