# SPDX-License-Identifier: Apache-2.0
"""Registers that keep the row and the line read last, while the columns of a lane take turns."""

from amaranth.hdl import Cat, Module, Signal, Value

from systola.hdl.memories.accumulators import READ_LATENCY as ROW_LATENCY
from systola.hdl.ports import BUFFER_LATENCY as LINE_LATENCY


def arrived(m: Module, reads: Value, row: Value, line: Value) -> tuple[Signal, Signal]:
    """Return the row and the line of the last read; both stay until the next read's data come.

    `reads` is high in the cycle of a read. Its `row` and `line` arrive later, for one cycle only.
    """
    kept_row = Signal.like(row)
    kept_line = Signal.like(line)
    read_before = Signal(max(ROW_LATENCY, LINE_LATENCY))  # bit n: there was a read n + 1 cycles ago
    m.d.sync += read_before.eq(Cat(reads, read_before))
    with m.If(read_before[ROW_LATENCY - 1]):
        m.d.sync += kept_row.eq(row)
    with m.If(read_before[LINE_LATENCY - 1]):
        m.d.sync += kept_line.eq(line)
    return kept_row, kept_line
