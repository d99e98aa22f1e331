# SPDX-License-Identifier: Apache-2.0
"""A ring of wide payloads in block RAM."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.hdl.memories.sram import Sram
from systola.hdl.parts.promise import promised_offer


class BlockRing(wiring.Component):
    """A ring that shows the `oldest` of up to `depth` payloads, with the payloads in block RAM.

    | port     | meaning |
    |---|---|
    | `push`   | appends the payload that was `pushed` in the cycle before |
    | `pushed` | the payload, in the cycle before its `push` |
    | `pop`    | drops the oldest payload; the next one can be seen in the next cycle |
    | `oldest` | the oldest payload, from the second cycle after its `push` on |

    The ring does not count its payloads; its user counts them. It does the work of a `PayloadRing`
    in block RAM in place of look-up tables, but one cycle later.
    """

    def __init__(self, *, payload: data.StructLayout, depth: int):
        self._depth = depth
        super().__init__(
            {"push": In(1), "pushed": In(payload), "pop": In(1), "oldest": Out(payload)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = ceil_log2(self._depth)
        memory = m.submodules.memory = Sram(
            width=len(self.oldest.as_value()), depth=1 << bits, output_register=True
        )
        # A payload moves through three places: the memory, the register of the read port, and the
        # output register.
        write_place = Signal(bits)
        read_place = Signal(bits)
        has_read = Signal()  # the register of the read port holds a payload
        has_shown = Signal()  # the output register holds a payload
        has_more = Signal()  # the memory holds further payloads
        memory_reads = Signal()
        m.d.comb += [
            has_more.eq(self.push | (read_place != write_place)),
            memory.output_enable.eq(~has_shown | self.pop),
            memory_reads.eq(~has_read | memory.output_enable),
            memory.read_enable.eq(memory_reads),
            memory.read_address.eq(read_place),
            # Each cycle without a push writes `pushed` after the last payload, in case that a push
            # follows. The word must not be read in the cycle in which it is written.
            memory.write_enable.eq(~self.push),
            memory.write_address.eq(write_place),
            memory.write_data.eq(self.pushed),
            self.oldest.as_value().eq(memory.read_data),
        ]
        m.d.sync += [
            write_place.eq(write_place + self.push),
            read_place.eq(read_place + (memory_reads & has_more)),
            has_read.eq(has_more | ~memory_reads),
            has_shown.eq(Mux(memory.output_enable, has_read, 1)),
        ]
        message = "the oldest payload changes before it is dropped"
        promised_offer(m, platform, has_shown, self.pop, self.oldest.as_value(), message)
        return m
