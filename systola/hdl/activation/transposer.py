# SPDX-License-Identifier: Apache-2.0
"""The transposer of tiles: a small memory for each column, with a permutation on both sides."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2


class Transposer(wiring.Component):
    """A unit that transposes tiles of C lines: it takes C loads, then C takes.

    | port     | meaning |
    |---|---|
    | `load`   | `line` is the next line of the tile |
    | `line`   | C bytes |
    | `take`   | asks for the next line of the transposed tile |
    | `result` | this line in the cycle after `take`, else 0 |

    Take number i gives byte i of each line that was loaded, in the order of the loads. Throughput:
    one load or take a cycle, not both in the same cycle. No back-pressure.

    Byte j of line i lies in memory i XOR j at address i. So the bytes of a line lie in different
    memories, and so do the bytes of a column. Loads and takes use the same permutation.
    """

    def __init__(self, *, cols: int):
        self._cols = cols
        super().__init__(
            {
                "load": In(1),
                "line": In(8 * cols),
                "take": In(1),
                "result": Out(8 * cols),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = ceil_log2(self._cols)
        line_number = Signal(bits)  # number of the next load or take
        ends = line_number == self._cols - 1
        with m.If(self.load | self.take):
            m.d.sync += line_number.eq(Mux(ends, 0, line_number + 1))

        permuted: list[Value] = []
        writes: list[Value] = []
        for column in range(1 << bits):
            memory = Memory(shape=8, depth=1 << bits, init=[])
            m.submodules[f"memory_{column}"] = memory
            write = memory.write_port()
            port = memory.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(self.load),
                write.addr.eq(line_number),
                port.addr.eq(line_number ^ column),
            ]
            writes.append(write.data)
            there = self.line.word_select(column, 8) if column < self._cols else 0
            permuted.append(Mux(self.load, there, port.data))
        for bit in range(bits):
            stage: list[Value] = []
            for column in range(1 << bits):
                permuted_byte = Signal(8, name=f"permuted_byte_{column}_of_{bit}")
                m.d.comb += permuted_byte.eq(
                    Mux(line_number[bit], permuted[column ^ 1 << bit], permuted[column])
                )
                stage.append(permuted_byte)
            permuted = list(stage)
        for write, permuted_byte in zip(writes, permuted, strict=True):
            m.d.comb += write.eq(permuted_byte)
        m.d.sync += self.result.eq(Mux(self.take, Cat(permuted[: self._cols]), 0))
        return m
