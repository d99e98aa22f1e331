# SPDX-License-Identifier: Apache-2.0
"""A memory with a parity bit for each byte."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.memories.sram import Sram, sram_ports

FLAW_LATENCY = 2
"""Cycles from `counts` to `flawed`: one to check each byte, one to combine the bytes."""


class ParitySram(wiring.Component):
    """An Sram with output register that detects flipped bits; `width` is a number of whole bytes.

    Beside the ports of an Sram it has two:

    | port     | meaning |
    |---|---|
    | `counts` | `read_data` is used in this cycle |
    | `flawed` | FLAW_LATENCY cycles after `counts`: in some byte an odd number of its nine bits had
                 changed |

    A bit has changed if it differs from the bit that was written last. A memory that is 0 from the
    beginning, like the memories of FPGAs, has no flaw.
    """

    def __init__(self, *, width: int, depth: int):
        self._width = width
        self._depth = depth
        super().__init__(
            {**sram_ports(width=width, depth=depth), "counts": In(1), "flawed": Out(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = self._width // 8
        memory = m.submodules.words = Sram(
            width=self._width + count, depth=self._depth, output_register=True
        )
        byte_flaws = Signal(count)
        word_counts = Signal()
        m.d.comb += [
            memory.read_enable.eq(self.read_enable),
            memory.read_address.eq(self.read_address),
            self.read_data.eq(memory.read_data),
            memory.write_enable.eq(self.write_enable),
            memory.write_address.eq(self.write_address),
            memory.write_data.eq(Cat(self.write_data, _parities(self.write_data))),
        ]
        m.d.sync += [
            byte_flaws.eq(_parities(self.read_data) ^ memory.read_data[self._width :]),
            word_counts.eq(self.counts),
            self.flawed.eq(word_counts & byte_flaws.any()),
        ]
        return m


def _parities(value: Value) -> Value:
    """Return a bit for each byte: 1 if the byte has an odd number of ones."""
    return Cat(value.word_select(byte, 8).xor() for byte in range(len(value) // 8))
