# SPDX-License-Identifier: Apache-2.0
"""The bound on how far the issue runs ahead of an old instruction, for the sake of its numbers."""

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.control.numbered_list import RING_BITS
from systola.hdl.parts.sequence_number import SPAN


class Spans(wiring.Component):
    """Cuts the instructions that enter a list into spans of `length`: the last one of a span must
    not be issued while one of an earlier span is under way.

    So at most 2 `length` - 2 instructions are issued after one that is under way, and each list
    gets as many entries at most.

    | port    | meaning |
    |---|---|
    | `issue` | an instruction enters its lists; not while `holds`, and not in two cycles on end |
    | `holds` | the next one is the last of its span, and must wait; a register away from its end |
    | `lists` | of each list that instructions leave when they complete: the places of its \
youngest and oldest entry, whether there is `some` entry, and whether the oldest `retires` |
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
        position = Signal(
            range(self._length)
        )  # in its span, of the instruction that is issued next
        last, ended = Signal(), Signal()  # `ended`: a span ended in the cycle before
        earlier = Signal(len(self._lists))  # of each list, whether an earlier span is in it
        m.d.comb += [
            last.eq(position == self._length - 1),
            self.holds.eq(last & earlier.any()),
        ]
        with m.If(self.issue):
            m.d.sync += position.eq(Mux(last, 0, position + 1))
        m.d.sync += ended.eq(self.issue & last)
        for number, name in enumerate(self._lists):
            view = self.lists[name]
            mark = Signal(RING_BITS, name=f"{name}_mark")  # place of the last entry of the span
            at = Signal(RING_BITS, name=f"{name}_at")
            leaves = Signal(name=f"{name}_leaves")
            m.d.comb += [
                at.eq(Mux(ended, view.youngest, mark)),
                leaves.eq(view.retires & (view.oldest == at)),
            ]
            m.d.sync += [
                mark.eq(at),
                earlier[number].eq(Mux(ended, view.some, earlier[number]) & ~leaves),
            ]
        return m
