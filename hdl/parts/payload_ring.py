# SPDX-License-Identifier: Apache-2.0
"""What belongs to the entries of a list and is only needed of the oldest."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.ring import stepped


class PayloadRing(wiring.Component):
    """`oldest` of up to `depth` payloads, from the cycle after its `push` on. `retire` drops it.

    Who uses it counts them. They lie in a small memory with asynchronous reads.
    """

    def __init__(self, *, payload: data.StructLayout, depth: int):
        self._depth = depth
        super().__init__(
            {
                "push": In(1),
                "pushed": In(payload),
                "retire": In(1),
                "oldest": Out(payload),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = self.oldest.as_value()
        memory = m.submodules.memory = Memory(shape=len(bits), depth=self._depth, init=[])
        write = memory.write_port()
        read = memory.read_port(domain="comb")
        free = Signal(range(self._depth))
        first = Signal(range(self._depth))
        m.d.comb += [
            write.en.eq(self.push),
            write.addr.eq(free),
            write.data.eq(self.pushed),
            read.addr.eq(first),
            bits.eq(read.data),
        ]
        with m.If(self.push):
            m.d.sync += free.eq(stepped(free, self._depth))
        with m.If(self.retire):
            m.d.sync += first.eq(stepped(first, self._depth))
        return m
