# SPDX-License-Identifier: Apache-2.0
"""The sequence numbers for which the commands in a queue wait."""

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
"""A block RAM has two lanes, each with a write enable."""
_BLOCK = {"ram_style": "block", "no_rw_check": 1}


class NumberMemory(wiring.Component):
    """The numbers of the commands in the ring of a `NumberedQueue`, a lane for each mask.

    | port | meaning |
    |---|---|
    | `finds`, `found` | of `RegionScan`: a number of the instruction that is issued next |
    | `free`, `oldest` | of the `NumberedQueue` |
    | `pop` | drops the oldest command |
    | `masks` | the numbers of the command at `oldest`, by their names; a register |

    The numbers of instructions for other queues are written, too. They go to the place `free`, and
    all numbers of an instruction are found anew before its own issue.
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
            write, read = memory.write_port(granularity=_LANE_BITS), memory.read_port()
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
