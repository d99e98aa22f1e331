# SPDX-License-Identifier: Apache-2.0
"""The instructions that wait in front of a unit."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.ring import stepped

LATENCY = 2
"""Cycles from `push` to the instruction, where none is before it."""


class CommandQueue(wiring.Component):
    """Instructions that wait in front of a unit, oldest first, with masks of what they wait for.

    `command` and `masks` are those of the oldest, from registers; `valid` tells whether there is
    one, and without one they mean nothing; `pop` drops it. `push` only while not `full`.
    `pushed_masks` come in the cycle behind the push. An instruction shows LATENCY cycles after its
    `push` at the earliest, and in the cycle after the `pop` of the one before it, but not sooner
    than two cycles after that one came. `full` counts an instruction for one cycle more than it
    waits behind another. `retired[list]` is the `retire` of each list in `lists` (name to depth),
    in the same cycle. `blocked`, a register, tells for each whether the mask had a bit in the cycle
    before, here or where it waited; `unblocked`, another one, that there is an oldest instruction
    and none of its masks had.

    All but the oldest lie in a small memory with asynchronous reads; only the masks, which follow
    their lists, are flip-flops. A unit may know late in a cycle that it pops: that decides about
    the next cycle's `command`, `masks` and `valid`, and all the rest follows a cycle later.
    """

    def __init__(self, *, command: data.StructLayout, depth: int, lists: dict[str, int]):
        self._places = depth - 1
        self._lists = lists
        members: dict[str, wiring.Member] = {}
        if lists:
            masks = data.StructLayout(lists)
            members = {
                "pushed_masks": In(masks),
                "masks": Out(masks),
                "blocked": Out(data.StructLayout(dict.fromkeys(lists, 1))),
                "unblocked": Out(1),
                "retired": In(data.StructLayout(dict.fromkeys(lists, 1))),
            }
        super().__init__(
            {
                **members,
                "push": In(1),
                "pushed": In(command),
                "full": Out(1),
                "pop": In(1),
                "valid": Out(1),
                "command": Out(command),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        places = self._places
        waiting = Signal(places)  # as many ones, from bit 0, as instructions in the memory
        ready = Signal()  # the oldest of them can be loaded
        loads = Signal()
        remains = Signal()  # there is an oldest one in the next cycle
        loaded = Signal()  # it was, and leaves the memory with this cycle
        left = Signal(places)
        here = Signal(places)
        m.d.comb += [
            self.full.eq(waiting[-1]),
            loads.eq(ready & (~self.valid | self.pop)),
            remains.eq(loads | (self.valid & ~self.pop)),
            left.eq(Mux(loaded, waiting[1:], waiting)),
            here.eq(Mux(self.push, ~left & Cat(1, left), 0)),
        ]
        m.d.sync += [
            self.valid.eq(remains),
            loaded.eq(loads),
            ready.eq((self.push | left[0]) & ~loads),
            waiting.eq(left | here),
        ]

        # What is written behind the last one does not matter before its push.
        free = Signal(range(max(places, 2)))
        oldest = Signal.like(free)
        with m.If(self.push):
            m.d.sync += free.eq(stepped(free, places))
        with m.If(loaded):
            m.d.sync += oldest.eq(stepped(oldest, places))
        bits = Signal(len(self.command.as_value()), reset_less=True)
        stored = Signal.like(bits)
        m.d.comb += self.command.eq(bits)
        if places == 1:
            with m.If(~self.full):
                m.d.sync += stored.eq(self.pushed)
        else:
            memory = m.submodules.memory = Memory(shape=len(bits), depth=places, init=[])
            write = memory.write_port()
            read = memory.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(~self.full),
                write.addr.eq(free),
                write.data.eq(self.pushed),
                read.addr.eq(oldest),
                stored.eq(read.data),
            ]
        # A register of its own, as it goes far.
        vacant = Signal(init=1)
        m.d.sync += vacant.eq(~remains)
        with m.If(vacant | self.pop):
            m.d.sync += bits.eq(stored)

        fresh = Signal(places)  # its masks come
        blocked = []
        for name, depth in self._lists.items():
            retired = self.retired[name]
            now = [Signal(depth, name=f"{name}_now_{i}") for i in range(places)]
            for place, mask in enumerate(now):
                kept = Signal(depth, name=f"{name}_{place}", reset_less=True)
                moved = Mux(loaded, now[place + 1], mask) if place + 1 < places else mask
                m.d.comb += mask.eq(Mux(fresh[place], self.pushed_masks[name], kept))
                m.d.sync += kept.eq(moved >> retired)
            first = Signal(depth, name=f"{name}_first", reset_less=True)
            waits = Signal(name=f"{name}_waits")
            m.d.comb += [
                self.masks[name].eq(first),
                waits.eq(Mux(loads, now[0].any(), first.any())),
            ]
            m.d.sync += [
                first.eq(Mux(loads, now[0], first) >> retired),
                self.blocked[name].eq(waits),
            ]
            blocked.append(waits)
        if self._lists:
            m.d.sync += [fresh.eq(here), self.unblocked.eq(remains & ~Cat(blocked).any())]
        return m
