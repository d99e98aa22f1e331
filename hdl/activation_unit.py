# SPDX-License-Identifier: Apache-2.0
"""Activate: requantises accumulator rows into the unified buffer."""

from amaranth.hdl import (
    Cat,
    ClockSignal,
    Elaboratable,
    Instance,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
    ValueLike,
    signed,
)
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.arch.isa import PARAMETER_PLANES, Function
from systola.hdl.activation_lane import ActivationLane, TableWriteSignature
from systola.hdl.commands import (
    ACCUMULATOR_BITS,
    ADDRESS_BITS,
    PARAMETER_SPACE,
    TABLE_SPACE,
    ActivateCommand,
)
from systola.hdl.delay_line import DelayLine
from systola.hdl.host_reader import ParameterWriteSignature
from systola.hdl.mxu import TILE_LIMIT
from systola.hdl.requantiser import Requantiser
from systola.hdl.sram import Sram
from systola.hdl.unified_buffer import BufferWriteSignature

READ_LATENCY = 1
"""Cycles from issue to accumulators and parameters at the lanes."""


def lanes_are_instances(config: Config) -> bool:
    """Whether the lanes are instances of the module `activation_lane`, like the MXU's tiles."""
    return config.cols > TILE_LIMIT


class VectorControl(data.StructLayout):
    """What accompanies a vector through the lanes."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "line": ADDRESS_BITS,
                "last": 1,
                "rounding": 1,
                "function": 2,
                "zero_point": signed(8),
                "ceiling": signed(8),
                "table": ceil_log2(config.tables),
            }
        )


class ActivationUnit(wiring.Component):
    """Issues one vector a cycle: accumulator `row` through the lanes to buffer `line`.

    A vector waits while an older instruction still uses one of the addresses that it offers (`row`,
    `line`, `parameter`, `table`), and while the accumulators' bank is busy. After issue
    nothing stops it: its line is written `latency` cycles later. `advance_read` with
    `advance_read_to`: accumulator rows below have been read. `read_done`: all have.
    `advance_write`, `advance_write_to`, `write_done`: the same for lines written. Each
    column has its `ActivationLane`.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "command": In(ActivateCommand()),
                "command_valid": In(1),
                "row": Out(ACCUMULATOR_BITS),
                "row_blocked": In(1),
                "line": Out(ADDRESS_BITS),
                "line_blocked": In(1),
                "parameter": Out(ADDRESS_BITS),
                "parameter_blocked": In(1),
                "table": Out(ADDRESS_BITS),
                "table_blocked": In(1),
                "enable": Out(1),
                "ready": In(1),
                "address": Out(ceil_log2(config.accumulator_rows)),
                "accumulators": In(32 * config.cols),
                "parameters": In(ParameterWriteSignature(config=config)),
                "tables": In(TableWriteSignature(tables=config.tables)),
                "buffer": Out(BufferWriteSignature(config=config)),
                "advance_read": Out(1),
                "advance_read_to": Out(ACCUMULATOR_BITS),
                "read_done": Out(1),
                "advance_write": Out(1),
                "advance_write_to": Out(ADDRESS_BITS),
                "write_done": Out(1),
            }
        )

    @staticmethod
    def latency() -> int:
        """Cycles from the issue of a vector to the write of its line."""
        return READ_LATENCY + ActivationLane.LATENCY

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, command = self._config, self.command

        # Where the instruction stands. In its first cycle it is taken as it comes.
        position = data.StructLayout(
            {
                "row": ACCUMULATOR_BITS,
                "line": ADDRESS_BITS,
                "rows_left": 16,
                "n_left": 12,
                "parameter": 12,
            }
        )
        fresh = Signal(init=1)
        kept = Signal(position)
        now = Signal(position)
        with m.If(fresh):
            m.d.comb += [
                now.row.eq(command.accumulator),
                now.line.eq(command.buffer),
                now.rows_left.eq(command.rows),
                now.n_left.eq(command.n_tiles),
                now.parameter.eq(command.parameter),
            ]
        with m.Else():
            m.d.comb += now.eq(kept)
        tile_ends = now.rows_left == 1
        ends = tile_ends & (now.n_left == 1)
        issued = Signal()
        m.d.comb += [
            self.row.eq(now.row),
            self.line.eq(now.line),
            self.address.eq(now.row),
            self.parameter.eq(PARAMETER_SPACE + now.parameter),
            self.table.eq(TABLE_SPACE + command.table),
            self.enable.eq(
                self.command_valid
                & ~self.row_blocked
                & ~self.line_blocked
                & ~self.parameter_blocked
                & ~self.table_blocked
            ),
            issued.eq(self.enable & self.ready),
            self.advance_read.eq(issued),
            self.advance_read_to.eq(now.row + 1),
            self.read_done.eq(issued & ends),
        ]
        with m.If(issued):
            m.d.sync += [
                fresh.eq(ends),
                kept.eq(now),
                kept.row.eq(now.row + 1),
                kept.line.eq(now.line + 1),
                kept.rows_left.eq(now.rows_left - 1),
            ]
            with m.If(tile_ends):
                m.d.sync += [
                    kept.rows_left.eq(command.rows),
                    kept.n_left.eq(now.n_left - 1),
                    kept.parameter.eq(now.parameter + 1),
                ]

        planes = []
        for plane in range(PARAMETER_PLANES):
            memory = Sram(width=8 * config.cols, depth=config.parameter_entries)
            m.submodules[f"parameter_plane_{plane}"] = memory
            m.d.comb += [
                memory.write_enable.eq(self.parameters.planes[plane]),
                memory.write_address.eq(self.parameters.address),
                memory.write_data.eq(self.parameters.data),
                memory.read_enable.eq(issued),
                memory.read_address.eq(now.parameter),
            ]
            planes.append(memory.read_data)

        # The control of each vector, delayed to where the lanes need it.
        control = Signal(VectorControl(config=config))
        m.d.comb += [
            control.line.eq(now.line),
            control.last.eq(ends),
            control.rounding.eq(command.rounding),
            control.function.eq(command.function),
            control.zero_point.eq(command.zero_point),
            control.ceiling.eq(command.ceiling),
            control.table.eq(command.table),
        ]

        def delayed(name: str, value: data.View, valid: object, cycles: int) -> DelayLine:
            line = DelayLine(layout=VectorControl(config=config), cycles=cycles)
            m.submodules[name] = line
            m.d.comb += [line.input.eq(value), line.input_valid.eq(valid)]
            return line

        rounding = delayed(
            "to_rounding", control, issued, READ_LATENCY + Requantiser.ROUNDING_STAGE
        )
        clamp = delayed(
            "to_clamp",
            rounding.output,
            rounding.output_valid,
            Requantiser.CLAMP_STAGE - Requantiser.ROUNDING_STAGE,
        )
        table = delayed(
            "to_table",
            clamp.output,
            clamp.output_valid,
            ActivationLane.TABLE_STAGE - Requantiser.CLAMP_STAGE,
        )
        end = delayed(
            "to_end",
            table.output,
            table.output_valid,
            ActivationLane.LATENCY - ActivationLane.TABLE_STAGE,
        )

        function = clamp.output.function
        plain = (function == Function.NONE) | (function == Function.TABLE)
        low = Signal(signed(8))
        high = Signal(signed(8))
        m.d.comb += [
            low.eq(Mux(plain, -128, clamp.output.zero_point)),
            high.eq(Mux(function == Function.RELU6, clamp.output.ceiling, 127)),
        ]

        results = Signal(8 * config.cols)
        for c in range(config.cols):
            inputs = {
                "accumulator": self.accumulators.word_select(c, 32),
                "bias": Cat(planes[i].word_select(c, 8) for i in range(4)),
                "multiplier": Cat(planes[4 + i].word_select(c, 8) for i in range(4))[:31],
                "shift_right": planes[8].word_select(c, 8)[:5],
                "shift_left": planes[8].word_select(c, 8)[5:],
                "rounding": rounding.output.rounding,
                "zero_point": clamp.output.zero_point,
                "low": low,
                "high": high,
                "table": table.output.table,
                "use_table": table.output.function == Function.TABLE,
                "write__enable": self.tables.enable,
                "write__address": self.tables.address,
                "write__data": self.tables.data,
            }
            m.submodules[f"lane_{c}"] = self._lane(m, inputs, results.word_select(c, 8))

        m.d.comb += [
            self.buffer.enable.eq(end.output_valid),
            self.buffer.address.eq(end.output.line),
            self.buffer.data.eq(results),
            self.advance_write.eq(end.output_valid),
            self.advance_write_to.eq(end.output.line + 1),
            self.write_done.eq(end.output_valid & end.output.last),
        ]
        return m

    def _lane(self, m: Module, inputs: dict[str, ValueLike], result: Value) -> Elaboratable:
        """A lane with its ports connected, as an instance where there are many."""
        if lanes_are_instances(self._config):
            return Instance(
                "activation_lane",
                i_clk=ClockSignal(),
                i_rst=ResetSignal(),
                o_result=result,
                **{f"i_{name}": value for name, value in inputs.items()},
            )
        lane = ActivationLane(tables=self._config.tables)
        for path, member, port in lane.signature.flatten(lane):
            if member.flow is In:
                m.d.comb += port.eq(inputs["__".join(path)])
        m.d.comb += result.eq(lane.result)
        return lane
