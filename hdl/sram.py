# SPDX-License-Identifier: Apache-2.0
"""Synchronous memory with one read and one write port."""

from amaranth.hdl import ClockSignal, Elaboratable, Instance, Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

MACRO_BITS = 1 << 18
"""From this size on a memory is an instance of `sram_1r1w` (hdl/sram_1r1w.v): chips replace that
module by a macro, and the list of initial values of an inferred memory would be most of the
Verilog text."""


class Sram(wiring.Component):
    """`depth` words of `width` bits.

    Latency: `read_data` holds the word of `read_address` one cycle after `read_enable`, and keeps
    it until the next enabled read. Throughput: one read and one write a cycle.
    Reading the word that is being written in the same cycle gives the new value with
    `transparent`, else an undefined one. Contents are undefined until written.
    """

    def __init__(self, *, width: int, depth: int, transparent: bool = False):
        self._width = width
        self._depth = depth
        self._transparent = transparent
        super().__init__(
            {
                "read_enable": In(1),
                "read_address": In(ceil_log2(depth)),
                "read_data": Out(width),
                "write_enable": In(1),
                "write_address": In(ceil_log2(depth)),
                "write_data": In(width),
            }
        )

    @property
    def is_macro(self) -> bool:
        """Whether the memory becomes an instance of `sram_1r1w`."""
        return self._width * self._depth >= MACRO_BITS

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        if self.is_macro:
            m.submodules.macro = Instance(
                "sram_1r1w",
                p_WIDTH=self._width,
                p_DEPTH=self._depth,
                p_ADDRESS_BITS=len(self.read_address),
                p_TRANSPARENT=int(self._transparent),
                i_clk=ClockSignal(),
                i_read_enable=self.read_enable,
                i_read_address=self.read_address,
                o_read_data=self.read_data,
                i_write_enable=self.write_enable,
                i_write_address=self.write_address,
                i_write_data=self.write_data,
            )
            return m

        m.submodules.memory = memory = Memory(shape=self._width, depth=self._depth, init=[])
        write = memory.write_port()
        read = memory.read_port(transparent_for=[write] if self._transparent else [])
        m.d.comb += [
            read.en.eq(self.read_enable),
            read.addr.eq(self.read_address),
            self.read_data.eq(read.data),
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
        ]
        return m
