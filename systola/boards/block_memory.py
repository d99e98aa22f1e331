# SPDX-License-Identifier: Apache-2.0
"""Memory made of the blocks of the FPGA: one access a cycle."""

from amaranth.hdl import ClockSignal, Const, Instance, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2
from amaranth.vendor import LatticeICE40Platform

SPRAM_BITS = 16
SPRAM_WORDS = 1 << 14


class BlockMemory(wiring.Component):
    """A memory of `depth` words of `data_bytes`, with an enable for each byte.

    | port        | meaning |
    |---|---|
    | `enable`    | an access |
    | `write`     | the access is a write |
    | `address`   | number of the word |
    | `data`      | data of a write |
    | `strobes`   | a bit for each byte: it is written |
    | `read_data` | the word, two cycles after a read |

    Throughput: one access a cycle, read or write. Contents are undefined until written. On iCE40
    UltraPlus the memory is made of the single-ported blocks of 32 KiB, elsewhere of block RAM.
    """

    def __init__(self, *, data_bytes: int, depth: int):
        self._data_bytes = data_bytes
        self._depth = depth
        super().__init__(
            {
                "enable": In(1),
                "write": In(1),
                "address": In(ceil_log2(depth)),
                "data": In(8 * data_bytes),
                "strobes": In(data_bytes),
                "read_data": Out(8 * data_bytes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read_data = Signal.like(self.read_data)
        m.d.sync += self.read_data.eq(read_data)
        if isinstance(platform, LatticeICE40Platform) and platform.device == "iCE40UP5K":
            self._add_spram(m, read_data)
            return m
        m.submodules.memory = memory = Memory(
            shape=8 * self._data_bytes, depth=self._depth, init=[]
        )
        write = memory.write_port(granularity=8)
        read = memory.read_port()
        m.d.comb += [
            write.addr.eq(self.address),
            write.data.eq(self.data),
            write.en.eq(Mux(self.enable & self.write, self.strobes, 0)),
            read.addr.eq(self.address),
            read.en.eq(self.enable & ~self.write),
            read_data.eq(read.data),
        ]
        return m

    def _add_spram(self, m: Module, read_data: Signal) -> None:
        """Add single-ported RAM blocks of the iCE40: `depth` decides the number of rows of blocks,
        and the width decides the number of blocks in a row.
        """
        rows = -(-self._depth // SPRAM_WORDS)
        row_bits = ceil_log2(rows)
        row = Signal(row_bits)
        shown = Signal(row_bits)
        m.d.comb += row.eq(self.address[ceil_log2(SPRAM_WORDS) :])
        with m.If(self.enable & ~self.write):
            m.d.sync += shown.eq(row)
        for column in range(8 * self._data_bytes // SPRAM_BITS):
            part = slice(SPRAM_BITS * column, SPRAM_BITS * (column + 1))
            words = []
            for number in range(rows):
                word = Signal(SPRAM_BITS)
                words.append(word)
                low, high = self.strobes[2 * column], self.strobes[2 * column + 1]
                m.submodules[f"spram_{column}_{number}"] = Instance(
                    "SB_SPRAM256KA",
                    i_CLOCK=ClockSignal(),
                    i_CHIPSELECT=self.enable & (row == number),
                    i_WREN=self.write,
                    i_ADDRESS=self.address[: ceil_log2(SPRAM_WORDS)],
                    i_DATAIN=self.data[part],
                    i_MASKWREN=low.replicate(2) | (high.replicate(2) << 2),
                    o_DATAOUT=word,
                    i_STANDBY=Const(0, 1),
                    i_SLEEP=Const(0, 1),
                    i_POWEROFF=Const(1, 1),
                )
            with m.Switch(shown):
                for number, word in enumerate(words):
                    with m.Case(number):
                        m.d.comb += read_data[part].eq(word)
