# SPDX-License-Identifier: Apache-2.0
"""The gate in which other instructions wait for the instructions of the links.

Instructions of the links complete late, and may still use lines and rows that others need.
"""

from collections.abc import Sequence

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.commands import address_bits, row_bits
from systola.hdl.control.link_list import ListView, list_places
from systola.hdl.link_commands import place_bits
from systola.hdl.parts.in_flight import Region, overlaps


class LinkGate(wiring.Component):
    """A unit that compares an instruction with all unfinished instructions of the links.

    The unit compares one entry of the lists in each cycle. If an entry uses a line or row which the
    instruction must not touch yet, the unit waits until the entry is finished.

    | port | meaning |
    |---|---|
    | `restart` | the next cycle is the first of another instruction |
    | `passes` | the instruction need not be compared, as it waits for no link |
    | `buffer`, `source`, `operand`, `accumulator` | regions that the instruction uses, else 0 |
    | `fills` | the instruction writes the lines of `buffer` |
    | `sums` | the instruction writes the rows of `accumulator` |
    | `lists` | the unfinished instructions of the links |
    | `clear` | the instruction may be issued, as far as the links are concerned |

    `clear` rises in the second cycle of an instruction at the earliest, and then stays until its
    issue. Instructions in the lists `sending` read their lines and rows; instructions in the lists
    `receiving` write them.
    """

    def __init__(self, *, config: Config, sending: Sequence[str], receiving: Sequence[str]):
        self._config = config
        self._sending, self._receiving = tuple(sending), tuple(receiving)
        lines, view = Region(address_bits(config)), ListView(config=config)
        super().__init__(
            {
                "restart": In(1),
                "passes": In(1),
                "fills": In(1),
                "sums": In(1),
                "buffer": In(lines),
                "source": In(lines),
                "operand": In(lines),
                "accumulator": In(Region(row_bits(config))),
                "lists": In(data.StructLayout(dict.fromkeys((*sending, *receiving), view))),
                "clear": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        names = (*self._sending, *self._receiving)
        places = list_places(self._config)
        lists = [self.lists[name] for name in names]
        count = places * len(lists)
        bits = place_bits(self._config)

        # Numbers of two entries: the entry being fetched, and the entry being compared.
        fetched_entry = Signal(range(count))
        compared_entry = Signal.like(fetched_entry)
        entry_valid, gate_unneeded, scan_begins = (
            Signal(name=name) for name in ("entry_valid", "gate_unneeded", "scan_begins")
        )
        entry_used = Signal(reset_less=True)
        entry = Signal(Region(bits + 1), reset_less=True)
        places_of = Signal(Region(bits))
        is_rows = entry.base[-1]
        scan_done, entry_conflicts = (
            Signal(name=name) for name in ("scan_done", "entry_conflicts")
        )
        valid = Array(view.valid[i] for view in lists for i in range(places))
        regions = Array(view.regions[i] for view in lists for i in range(places))
        m.d.comb += [places_of.base.eq(entry.base), places_of.end.eq(entry.end)]
        fills = overlaps(self.buffer, places_of) & ~is_rows
        reads = (overlaps(self.source, places_of) | overlaps(self.operand, places_of)) & ~is_rows
        rows = overlaps(self.accumulator, places_of) & is_rows
        from_sender = compared_entry < places * len(self._sending)
        m.d.comb += entry_conflicts.eq(
            entry_valid
            & entry_used
            & (
                (fills & (self.fills | ~from_sender))
                | (reads & ~from_sender)
                | (rows & (self.sums | ~from_sender))
            )
        )
        m.d.sync += [
            scan_begins.eq(self.restart),
            entry.eq(regions[fetched_entry]),
            entry_used.eq(valid[fetched_entry]),
            compared_entry.eq(fetched_entry),
            entry_valid.eq(~scan_begins & ~entry_conflicts & ~self.restart),
            fetched_entry.eq(fetched_entry + 1),
            scan_done.eq(
                (scan_done | (entry_valid & ~entry_conflicts & (compared_entry == count - 1)))
                & ~scan_begins
                & ~self.restart
            ),
            gate_unneeded.eq(self.passes | ~Cat(view.valid for view in lists).any()),
        ]
        with m.If(entry_conflicts):
            m.d.sync += fetched_entry.eq(compared_entry)
        with m.If(scan_begins | self.restart):
            m.d.sync += fetched_entry.eq(0)
        m.d.comb += self.clear.eq(gate_unneeded | scan_done)
        return m
