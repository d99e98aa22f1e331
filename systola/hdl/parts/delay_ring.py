# SPDX-License-Identifier: Apache-2.0
"""A fixed delay in a small memory, for values that are never reset or held up."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.promise import promised
from systola.hdl.parts.ring import stepped


class DelayRing(wiring.Component):
    """A delay of `cycles` cycles for a value of `width` bits.

    | port     | meaning |
    |---|---|
    | `input`  | the value |
    | `output` | the `input` of `cycles` cycles ago; undefined in the first `cycles` cycles |
    """

    def __init__(self, *, width: int, cycles: int):
        self._cycles = cycles
        super().__init__({"input": In(width), "output": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        memory = m.submodules.memory = Memory(shape=len(self.input), depth=self._cycles, init=[])
        write = memory.write_port()
        read = memory.read_port(domain="comb")
        ring_place = Signal(range(self._cycles))
        m.d.sync += ring_place.eq(stepped(ring_place, self._cycles))
        m.d.comb += [
            write.en.eq(1),
            write.addr.eq(ring_place),
            write.data.eq(self.input),
            read.addr.eq(ring_place),
            self.output.eq(read.data),
        ]
        promised(m, platform, ring_place < self._cycles, "a delay leaves its ring")
        return m
