# SPDX-License-Identifier: Apache-2.0
"""A list of instructions under way, with sequence numbers for its entries."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.promise import promised
from systola.hdl.parts.sequence_number import NUMBER_BITS

RING_BITS = 4
"""Number of low bits of a sequence number that are the place of its entry in memories.

There are places for all entries that may be in a list, and for the next entry.
"""
PLACES = 1 << RING_BITS


class NumberedProgress(data.StructLayout):
    """A report that shows how far the oldest entry of a list has got.

    | field     | meaning |
    |---|---|
    | `oldest`  | number of the oldest entry; in an empty list, number of the next entry |
    | `reached` | first address that the entry may still need |
    """

    def __init__(self, width: int):
        super().__init__({"oldest": NUMBER_BITS, "reached": width})


class NumberedList(wiring.Component):
    """A list of up to `depth` instructions, from issue to completion.

    All outputs but `empties` and `full` are registers. They change one cycle after the input that
    changes them.

    | port         | meaning |
    |---|---|
    | `push`       | appends an entry; only while not `full` |
    | `rises`      | with `push`: the entry begins at or after the end of the entry before |
    | `full`       | there is no place for another entry |
    | `some`       | there is an entry |
    | `youngest`   | the place of the youngest entry, also after it has left |
    | `retire`     | drops the oldest entry, also together with a push |
    | `advance`    | sets the reach of the oldest entry to `advance_to` |
    | `advance_to` | first address that the oldest entry may still need or, if this entry is done,
                     that the next entry may need |
    | `progress`   | number and reach of the oldest entry |
    | `empties`    | no entry is left at the end of this cycle, not counting one that is pushed |

    Until it first advances, an entry that rises has reached as far as the entry before. An entry
    that does not rise has reached address 0.
    """

    def __init__(self, *, width: int, depth: int):
        self._depth = depth
        super().__init__(
            {
                "push": In(1),
                "rises": In(1),
                "full": Out(1),
                "some": Out(1),
                "youngest": Out(RING_BITS, init=PLACES - 1),
                "retire": In(1),
                "advance": In(1),
                "advance_to": In(width),
                "progress": Out(NumberedProgress(width)),
                "empties": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        oldest_number = Signal(NUMBER_BITS)
        address_reached = Signal.like(self.progress.reached)
        one_entry = Signal()
        reach_falls = Signal()
        entries_before = Signal(RING_BITS)
        # A bit for each place: the entry at the next place rises, that is, begins at or after the
        # end of the entry before it.
        rises = m.submodules.rises = Memory(shape=1, depth=PLACES, init=[])
        write = rises.write_port()
        read = rises.read_port(domain="comb")
        m.d.comb += [
            entries_before.eq(
                self.youngest - oldest_number[:RING_BITS]
            ),  # number of entries before the youngest entry
            one_entry.eq(entries_before == 0),
            self.full.eq(entries_before == self._depth - 1),
            self.empties.eq(~self.some | (self.retire & one_entry)),
            self.progress.oldest.eq(oldest_number),
            self.progress.reached.eq(address_reached),
            write.en.eq(self.push),
            write.addr.eq(self.youngest),
            write.data.eq(self.rises),
            read.addr.eq(oldest_number[:RING_BITS]),
            # `reach_falls` sets the reach to address 0. The oldest entry leaves and the next entry
            # does not rise, or an entry that does not rise enters an empty list.
            reach_falls.eq(
                (self.retire & ~one_entry & ~read.data) | (self.push & self.empties & ~self.rises)
            ),
        ]
        m.d.sync += [
            oldest_number.eq(oldest_number + self.retire),
            self.youngest.eq(self.youngest + self.push),
            self.some.eq(self.push | ~self.empties),
        ]
        with m.If(reach_falls):
            m.d.sync += address_reached.eq(0)
        with m.Elif(self.advance):
            m.d.sync += address_reached.eq(self.advance_to)
        promised(m, platform, ~self.push | ~self.full, "an instruction for a full list")
        promised(m, platform, ~self.retire | self.some, "an instruction leaves an empty list")
        return m
