# SPDX-License-Identifier: Apache-2.0
"""The part of curves beside the lanes: rows of tables, and a delay for late results."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.arch.isa import Function
from systola.hdl.activation.controls import EndControl
from systola.hdl.activation.table_lane import CURVE_LATENCY
from systola.hdl.parts.delay_line import DelayLine
from systola.hdl.parts.promise import promised
from systola.hdl.ports import TABLE_ROW_BYTES, TableRowSignature, TableWriteSignature


class CurveStage(wiring.Component):
    """Delays vectors with curves by CURVE_LATENCY cycles; all others pass in the same cycle. It
    also collects the bytes of tables to rows.

    | port | |
    |---|---|
    | `control`, `valid` | a vector, if there is one, in the cycle before TABLE_STAGE of the lanes |
    | `on_curve` | its function is a curve, in the same cycle |
    | `table` | its table, a cycle later |
    | `passed`, `passed_valid` | the vector that leaves |
    | `bytes` | writes of bytes, in the order of their addresses |
    | `row` | the write of a row, in the cycle of its last byte |

    The caller keeps vectors without curves away from those with curves, so that no two leave at
    once. Throughput: a vector and a byte a cycle.
    """

    def __init__(self, *, config: Config):
        self._layout = layout = EndControl(config=config)
        super().__init__(
            {
                "control": In(layout),
                "valid": In(1),
                "on_curve": Out(1),
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
        passes = self.valid & ~self.on_curve
        promised(m, platform, ~(passes & waiting.output_valid), "vectors leave one by one")
        m.d.comb += [
            self.on_curve.eq(self.valid & (control.function == Function.TABLE) & control.wide),
            waiting.input.eq(control),
            waiting.input_valid.eq(self.on_curve),
            self.passed.eq(Mux(waiting.output_valid, waiting.output, control)),
            self.passed_valid.eq(waiting.output_valid | passes),
        ]
        m.d.sync += self.table.eq(control.table)

        written, row = self.bytes, self.row
        within = exact_log2(TABLE_ROW_BYTES)
        earlier = Signal(8 * (TABLE_ROW_BYTES - 1), reset_less=True)
        with m.If(written.enable):
            m.d.sync += earlier.eq(Cat(earlier, written.data)[8:])
        m.d.comb += [
            row.enable.eq(written.enable & written.address[:within].all()),
            row.address.eq(written.address[within:]),
            row.data.eq(Cat(earlier, written.data)),
        ]
        return m
