# SPDX-License-Identifier: Apache-2.0
"""The tables of one lane on a machine with curves: look-ups, and interpolation between entries."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.isa import CURVE_SHIFT, TABLE_BYTES
from systola.hdl.memories.sram import Sram
from systola.hdl.parts.multiplier import Multiplier
from systola.hdl.parts.selecting_adder import SelectingAdder
from systola.hdl.ports import TABLE_ROW_BYTES, TableRowSignature

TABLE_LATENCY = 2
"""Cycles from an argument to the byte that a table has for it."""
CURVE_LATENCY = 4
"""Cycles by which the number on a curve comes later than the byte of a table."""
CURVE_SPACING = 2
"""Least number of cycles between two arguments for curves."""

_FIRST = CURVE_SHIFT + 1
"""Number of the lowest bit of an argument that helps to select a row of the curve."""


class TableLane(wiring.Component):
    """A memory of a lane's tables that computes TABLE of Activate (arch/isa/).

    A row of the memory has two numbers of a curve, or four bytes of a table.

    | port | cycles after the argument | meaning |
    |---|---|---|
    | `argument` | 0 | the value that is looked up, in every cycle |
    | `table` | 0 | the number of the table, or the first table of the curve |
    | `on_curve` | 0 | the argument is for a curve; then the next cycle has no argument |
    | `gathers` | 0 | the row of `index` is read, not a row of `argument` |
    | `index` | 0 | the number of a row, counted from the first row of `table` |
    | `gathered` | TABLE_LATENCY | the row of `index`, a number of int32; 0 without `gathers` |
    | `byte` | TABLE_LATENCY | the byte of a table |
    | `plain` | 1 + CURVE_LATENCY | becomes `number` if there was no argument for a curve |
    | `number` | 1 + CURVE_LATENCY | the number on the curve, or `plain`; combinational |
    | `write` | | writes a row |

    Between two numbers of a curve the result lies on a straight line: the lane multiplies the
    difference of the two numbers by the argument's distance from the first number. The two numbers
    may lie in one row or in two, so a curve reads two rows, one after the other.

    In a cycle with `gathers`, `argument` is ignored. In the cycle before it there must be no
    argument for a curve. Throughput: an argument for a table in each cycle, an argument for a curve
    every CURVE_SPACING cycles. No back-pressure.
    """

    def __init__(self, *, tables: int):
        self._tables = tables
        super().__init__(
            {
                "write": In(TableRowSignature(tables=tables)),
                "argument": In(signed(16)),
                "table": In(ceil_log2(tables)),
                "on_curve": In(1),
                "gathers": In(1),
                "index": In(8),
                "gathered": Out(8 * TABLE_ROW_BYTES),
                "byte": Out(8),
                "plain": In(signed(16)),
                "number": Out(signed(16)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows = self._tables * TABLE_BYTES // TABLE_ROW_BYTES
        m.submodules.rows = memory = Sram(
            width=8 * TABLE_ROW_BYTES, depth=rows, output_register=True
        )
        argument = self.argument

        def later(name: str, value: Signal, cycles: int) -> list[Signal]:
            """Return `value` now, one cycle ago, two cycles ago, and so on up to `cycles` ago."""
            copies = [value]
            for cycle in range(cycles):
                copies.append(Signal.like(value, name=f"{name}_{cycle}", reset_less=True))
                m.d.sync += copies[-1].eq(copies[-2])
            return copies

        # item n: an argument for a curve came n cycles ago
        curve = later("curve", self.on_curve, CURVE_LATENCY + 1)
        line_place = Signal(CURVE_SHIFT)
        second_begins = Signal()  # the straight line begins at the second number of its row
        byte_place = Signal(range(TABLE_ROW_BYTES))
        m.d.comb += [
            line_place.eq(argument[:CURVE_SHIFT]),
            second_begins.eq(argument[CURVE_SHIFT]),
            byte_place.eq(argument[: len(byte_place)]),
        ]
        odds = later("odd", second_begins, TABLE_LATENCY + 1)
        positions = later("position", byte_place, TABLE_LATENCY)

        # The address of the row with the first number of a curve. One cycle later, the address of
        # the row with the second number: the same row, or the next.
        row_address = Signal(len(memory.read_address))
        row_before = Signal(len(memory.read_address))
        size = (TABLE_BYTES // TABLE_ROW_BYTES - 1).bit_length()
        of_curve = Cat(argument[_FIRST:-1], ~argument[-1])
        m.submodules.adder = adder = SelectingAdder(width=len(row_address))
        m.d.comb += [
            adder.a.eq(Mux(curve[1], 0, self.table << size)),
            adder.choose_b.eq(curve[1].replicate(len(row_address))),
            adder.b.eq(row_before),
            adder.c.eq(
                Mux(
                    self.gathers,
                    self.index,
                    Mux(self.on_curve, of_curve, argument[len(byte_place) : 8]),
                )
            ),
            adder.carry.eq(curve[1] & odds[1]),
            row_address.eq(adder.total),
            memory.read_enable.eq(1),
            memory.read_address.eq(row_address),
            memory.write_enable.eq(self.write.enable),
            memory.write_address.eq(self.write.address),
            memory.write_data.eq(self.write.data),
        ]
        m.d.sync += row_before.eq(row_address)

        # Half of the row that was read: a number of a curve, or two bytes of a table.
        row_half = Signal(16)
        second = curve[TABLE_LATENCY + 1] & ~odds[TABLE_LATENCY + 1]
        first = Mux(curve[TABLE_LATENCY], odds[TABLE_LATENCY], positions[TABLE_LATENCY][1])
        upper = Mux(curve[TABLE_LATENCY + 1], second, first)
        m.d.comb += [
            row_half.eq(Mux(upper, memory.read_data[16:], memory.read_data[:16])),
            self.byte.eq(Mux(positions[TABLE_LATENCY][0], row_half[8:], row_half[:8])),
        ]

        gathered = later("gather", self.gathers, TABLE_LATENCY)[-1]
        m.d.comb += self.gathered.eq(memory.read_data & gathered.replicate(len(self.gathered)))

        starts = later("start", row_half, CURVE_LATENCY + 1 - TABLE_LATENCY)
        places = later("place", line_place, TABLE_LATENCY + 1)
        m.submodules.multiplier = multiplier = Multiplier(
            a=signed(17), b=Shape.cast(CURVE_SHIFT), pipeline=False
        )
        meets = curve[TABLE_LATENCY + 1]
        m.d.comb += [
            multiplier.enable.eq(1),
            multiplier.a.eq(row_half.as_signed() - starts[1].as_signed()),
            multiplier.b.eq(Mux(meets, places[TABLE_LATENCY + 1], 0)),
        ]
        m.submodules.sum = total = SelectingAdder(width=16)
        m.d.comb += [
            total.a.eq(multiplier.product[CURVE_SHIFT:]),
            total.choose_b.eq(curve[CURVE_LATENCY + 1].replicate(16)),
            total.b.eq(starts[-1]),
            total.c.eq(self.plain),
            total.carry.eq(multiplier.product[CURVE_SHIFT - 1]),
            self.number.eq(total.total),
        ]
        return m
