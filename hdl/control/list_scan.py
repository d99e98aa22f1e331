# SPDX-License-Identifier: Apache-2.0
"""Goes through the entries of a list for the instruction that is to be issued next."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.ring import stepped


class ListScan(wiring.Component):
    """Goes through the entries of an `InFlight` list, oldest first, one a cycle, and collects who
    is in the way: an entry is chosen in one cycle, compared in the next, and judged behind that.

    `entry`, a register, is the one that is compared, of those in `entries` (`valid`, `push` and
    `retire` are the list's). `beside`, where there is such a layout, is what was `pushed_beside`
    with it: the part of an entry that nobody else needs. Neither follows its list any more.
    `conflicts[mask]`, in the next cycle, tells whether it is in the way. `complete`: all entries
    have been chosen; two cycles later `masks` is final, and has a bit for each entry in the way as
    the list stands then. `restart`: the next cycle begins with another instruction; `masks` are
    kept for that cycle, and nothing is pushed but with a `restart`.
    """

    def __init__(
        self,
        *,
        entry: data.StructLayout,
        depth: int,
        masks: tuple[str, ...],
        beside: data.StructLayout | None = None,
    ):
        self._depth = depth
        self._masks = masks
        self._beside = beside
        members: dict[str, wiring.Member] = {}
        if beside is not None:
            members = {"push": In(1), "pushed_beside": In(beside), "beside": Out(beside)}
        super().__init__(
            {
                **members,
                "valid": In(depth),
                "entries": In(data.ArrayLayout(entry, depth)),
                "retire": In(1),
                "restart": In(1),
                "entry": Out(entry),
                "conflicts": In(data.StructLayout(dict.fromkeys(masks, 1))),
                "masks": Out(data.StructLayout(dict.fromkeys(masks, depth))),
                "complete": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = self._depth
        # Entries already chosen are the first ones: as many ones from bit 0, and as a number.
        # All that is behind `restart` needs no other reset.
        shown = Signal(depth, reset_less=True)
        position = Signal(range(depth), reset_less=True)
        here = Signal(depth)
        now_shown = Signal(depth)
        through = Signal(reset_less=True)
        m.d.comb += [
            here.eq(self.valid & ~shown & Cat(1, shown)),
            now_shown.eq(shown | here),
            self.complete.eq(through),
        ]
        entry = Signal(self.entry.shape(), reset_less=True)
        # The entry chosen in the cycle before, where it is now, and the one before.
        compared = Signal(depth, reset_less=True)
        judged = Signal(depth, reset_less=True)
        restarted = Signal(reset_less=True)
        m.d.comb += self.entry.eq(entry)
        m.d.sync += [
            entry.eq(self.entries[position]),
            judged.eq(compared >> self.retire),
            restarted.eq(self.restart),
        ]
        with m.If(self.restart):
            m.d.sync += [shown.eq(0), position.eq(0), compared.eq(0), through.eq(0)]
        with m.Else():
            m.d.sync += [
                shown.eq(now_shown >> self.retire),
                # It goes on even where there is no entry at all.
                position.eq(position + ~through - self.retire),
                compared.eq(here >> self.retire),
                through.eq((self.valid & ~now_shown) == 0),
            ]
        for name in self._masks:
            found = Signal(depth, name=f"{name}_found", reset_less=True)
            now = Signal(depth, name=f"{name}_now")
            m.d.comb += [
                now.eq(found | Mux(self.conflicts[name], judged, 0)),
                self.masks[name].eq(found),
            ]
            with m.If(restarted):
                m.d.sync += found.eq(0)
            with m.Else():
                m.d.sync += found.eq(now >> self.retire)

        # What only this unit reads stays where it is; the list of the others moves up.
        if self._beside is not None:
            bits = Signal(len(self.beside.as_value()), reset_less=True)
            memory = m.submodules.memory = Memory(shape=len(bits), depth=depth, init=[])
            write = memory.write_port()
            read = memory.read_port(domain="comb")
            free = Signal(range(depth))
            oldest = Signal(range(depth))
            next_oldest = Signal(range(depth))
            at = Signal(range(depth), reset_less=True)
            m.d.comb += [
                # What is written behind the last one does not matter before its push.
                write.en.eq(~self.valid[-1]),
                write.addr.eq(free),
                write.data.eq(self.pushed_beside),
                read.addr.eq(at),
                self.beside.eq(bits),
                next_oldest.eq(Mux(self.retire, stepped(oldest, depth), oldest)),
            ]
            m.d.sync += [bits.eq(read.data), oldest.eq(next_oldest)]
            with m.If(self.push):
                m.d.sync += free.eq(stepped(free, depth))
            with m.If(self.restart):
                m.d.sync += at.eq(next_oldest)
            with m.Elif(~through):
                m.d.sync += at.eq(stepped(at, depth))
        return m
