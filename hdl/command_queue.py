# SPDX-License-Identifier: Apache-2.0
"""The instructions that wait in front of a unit."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

LATENCY = 2
"""Cycles from `push` to the instruction, where none is before it."""


def stepped(pointer: Value, depth: int) -> Value:
    """The place behind `pointer` in a ring of `depth` places."""
    return Mux(pointer == depth - 1, 0, pointer + 1)


class CommandQueue(wiring.Component):
    """Instructions that wait in front of a unit, oldest first, with masks of what they wait for.

    `command` and `masks` are those of the oldest, from registers; `valid` tells whether there is
    one; `pop` drops it. `push` only while not `full`. An instruction shows LATENCY cycles after its
    `push` at the earliest, and in the cycle after the `pop` of the one before it. `retired[list]`
    is the `retire` of each list in `lists` (name to depth), in the same cycle.

    All but the oldest lie in a small memory with asynchronous reads; only the masks, which follow
    their lists, are flip-flops.
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
        waiting = Signal(range(places + 1))  # instructions in the memory
        loads = Signal()
        oldest = Signal(range(max(places, 2)))
        free = Signal.like(oldest)
        m.d.comb += [
            self.full.eq(waiting == places),
            loads.eq((waiting != 0) & (~self.valid | self.pop)),
        ]
        m.d.sync += [
            waiting.eq(waiting + self.push - loads),
            self.valid.eq(loads | (self.valid & ~self.pop)),
        ]
        with m.If(self.push):
            m.d.sync += free.eq(stepped(free, places))
        with m.If(loads):
            m.d.sync += oldest.eq(stepped(oldest, places))

        bits = self.command.as_value()
        stored = Signal(len(bits), reset_less=True)
        if places == 1:
            with m.If(self.push):
                m.d.sync += stored.eq(self.pushed)
        else:
            memory = m.submodules.memory = Memory(shape=len(bits), depth=places, init=[])
            write = memory.write_port()
            read = memory.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(self.push),
                write.addr.eq(free),
                write.data.eq(self.pushed),
                read.addr.eq(oldest),
                stored.eq(read.data),
            ]
        with m.If(loads):
            m.d.sync += bits.eq(stored)

        for name, depth in self._lists.items():
            retired = self.retired[name]
            kept = [Signal(depth, name=f"{name}_{i}") for i in range(places)]
            first = Signal(depth, name=f"{name}_first")
            m.d.comb += first.eq(self.masks[name])
            for place, mask in enumerate(kept):
                with m.If(loads & (oldest == place)):
                    m.d.comb += first.eq(mask)
                now = Signal(depth, name=f"{name}_now_{place}")
                m.d.comb += now.eq(mask)
                with m.If(self.push & (free == place)):
                    m.d.comb += now.eq(self.pushed_masks[name])
                m.d.sync += mask.eq(Mux(retired, now[1:], now))
            m.d.sync += self.masks[name].eq(Mux(retired, first[1:], first))
        return m
