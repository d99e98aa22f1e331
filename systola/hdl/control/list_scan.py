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
    """A scan that finds, in some `InFlight` lists, the youngest entries the instruction awaits.

    It keeps the regions of the entries in one small memory. For each instruction it reads the
    `watched` lists one after the other, one entry a cycle, oldest entry first.

    | port        | meaning |
    |---|---|
    | `push`      | a bit for each list: the issued instruction is appended to it |
    | `pushed`    | regions of the issued instruction |
    | `rises`     | two cycles after a push: the entry begins at or after the end of the entry
                    before in its list; a register |
    | `free`      | each list's place for its next entry |
    | `oldest`    | each list's place of its oldest entry |
    | `valid`     | each list's entries, as in `InFlight` |
    | `rising`    | a bit for each place of each list: its entry rises |
    | `retire`    | a bit for each list: its oldest entry leaves |
    | `restart`   | another instruction begins in the next cycle; asserted with each push |
    | `watched`   | a bit for each list that the instruction may wait for; in its first cycle |
    | `entry`     | the entry to compare, from the instruction's second cycle; read from the memory
                    at a register's address |
    | `conflicts` | a bit for each mask, one cycle after `entry`: the instruction must wait for it |
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
        begins = Signal(init=1)  # the first cycle of an instruction; a reset is a restart
        todo = Signal(self._flags, reset_less=True)  # lists not yet read to their end
        first = Signal(self._flags)  # the list being read: the first of `todo`, one-hot
        at = Signal(list_bits, reset_less=True)  # its number
        here = Signal(bits, reset_less=True)  # the place being read in this list
        until = Signal(bits, reset_less=True)  # the place after the list's last entry
        following = Signal(bits)
        ends = Signal()  # the list's last entry is being read
        left = Signal(self._flags)  # lists to read after this list
        coming = Signal(self._flags)  # lists to read from the next cycle if a list begins
        watched = self.watched.as_value() & Cat(self.valid[name][0] for name in self._lists)
        m.d.comb += [
            first.eq(
                Cat(flag & ~todo.as_value()[:i].any() for i, flag in enumerate(todo.as_value()))
            ),
            following.eq(here + 1),
            ends.eq(following == until),
            left.eq(todo.as_value() & ~first.as_value()),
            coming.eq(Mux(begins, watched, left)),
            self.complete.eq(~Mux(ends, left.as_value(), todo.as_value()).any()),
        ]
        m.d.sync += begins.eq(self.restart)
        with m.If(self.restart):
            m.d.sync += todo.eq(0)
        with m.Elif(begins | ends):
            m.d.sync += todo.eq(coming)
        oldest = [self.oldest[name] + self.retire[name] for name in self._lists]
        m.d.sync += here.eq(Mux(begins | ends, self._first(coming, oldest), following))
        with m.If(begins | ends):
            m.d.sync += [
                until.eq(self._first(coming, [self.free[name] for name in self._lists])),
                at.eq(self._first(coming, range(len(self._lists)))),
            ]

        stored, youngest = self.entry.as_value(), self.entry[self._walked]
        memory = m.submodules.memory = Memory(
            shape=len(stored), depth=1 << (bits + list_bits), init=[]
        )
        write, read = memory.write_port(), memory.read_port(domain="comb")
        free = Signal(bits)
        pushed_at = Signal(list_bits)
        newest = Signal(bits + list_bits, reset_less=True)  # address of the entry before the push
        base = Signal.like(self.pushed[self._walked].base, reset_less=True)  # of the pushed entry
        m.d.comb += [
            free.eq(self._chosen(self.push, self.free)),
            pushed_at.eq(self._number(self.push)),
            write.en.eq(self.push.as_value().any()),
            write.addr.eq(Cat(free, pushed_at)),
            write.data.eq(self.pushed),
            # In the first cycle of an instruction no entry is compared. So the memory can be read
            # for `rises`, if there was a push.
            read.addr.eq(Mux(begins, newest, Cat(here, at))),
            stored.eq(read.data),
        ]
        m.d.sync += [
            # An entry after an empty region does not rise: an instruction without a region may
            # report progress at meaningless addresses.
            self.rises.eq(~(base - youngest.end)[-1] & (youngest.base != youngest.end)),
            newest.eq(Cat((free - 1)[:bits], pushed_at)),
            base.eq(self.pushed[self._walked].base),
        ]

        # The entry compared in the cycle before; it may have left its list since.
        judged = Signal(self._flags)
        judged_place = Signal(bits, reset_less=True)
        m.d.sync += [
            judged.eq(Mux(self.restart, 0, first)),
            judged_place.eq(here),
        ]
        stays: dict[str, Signal] = {}
        for name in self._lists:
            stays[name] = Signal(name=f"{name}_stays")
            ahead = Signal(bits, name=f"{name}_ahead")
            m.d.comb += [
                ahead.eq(judged_place - self.oldest[name]),
                stays[name].eq(
                    judged[name]
                    & Cat(self.valid[name], 0).bit_select(ahead, 1)
                    & ~(self.retire[name] & (ahead == 0))
                ),
            ]
        for mask, name in self._masks.items():
            pending = Signal(name=f"{mask}_pending", reset_less=True)
            last, run_first = (
                Signal(bits, name=f"{mask}_{which}", reset_less=True) for which in ("last", "first")
            )
            running = Signal(name=f"{mask}_running", reset_less=True)  # from `run_first` on
            hit = Signal(name=f"{mask}_hit")
            goes_on = running & self.rising[name].bit_select(judged_place, 1)
            leaves = self.retire[name] & (last == self.oldest[name])
            m.d.comb += [
                hit.eq(stays[name] & self.conflicts[mask]),
                self.masks[mask].eq(Cat(pending, last, (last - run_first)[:bits])),
            ]
            m.d.sync += pending.eq(~begins & (hit | (pending & ~leaves)))
            with m.If(begins):
                m.d.sync += running.eq(0)
            with m.Elif(judged[name]):
                m.d.sync += running.eq(hit | goes_on)
            with m.If(hit):
                m.d.sync += last.eq(judged_place)
                with m.If(~goes_on):
                    m.d.sync += run_first.eq(judged_place)
        return m

    def _first(self, flags: data.View, values: Sequence[ValueLike]) -> ValueLike:
        """Return the value of the first list with its flag set, or else of the last list."""
        chosen = values[-1]
        for name, value in reversed(list(zip(self._lists[:-1], values, strict=False))):
            chosen = Mux(flags[name], value, chosen)
        return chosen

    def _chosen(self, flags: data.View, values: data.View) -> Value:
        """Return the value of the list with its flag set, or zero without one."""
        chosen: Value = Const(0)
        for name in self._lists:
            chosen |= Mux(flags[name], values[name], 0)
        return chosen

    def _number(self, flags: data.View) -> Value:
        """Return the number of the list with its flag set."""
        number: Value = Const(0)
        for i, name in enumerate(self._lists):
            number |= Mux(flags[name], i, 0)
        return number
