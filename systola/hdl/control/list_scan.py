# SPDX-License-Identifier: Apache-2.0
"""Goes through some lists for the instruction that is to be issued next."""

from collections.abc import Mapping, Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.hdl.parts.in_flight import Awaited


class ListScan(wiring.Component):
    """Keeps what the instructions in some `InFlight` lists use, in one small memory, and goes
    through those lists that are `watched`, one after the other, an entry a cycle, oldest first, to
    find the youngest that is in the way.

    | port | |
    |---|---|
    | `push`, `pushed` | the list that takes what is issued, if any, and what that uses |
    | `rises` | two cycles later: that begins where the one before in the list has ended, or \
behind; a register |
    | `free`, `oldest`, `valid`, `rising`, `retire` | the lists |
    | `restart` | the next cycle begins with another instruction; comes with each push |
    | `watched` | lists that matter to it, in its first cycle |
    | `entry` | the one that is compared, from its second cycle on; a register and a memory |
    | `conflicts` | in the next cycle: for each mask whether it is in the way |
    | `complete` | the last one is being compared, or was; means nothing in the first cycle |
    | `masks` | final two cycles after `complete`, and until one cycle after `restart` |

    `masks` names the list of each mask, `walked` the region of an entry that its instruction walks
    through.
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

        # Registers say where the memory is read: what is read is compared in the same cycle.
        begins = Signal(init=1)  # the first cycle of an instruction; a reset is a restart
        todo = Signal(self._flags, reset_less=True)  # lists that are not through
        first = Signal(self._flags)  # of `todo`, a one
        at = Signal(list_bits, reset_less=True)  # its number
        here = Signal(bits, reset_less=True)  # the place there
        until = Signal(bits, reset_less=True)  # there, the place behind its last entry
        following = Signal(bits)
        ends = Signal()  # the last entry of that list
        left = Signal(self._flags)  # what is to do behind it
        coming = Signal(self._flags)  # the same, or with an instruction all that is
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
        newest = Signal(bits + list_bits, reset_less=True)  # before the one that was pushed
        base = Signal.like(self.pushed[self._walked].base, reset_less=True)  # of that one
        m.d.comb += [
            free.eq(self._chosen(self.push, self.free)),
            pushed_at.eq(self._number(self.push)),
            write.en.eq(self.push.as_value().any()),
            write.addr.eq(Cat(free, pushed_at)),
            write.data.eq(self.pushed),
            # Behind a push an instruction begins, which has nothing to compare yet.
            read.addr.eq(Mux(begins, newest, Cat(here, at))),
            stored.eq(read.data),
        ]
        m.d.sync += [
            # After an empty region nothing rises: who has one may tell of addresses that are none.
            self.rises.eq(~(base - youngest.end)[-1] & (youngest.base != youngest.end)),
            newest.eq(Cat((free - 1)[:bits], pushed_at)),
            base.eq(self.pushed[self._walked].base),
        ]

        # The entry that was compared, whether or not it is in its list any longer.
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
        """The value of the first list whose flag is up, or of the last list."""
        chosen = values[-1]
        for name, value in reversed(list(zip(self._lists[:-1], values, strict=False))):
            chosen = Mux(flags[name], value, chosen)
        return chosen

    def _chosen(self, flags: data.View, values: data.View) -> Value:
        """The value of the list whose flag is up; zero for none."""
        chosen: Value = Const(0)
        for name in self._lists:
            chosen |= Mux(flags[name], values[name], 0)
        return chosen

    def _number(self, flags: data.View) -> Value:
        """The number of the list whose flag is up."""
        number: Value = Const(0)
        for i, name in enumerate(self._lists):
            number |= Mux(flags[name], i, 0)
        return number
