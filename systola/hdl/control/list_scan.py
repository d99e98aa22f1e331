# SPDX-License-Identifier: Apache-2.0
"""Searches lists of unfinished instructions for conflicts with the next instruction."""

from collections.abc import Mapping, Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.hdl.parts.in_flight import Awaited


class ListScan(wiring.Component):
    """A scan that finds the youngest entries of some lists that the next instruction awaits.

    The lists are of class `InFlight`. The scan keeps the regions of their entries in one small
    memory. For each instruction it reads the `watched` lists one after the other, one entry a
    cycle, oldest entry first.

    | port        | meaning |
    |---|---|
    | `push`      | a bit for each list: the issued instruction is appended to it |
    | `pushed`    | regions of the issued instruction |
    | `rises`     | two cycles after a push: the entry begins at or after the end of the entry
                    before in its list; a register |
    | `free`      | for each list, the place for its next entry |
    | `oldest`    | for each list, the place of its oldest entry |
    | `valid`     | for each list, its port `valid`, as in `InFlight` |
    | `rising`    | a bit for each place of each list: its entry rises |
    | `retire`    | a bit for each list: its oldest entry leaves |
    | `restart`   | another instruction begins in the next cycle; asserted with each push |
    | `watched`   | a bit for each list that the instruction may wait for; in its first cycle |
    | `entry`     | the entry to compare, from the instruction's second cycle; read from the memory
                    at a register's address |
    | `conflicts` | a bit for each mask, one cycle after `entry`: the instruction must wait for
                    the entry |
    | `complete`  | the last entry is being compared, or has been; meaningless in the instruction's
                    first cycle |
    | `masks`     | the entries to wait for; final from two cycles after `complete` until one cycle
                    after `restart` |

    The parameter `masks` names the list of each mask. `walked` names the region of an entry through
    which its instruction walks in order.
    """

    def __init__(
        self,
        *,
        entry: data.StructLayout,
        depth: int,
        lists: Sequence[str],
        masks: Mapping[str, str],
        walked: str,
    ):
        self._walked = walked
        self._depth = depth
        self._lists = tuple(lists)
        self._masks = dict(masks)
        flags = self._flags = data.StructLayout(dict.fromkeys(lists, 1))
        places = data.StructLayout(dict.fromkeys(lists, ceil_log2(depth)))
        super().__init__(
            {
                "push": In(flags),
                "pushed": In(entry),
                "rises": Out(1),
                "free": In(places),
                "oldest": In(places),
                "valid": In(data.StructLayout(dict.fromkeys(lists, depth))),
                "rising": In(data.StructLayout(dict.fromkeys(lists, 1 << ceil_log2(depth)))),
                "retire": In(flags),
                "restart": In(1),
                "watched": In(flags),
                "entry": Out(entry),
                "conflicts": In(data.StructLayout(dict.fromkeys(masks, 1))),
                "complete": Out(1),
                "masks": Out(data.StructLayout(dict.fromkeys(masks, Awaited(depth)))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = ceil_log2(self._depth)
        list_bits = ceil_log2(len(self._lists))

        # The memory's address comes from registers, so the entry can be compared in the same cycle.
        # high in the first cycle of an instruction; a reset counts as a restart
        scan_begins = Signal(init=1)
        lists_remaining = Signal(self._flags, reset_less=True)  # lists not yet read to their end
        # the list being read: the first of `lists_remaining`, one-hot
        list_read = Signal(self._flags)
        list_number = Signal(list_bits, reset_less=True)  # number of `list_read`
        entry_place = Signal(bits, reset_less=True)  # place of the entry being read
        end_place = Signal(bits, reset_less=True)  # the place after the list's last entry
        next_place = Signal(bits)
        list_ends = Signal()  # the last entry of `list_read` is being read
        lists_after = Signal(self._flags)  # lists to read after `list_read`
        # lists to read from the next cycle on if the next list begins then
        lists_coming = Signal(self._flags)
        watched = self.watched.as_value() & Cat(self.valid[name][0] for name in self._lists)
        m.d.comb += [
            list_read.eq(
                Cat(
                    flag & ~lists_remaining.as_value()[:i].any()
                    for i, flag in enumerate(lists_remaining.as_value())
                )
            ),
            next_place.eq(entry_place + 1),
            list_ends.eq(next_place == end_place),
            lists_after.eq(lists_remaining.as_value() & ~list_read.as_value()),
            lists_coming.eq(Mux(scan_begins, watched, lists_after)),
            self.complete.eq(
                ~Mux(list_ends, lists_after.as_value(), lists_remaining.as_value()).any()
            ),
        ]
        m.d.sync += scan_begins.eq(self.restart)
        with m.If(self.restart):
            m.d.sync += lists_remaining.eq(0)
        with m.Elif(scan_begins | list_ends):
            m.d.sync += lists_remaining.eq(lists_coming)
        oldest = [self.oldest[name] + self.retire[name] for name in self._lists]
        m.d.sync += entry_place.eq(
            Mux(scan_begins | list_ends, self._first(lists_coming, oldest), next_place)
        )
        with m.If(scan_begins | list_ends):
            m.d.sync += [
                end_place.eq(self._first(lists_coming, [self.free[name] for name in self._lists])),
                list_number.eq(self._first(lists_coming, range(len(self._lists)))),
            ]

        stored, youngest = self.entry.as_value(), self.entry[self._walked]
        memory = m.submodules.memory = Memory(
            shape=len(stored), depth=1 << (bits + list_bits), init=[]
        )
        write = memory.write_port()
        read = memory.read_port(domain="comb")
        push_place = Signal(bits)
        pushed_at = Signal(list_bits)
        # address of the entry just older than the pushed entry
        entry_before = Signal(bits + list_bits, reset_less=True)
        # base of the pushed entry
        pushed_base = Signal.like(self.pushed[self._walked].base, reset_less=True)
        m.d.comb += [
            push_place.eq(self._chosen(self.push, self.free)),
            pushed_at.eq(self._number(self.push)),
            write.en.eq(self.push.as_value().any()),
            write.addr.eq(Cat(push_place, pushed_at)),
            write.data.eq(self.pushed),
            # In the first cycle of an instruction no entry is compared. In this cycle the memory
            # may be read for `rises`, if there was a push.
            read.addr.eq(Mux(scan_begins, entry_before, Cat(entry_place, list_number))),
            stored.eq(read.data),
        ]
        m.d.sync += [
            # An entry after an empty region does not rise: an instruction without a region may
            # report progress at meaningless addresses.
            self.rises.eq(~(pushed_base - youngest.end)[-1] & (youngest.base != youngest.end)),
            entry_before.eq(Cat((push_place - 1)[:bits], pushed_at)),
            pushed_base.eq(self.pushed[self._walked].base),
        ]

        # The entry that was compared in the cycle before. It may have left its list since then.
        lists_judged = Signal(self._flags)
        judged_place = Signal(bits, reset_less=True)
        m.d.sync += [
            lists_judged.eq(Mux(self.restart, 0, list_read)),
            judged_place.eq(entry_place),
        ]
        stays: dict[str, Signal] = {}
        for name in self._lists:
            stays[name] = Signal(name=f"{name}_stays")
            places_ahead = Signal(bits, name=f"{name}_ahead")
            m.d.comb += [
                places_ahead.eq(judged_place - self.oldest[name]),
                stays[name].eq(
                    lists_judged[name]
                    & Cat(self.valid[name], 0).bit_select(places_ahead, 1)
                    & ~(self.retire[name] & (places_ahead == 0))
                ),
            ]
        for mask, name in self._masks.items():
            mask_pending = Signal(name=f"{mask}_pending", reset_less=True)
            mask_last, run_first = (
                Signal(bits, name=f"{mask}_{which}", reset_less=True)
                for which in ("mask_last", "first")
            )
            # Each entry from `run_first` to the last one judged conflicts, or rises after the
            # entry before it.
            run_continues = Signal(name=f"{mask}_running", reset_less=True)
            entry_conflicts = Signal(name=f"{mask}_hit")
            goes_on = run_continues & self.rising[name].bit_select(judged_place, 1)
            mask_entry_leaves = self.retire[name] & (mask_last == self.oldest[name])
            m.d.comb += [
                entry_conflicts.eq(stays[name] & self.conflicts[mask]),
                self.masks[mask].eq(Cat(mask_pending, mask_last, (mask_last - run_first)[:bits])),
            ]
            m.d.sync += mask_pending.eq(
                ~scan_begins & (entry_conflicts | (mask_pending & ~mask_entry_leaves))
            )
            with m.If(scan_begins):
                m.d.sync += run_continues.eq(0)
            with m.Elif(lists_judged[name]):
                m.d.sync += run_continues.eq(entry_conflicts | goes_on)
            with m.If(entry_conflicts):
                m.d.sync += mask_last.eq(judged_place)
                with m.If(~goes_on):
                    m.d.sync += run_first.eq(judged_place)
        return m

    def _first(self, flags: data.View, values: Sequence[ValueLike]) -> ValueLike:
        """Return the value of the first list that has its flag set.

        If no flag is set, it is the value of the last list.
        """
        chosen = values[-1]
        for name, value in reversed(list(zip(self._lists[:-1], values, strict=False))):
            chosen = Mux(flags[name], value, chosen)
        return chosen

    def _chosen(self, flags: data.View, values: data.View) -> Value:
        """Return the value of the list that has its flag set, or zero if no flag is set.

        At most one flag may be set.
        """
        chosen: Value = Const(0)
        for name in self._lists:
            chosen |= Mux(flags[name], values[name], 0)
        return chosen

    def _number(self, flags: data.View) -> Value:
        """Return the number of the list that has its flag set."""
        number: Value = Const(0)
        for i, name in enumerate(self._lists):
            number |= Mux(flags[name], i, 0)
        return number
