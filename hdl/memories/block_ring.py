# SPDX-License-Identifier: Apache-2.0
"""A ring of wide payloads in block RAM."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.hdl.memories.sram import Sram


class BlockRing(wiring.Component):
    """`oldest` of up to `depth` payloads, from the second cycle after its `push` on, and from the
    cycle after the `retire` of the one before. `pushed` is there in the cycle before the push.

    Who uses it counts them. What a `PayloadRing` does in look-up tables, but for a cycle.
    """

    def __init__(self, *, payload: data.StructLayout, depth: int):
        self._depth = depth
        super().__init__(
            {"push": In(1), "pushed": In(payload), "retire": In(1), "oldest": Out(payload)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = ceil_log2(self._depth)
        memory = m.submodules.memory = Sram(
            width=len(self.oldest.as_value()), depth=1 << bits, output_register=True
        )
        # From the memory to the register of its read port, and from there to that of its output.
        free = Signal(bits)
        following = Signal(bits)
        read = Signal()  # there is one in the first of these registers,
        shown = Signal()  # in the second
        some = Signal()  # or, behind those, in the memory
        reads = Signal()
        m.d.comb += [
            some.eq(self.push | (following != free)),
            memory.output_enable.eq(~shown | self.retire),
            reads.eq(~read | memory.output_enable),
            memory.read_enable.eq(reads),
            memory.read_address.eq(following),
            # What is written after the last one does not matter before its push, nor may it be
            # read in the same cycle.
            memory.write_enable.eq(~self.push),
            memory.write_address.eq(free),
            memory.write_data.eq(self.pushed),
            self.oldest.as_value().eq(memory.read_data),
        ]
        m.d.sync += [
            free.eq(free + self.push),
            following.eq(following + (reads & some)),
            read.eq(some | ~reads),
            shown.eq(Mux(memory.output_enable, read, 1)),
        ]
        return m
