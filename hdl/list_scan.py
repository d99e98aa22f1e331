# SPDX-License-Identifier: Apache-2.0
"""Goes through the entries of a list for the instruction that is to be issued next."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.hdl.command_queue import stepped


class ListScan(wiring.Component):
    """Shows the entries of an `InFlight` list one after the other, oldest first, one a cycle, and
    collects who is in the way.

    `entry` is the one that is shown, of those in `entries` (`valid`, `push` and `retire` are the
    list's). `beside`, where there is such a layout, is what was `pushed_beside` with it: the part
    of an entry that nobody else needs.
    `conflicts[mask]`, in the next cycle, tells whether it is in the way. `masks` has a bit for each
    entry in the way as the list now stands, and is final with `complete`. `restart`: the next cycle
    begins with another instruction.
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
        # Entries already shown are the first ones: as many ones from bit 0, and as a number.
        shown = Signal(depth)
        position = Signal(range(depth))
        looked_at = Signal(depth)  # the entry of the cycle before, where it is now
        here = Signal(depth)
        shows = Signal()
        m.d.comb += [
            here.eq(self.valid & ~shown & ((shown << 1) | 1)),
            self.complete.eq(~(self.valid & ~shown).any()),
            shows.eq(~self.complete),
            self.entry.eq(self.entries[position]),
        ]
        now_shown = shown | here
        with m.If(self.restart):
            m.d.sync += [shown.eq(0), position.eq(0), looked_at.eq(0)]
        with m.Else():
            m.d.sync += [
                shown.eq(Mux(self.retire, now_shown[1:], now_shown)),
                position.eq(position + shows - self.retire),
                looked_at.eq(Mux(self.retire, here[1:], here)),
            ]
        for name in self._masks:
            found = Signal(depth, name=f"{name}_found")
            m.d.comb += self.masks[name].eq(found | Mux(self.conflicts[name], looked_at, 0))
            with m.If(self.restart):
                m.d.sync += found.eq(0)
            with m.Else():
                m.d.sync += found.eq(Mux(self.retire, self.masks[name][1:], self.masks[name]))

        # What only this unit reads stays where it is; the list of the others moves up.
        if self._beside is not None:
            bits = self.beside.as_value()
            memory = m.submodules.memory = Memory(shape=len(bits), depth=depth, init=[])
            write = memory.write_port()
            read = memory.read_port(domain="comb")
            free = Signal(range(depth))
            oldest = Signal(range(depth))
            next_oldest = Signal(range(depth))
            at = Signal(range(depth))
            m.d.comb += [
                write.en.eq(self.push),
                write.addr.eq(free),
                write.data.eq(self.pushed_beside),
                read.addr.eq(at),
                bits.eq(read.data),
                next_oldest.eq(Mux(self.retire, stepped(oldest, depth), oldest)),
            ]
            m.d.sync += oldest.eq(next_oldest)
            with m.If(self.push):
                m.d.sync += free.eq(stepped(free, depth))
            with m.If(self.restart):
                m.d.sync += at.eq(next_oldest)
            with m.Elif(shows):
                m.d.sync += at.eq(stepped(at, depth))
        return m
