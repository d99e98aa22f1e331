# SPDX-License-Identifier: Apache-2.0
"""Memory with a parity bit for each byte."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.memories.sram import Sram, sram_ports

FLAW_LATENCY = 2
"""Cycles from `counts` to `flawed`: byte by byte, and all of them."""


class ParitySram(wiring.Component):
    """An Sram with output register, `width` in whole bytes, that tells when a bit has flipped.

    `counts` is up in a cycle in which somebody uses `read_data`; `flawed` is up FLAW_LATENCY cycles
    later when then an odd number of the nine bits of a byte had changed since they were written. A
    memory that is 0 from the beginning, as those of FPGAs are, is without flaw.
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
        flaws = Signal(count)
        counted = Signal()
        m.d.comb += [
            memory.read_enable.eq(self.read_enable),
            memory.read_address.eq(self.read_address),
            self.read_data.eq(memory.read_data),
            memory.write_enable.eq(self.write_enable),
            memory.write_address.eq(self.write_address),
            memory.write_data.eq(Cat(self.write_data, _parities(self.write_data))),
        ]
        m.d.sync += [
            flaws.eq(_parities(self.read_data) ^ memory.read_data[self._width :]),
            counted.eq(self.counts),
            self.flawed.eq(counted & flaws.any()),
        ]
        return m


def _parities(value: Value) -> Value:
    """A bit for each byte: 1 where it has an odd number of ones."""
    return Cat(value.word_select(byte, 8).xor() for byte in range(len(value) // 8))
