# SPDX-License-Identifier: Apache-2.0
"""The ring that assigns places in memory to the commands that wait for a unit."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.control.numbered_list import RING_BITS
from systola.hdl.parts.promise import promised


class NumberedQueue(wiring.Component):
    """A ring of up to `depth` places in a command memory, from the oldest command on.

    | port     | meaning |
    |---|---|
    | `push`   | issues the command that was written at place `free`; only while not `full` |
    | `free`   | the place for the words of the next command |
    | `full`   | there is no place for another command |
    | `valid`  | there is a command |
    | `oldest` | the place of the oldest command |
    | `pop`    | drops the oldest command |

    `free` and `oldest` are registers, and the other outputs follow from them. The words of a
    command are written before its `push`, one by one.
    """

    def __init__(self, *, depth: int):
        self._depth = depth
        super().__init__(
            {
                "push": In(1),
                "free": Out(RING_BITS),
                "full": Out(1),
                "valid": Out(1),
                "oldest": Out(RING_BITS),
                "pop": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        commands_waiting = Signal(RING_BITS)
        m.d.comb += [
            commands_waiting.eq(self.free - self.oldest),
            self.full.eq(commands_waiting == self._depth),
            self.valid.eq(commands_waiting != 0),
        ]
        m.d.sync += [self.free.eq(self.free + self.push), self.oldest.eq(self.oldest + self.pop)]
        promised(m, platform, ~self.push | ~self.full, "a command for a full queue")
        promised(m, platform, ~self.pop | self.valid, "a command is taken that is not there")
        return m
