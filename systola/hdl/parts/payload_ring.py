# SPDX-License-Identifier: Apache-2.0
"""A ring of payloads: data for the entries of a list, shown only for the oldest entry."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.promise import promised
from systola.hdl.parts.ring import stepped


class PayloadRing(wiring.Component):
    """A ring that shows the `oldest` of up to `depth` payloads.

    | port             | meaning |
    |---|---|
    | `push`, `pushed` | appends a payload, which can be seen from the next cycle on |
    | `pop`            | drops the oldest payload |
    | `oldest`         | the oldest payload; undefined while the ring is empty |

    The ring does not count its payloads; its user counts them. They lie in a small memory with
    asynchronous reads.
    """

    def __init__(self, *, payload: data.StructLayout, depth: int):
        self._depth = depth
        super().__init__(
            {
                "push": In(1),
                "pushed": In(payload),
                "pop": In(1),
                "oldest": Out(payload),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = self.oldest.as_value()
        memory = m.submodules.memory = Memory(shape=len(bits), depth=self._depth, init=[])
        write = memory.write_port()
        read = memory.read_port(domain="comb")
        write_place = Signal(range(self._depth))
        read_place = Signal(range(self._depth))
        m.d.comb += [
            write.en.eq(self.push),
            write.addr.eq(write_place),
            write.data.eq(self.pushed),
            read.addr.eq(read_place),
            bits.eq(read.data),
        ]
        with m.If(self.push):
            m.d.sync += write_place.eq(stepped(write_place, self._depth))
        with m.If(self.pop):
            m.d.sync += read_place.eq(stepped(read_place, self._depth))
        promised(m, platform, write_place < self._depth, "a payload is written beyond the ring")
        promised(m, platform, read_place < self._depth, "a payload is read beyond the ring")
        return m
