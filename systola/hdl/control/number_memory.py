# SPDX-License-Identifier: Apache-2.0
"""The memory of sequence numbers that the commands in a queue wait for."""

from amaranth.hdl import Cat, Module
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.hdl.control.numbered_list import PLACES, RING_BITS
from systola.hdl.control.region_scan import Found
from systola.hdl.control.scan_rom import first_number, masks_of
from systola.hdl.parts.sequence_number import Numbered

_LANE_BITS = 18
"""Bits of each of the two lanes of a block RAM. Each lane has a write enable."""
_BLOCK = {"ram_style": "block", "no_rw_check": 1}


class NumberMemory(wiring.Component):
    """A memory that holds, for each command of a `NumberedQueue`, one sequence number a mask.

    | port     | meaning |
    |---|---|
    | `finds`  | a number is found, for the instruction that is issued next (by `RegionScan`) |
    | `found`  | the number and its mask |
    | `free`   | the place of the next command in the queue |
    | `oldest` | the place of the oldest command in the queue |
    | `pop`    | drops the oldest command |
    | `masks`  | the numbers of the oldest command, by mask; a register |

    Numbers of instructions for other queues are written to the place `free` as well. They do no
    harm, as each instruction finds all of its numbers before it is issued.
    """

    def __init__(self, *, config: Config, queue: str = "activate"):
        self._masks = masks_of(config)[queue]
        self._first = first_number(config, queue)
        super().__init__(
            {
                "finds": In(1),
                "found": In(Found()),
                "free": In(RING_BITS),
                "oldest": In(RING_BITS),
                "pop": In(1),
                "masks": Out(data.StructLayout(dict.fromkeys(self._masks, Numbered()))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = Numbered().size
        for at in range(0, len(self._masks), 2):
            names = self._masks[at : at + 2]
            memory = Memory(shape=_LANE_BITS * len(names), depth=PLACES, init=[], attrs=_BLOCK)
            m.submodules["_".join(names)] = memory
            write = memory.write_port(granularity=_LANE_BITS)
            read = memory.read_port()
            number = self.found.numbers.as_value()
            m.d.comb += [
                write.addr.eq(self.free),
                write.en.eq(
                    Cat(
                        self.finds & (self.found.mask == self._first + at + i)
                        for i in range(len(names))
                    )
                ),
                read.addr.eq(self.oldest + self.pop),
            ]
            for place, name in enumerate(names):
                m.d.comb += [
                    write.data.word_select(place, _LANE_BITS).eq(number),
                    self.masks[name].eq(read.data.word_select(place, _LANE_BITS)[:width]),
                ]
        return m
