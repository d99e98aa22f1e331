# SPDX-License-Identifier: Apache-2.0
"""A choice in turn."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class RoundRobin(wiring.Component):
    """`chosen` is one of those that `wants` names, a bit for each, and 0 where there is none.

    Combinational. With `take` whoever is chosen comes last from the next cycle on, those behind it
    in front of those before it: nobody waits for more than `count` - 1 others.
    """

    def __init__(self, *, count: int):
        self._count = count
        super().__init__({"wants": In(count), "take": In(1), "chosen": Out(count)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        behind = Signal(self._count)  # those behind the one that was chosen last
        m.d.comb += self.chosen.eq(
            Mux((self.wants & behind).any(), _lowest(self.wants & behind), _lowest(self.wants))
        )
        with m.If(self.take & self.wants.any()):
            m.d.sync += behind.eq(~(self.chosen | (self.chosen - 1)))
        return m


def _lowest(bits: Value) -> Value:
    """The lowest one of some bits alone."""
    return bits & (~bits + 1)[: len(bits)]
