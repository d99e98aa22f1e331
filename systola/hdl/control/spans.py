# SPDX-License-Identifier: Apache-2.0
"""A unit that limits how many instructions are issued while an older one is unfinished.

So few entries are in a list at a time, and short sequence numbers tell them apart.
"""

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.control.numbered_list import RING_BITS
from systola.hdl.parts.sequence_number import SPAN


class Spans(wiring.Component):
    """A counter that divides the issued instructions into spans of `length` instructions.

    The last instruction of a span is not issued while an instruction of an earlier span is
    unfinished. So at most 2 `length` - 2 instructions are issued after an unfinished one, and no
    list has more entries than that.

    | port    | meaning |
    |---|---|
    | `issue` | an instruction enters its lists; not while `holds`, and not in two cycles on end |
    | `holds` | the next instruction is the last of its span, and must wait; becomes low one cycle
                after the reason ends |
    | `lists` | for each list that instructions leave when they complete: the places of its
                `youngest` and `oldest` entry, `some` (there is an entry) and `retires` (the oldest
                entry leaves) |
    """

    def __init__(self, *, lists: Sequence[str], length: int = SPAN):
        self._length = length
        self._lists = tuple(lists)
        places = {"youngest": RING_BITS, "oldest": RING_BITS}
        view = data.StructLayout({**places, "some": 1, "retires": 1})
        super().__init__(
            {
                "issue": In(1),
                "holds": Out(1),
                "lists": In(data.StructLayout(dict.fromkeys(lists, view))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        span_position = Signal(range(self._length))  # position of the next instruction in its span
        is_last = Signal()
        span_ended = Signal()  # `span_ended`: a span ended in the cycle before
        # a bit for each list: the list still has an instruction of an earlier span
        earlier_entries = Signal(len(self._lists))
        m.d.comb += [
            is_last.eq(span_position == self._length - 1),
            self.holds.eq(is_last & earlier_entries.any()),
        ]
        with m.If(self.issue):
            m.d.sync += span_position.eq(Mux(is_last, 0, span_position + 1))
        m.d.sync += span_ended.eq(self.issue & is_last)
        for number, name in enumerate(self._lists):
            view = self.lists[name]
            # place of the entry that was the youngest when the last span ended
            last_place = Signal(RING_BITS, name=f"{name}_mark")
            span_end = Signal(RING_BITS, name=f"{name}_at")
            span_leaves = Signal(name=f"{name}_leaves")
            m.d.comb += [
                span_end.eq(Mux(span_ended, view.youngest, last_place)),
                span_leaves.eq(view.retires & (view.oldest == span_end)),
            ]
            m.d.sync += [
                last_place.eq(span_end),
                earlier_entries[number].eq(
                    Mux(span_ended, view.some, earlier_entries[number]) & ~span_leaves
                ),
            ]
        return m
