# SPDX-License-Identifier: Apache-2.0
"""The logic for curves outside the lanes: it writes table rows and delays late results."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.arch.isa import Function
from systola.hdl.activation.controls import EndControl
from systola.hdl.activation.reservations import ELEMENT_ENTRY
from systola.hdl.activation.table_lane import CURVE_LATENCY
from systola.hdl.parts.delay_line import DelayLine
from systola.hdl.parts.promise import promised, promised_apart
from systola.hdl.ports import TABLE_ROW_BYTES, TableRowSignature, TableWriteSignature

GATHER_STAGE = ELEMENT_ENTRY - 1
"""Cycles from the read of a line to the cycle before the lanes look up its elements."""


class CurveStage(wiring.Component):
    """A stage that delays vectors with curves by CURVE_LATENCY cycles, and fills rows of tables.

    Vectors without curves pass in the same cycle. Bytes of tables are collected to rows.

    | port             | meaning |
    |---|---|
    | `valid`          | there is a vector, in the cycle before TABLE_STAGE of the lanes |
    | `control`        | control of the vector |
    | `on_curve`       | the function of the vector is a curve; in the same cycle as `valid` |
    | `table`          | number of the vector's table, one cycle after `valid` |
    | `gathers`        | a line is read that looks up numbers of int32 |
    | `gathered_table` | with `gathers`: the first table of the numbers |
    | `gathers_now`    | in the next cycle the lanes look up a line that was read GATHER_STAGE
                         cycles ago; then `table` is `gathered_table` of that line |
    | `passed_valid`   | a vector leaves |
    | `passed`         | control of this vector |
    | `bytes`          | writes of bytes, in the order of their addresses |
    | `row`            | the write of a row, in the cycle of its last byte |

    The caller keeps vectors without curves away from vectors with curves, so that no two leave in
    the same cycle. Throughput: one vector and one byte a cycle.
    """

    def __init__(self, *, config: Config):
        self._layout = layout = EndControl(config=config)
        super().__init__(
            {
                "control": In(layout),
                "valid": In(1),
                "on_curve": Out(1),
                "gathers": In(1),
                "gathered_table": In(layout.members["table"]),
                "gathers_now": Out(1),
                "table": Out(layout.members["table"]),
                "passed": Out(layout),
                "passed_valid": Out(1),
                "bytes": In(TableWriteSignature(tables=config.tables)),
                "row": Out(TableRowSignature(tables=config.tables)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        control = self.control
        m.submodules.waiting = waiting = DelayLine(layout=self._layout, cycles=CURVE_LATENCY)
        m.submodules.gathering = gathering = DelayLine(
            layout=data.StructLayout({"table": len(self.table)}), cycles=GATHER_STAGE
        )
        passes = self.valid & ~self.on_curve
        promised(m, platform, ~(passes & waiting.output_valid), "vectors leave one by one")
        m.d.comb += [
            self.on_curve.eq(self.valid & (control.function == Function.TABLE) & control.wide),
            waiting.input.eq(control),
            waiting.input_valid.eq(self.on_curve),
            self.passed.eq(Mux(waiting.output_valid, waiting.output, control)),
            self.passed_valid.eq(waiting.output_valid | passes),
        ]
        m.d.comb += [
            gathering.input.table.eq(self.gathered_table),
            gathering.input_valid.eq(self.gathers),
            self.gathers_now.eq(gathering.output_valid),
        ]
        looks_up, gathers = self.valid & (control.function == Function.TABLE), self.gathers_now
        promised(m, platform, ~(looks_up & gathers), "a table is read for a result alone")
        # The second row of a curve is read in the cycle after the first.
        alone = "a table is read for a curve alone"
        promised_apart(m, platform, self.on_curve, gathers, 1, alone)
        m.d.sync += self.table.eq(
            Mux(gathering.output_valid, gathering.output.table, control.table)
        )

        written, row = self.bytes, self.row
        within = exact_log2(TABLE_ROW_BYTES)
        earlier_bytes = Signal(8 * (TABLE_ROW_BYTES - 1), reset_less=True)
        with m.If(written.enable):
            m.d.sync += earlier_bytes.eq(Cat(earlier_bytes, written.data)[8:])
        m.d.comb += [
            row.enable.eq(written.enable & written.address[:within].all()),
            row.address.eq(written.address[within:]),
            row.data.eq(Cat(earlier_bytes, written.data)),
        ]
        return m
