# SPDX-License-Identifier: Apache-2.0
"""Activate, Depthwise, Pool and Vector: everything that writes results into the unified buffer."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.arch.isa import DEPTHWISE_TAPS, Function, Operation
from systola.hdl.activation_lane import TableWriteSignature
from systola.hdl.commands import (
    ACCUMULATOR_BITS,
    ADDRESS_BITS,
    PARAMETER_SPACE,
    TABLE_SPACE,
    VECTOR_LEVELS,
    ActivateCommand,
    Source,
)
from systola.hdl.host_reader import ParameterWriteSignature
from systola.hdl.result_lanes import (
    ADDEND_SPACING,
    DRAIN_SPACING,
    GATE_SPACING,
    TAP_SPACING,
    LineControl,
    ResultLanes,
)
from systola.hdl.unified_buffer import BufferReadSignature, BufferWriteSignature
from systola.hdl.vector_lane import Coefficient
from systola.hdl.walker import Walk, Walker


class Phase(enum.Enum, shape=2):
    """What is read for a vector: the taps' weights (Depthwise, once a block), the elements of
    operand a or the accumulators, operand b, and what the result is added to."""

    TAPS = 0
    ELEMENTS = 1
    OPERAND = 2
    ADDEND = 3


class ActivationUnit(wiring.Component):
    """Makes one vector after the other, and writes it to buffer `line`.

    Activate issues accumulator `row` to the lanes, one a cycle. The others read buffer lines, one a
    cycle; the last of a vector issues it, SUM_LATENCY cycles later than an accumulator row. The
    spacings of ResultLanes are kept: an int16 result takes two cycles at least, one with SIGMOID or
    TANH GATE_SPACING more, one that is added to what its lines hold ADDEND_SPACING more, and
    DRAIN_SPACING are lost behind an instruction that reads lines, TAP_SPACING behind fewer than
    three taps.

    Everything waits while an older instruction still uses one of the addresses that are offered
    (`row`, `read_line`, `line`, `parameter`, `table`), and while the accumulators' or the buffer's
    bank is busy. After issue nothing stops a vector: see ResultLanes, and `latency`.

    `advance_read` with `advance_read_to`: accumulator rows below have been read. `rows_done`: all
    have; `lines_done`: all buffer lines have; either ends the command. `advance_write`,
    `advance_write_to`, `write_done`: the same for lines written. `takes_line` is for the counters.
    Each column has its `ActivationLane`.
    """

    def __init__(self, *, config: Config):
        self._config = config
        members = {
            "command": In(ActivateCommand()),
            "command_valid": In(1),
            "row": Out(ACCUMULATOR_BITS),
            "row_blocked": In(1),
            "read_line": Out(ADDRESS_BITS),
            "read_blocked": In(1),
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
            "operands": Out(BufferReadSignature(config=config)),
            "parameters": In(ParameterWriteSignature(config=config)),
            "buffer": Out(BufferWriteSignature(config=config)),
            "advance_read": Out(1),
            "advance_read_to": Out(ACCUMULATOR_BITS),
            "rows_done": Out(1),
            "lines_done": Out(1),
            "advance_write": Out(1),
            "advance_write_to": Out(ADDRESS_BITS),
            "write_done": Out(1),
            "takes_line": Out(1),
        }
        if config.tables:
            members["tables"] = In(TableWriteSignature(tables=config.tables))
        super().__init__(members)

    @staticmethod
    def latency() -> int:
        """Cycles from the issue of a vector to the write of its line."""
        return ResultLanes.latency()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command = self.command
        walker = m.submodules.walker = Walker(walk=Walk(VECTOR_LEVELS))
        last, place = walker.last, walker.position
        m.d.comb += [walker.walk.eq(command.walk), walker.walk_valid.eq(self.command_valid)]
        from_accumulators = command.source == Source.ACCUMULATORS
        is_depthwise = command.source == Source.DEPTHWISE
        is_vector = command.source == Source.VECTOR
        has_operand = is_vector & (command.operation != Operation.COPY)
        gate = (command.function == Function.SIGMOID) | (command.function == Function.TANH)

        # Where the instruction stands. In its first cycle it is taken as it comes.
        position = data.StructLayout(
            {
                "phase": Phase,
                "tap": range(DEPTHWISE_TAPS),  # of TAPS: loaded; of ELEMENTS: in use
                "half": 1,
                "row": ACCUMULATOR_BITS,
                "line": ADDRESS_BITS,
                "operand": ADDRESS_BITS,
                "parameter": 12,
                "inside": 16,  # taps of this window inside the map
            }
        )
        fresh = Signal(init=1)
        kept = Signal(position)
        now = Signal(position)
        begins = Signal(Phase)  # how a vector of this instruction begins
        begins_block = Signal(Phase)
        m.d.comb += [
            begins.eq(Mux(from_accumulators & command.accumulate, Phase.ADDEND, Phase.ELEMENTS)),
            begins_block.eq(Mux(is_depthwise, Phase.TAPS, begins)),
        ]
        with m.If(fresh):
            m.d.comb += [
                now.phase.eq(begins_block),
                now.row.eq(command.accumulator),
                now.line.eq(command.destination),
                now.operand.eq(command.operand),
                now.parameter.eq(command.parameter),
            ]
        with m.Else():
            m.d.comb += now.eq(kept)
        in_taps = now.phase == Phase.TAPS
        in_elements = now.phase == Phase.ELEMENTS
        in_operand = now.phase == Phase.OPERAND
        in_addend = now.phase == Phase.ADDEND

        # What happens in this cycle, if nothing is in the way.
        last_tap = last.kx & last.ky
        outside = ~(
            is_vector
            | (
                (place.y >= 0)
                & (place.y < command.height)
                & (place.x >= 0)
                & (place.x < command.width)
            )
        )
        reads = ~in_elements | ~(from_accumulators | outside)
        operand_ends = ~command.wide_operands | now.half
        final = Signal()
        inside = Signal(16)
        cooldown = Signal(range(GATE_SPACING + DRAIN_SPACING + 1))
        m.d.comb += [
            final.eq(
                (in_elements & last_tap & ~has_operand & (~command.accumulate | from_accumulators))
                | (in_operand & operand_ends & ~command.accumulate)
                | (in_addend & now.half & ~from_accumulators)
            ),
            inside.eq(now.inside + ~outside),
            self.row.eq(now.row),
            self.address.eq(now.row),
            self.line.eq(now.line),
            self.read_line.eq(
                Mux(
                    in_elements,
                    place.line,
                    Mux(in_addend, now.line + now.half, now.operand),
                )
            ),
            self.operands.address.eq(self.read_line),
        ]
        parameter = Signal(12)
        m.d.comb += [
            parameter.eq(
                now.parameter + Mux(command.by_taps & (inside != 0), (inside - 1)[:12], 0)
            ),
            self.parameter.eq(PARAMETER_SPACE + parameter),
            self.table.eq(TABLE_SPACE + command.table),
        ]
        free = Signal()
        taken = Signal()
        issues = Signal()
        m.d.comb += [
            free.eq(
                walker.present
                & (cooldown == 0)
                & ~self.line_blocked
                & ~self.parameter_blocked
                & ~self.table_blocked
            ),
            self.enable.eq(free & in_elements & from_accumulators & ~self.row_blocked),
            self.operands.enable.eq(free & reads & ~self.read_blocked),
            taken.eq(
                Mux(
                    in_elements & from_accumulators,
                    self.enable & self.ready,
                    Mux(reads, self.operands.enable & self.operands.ready, free),
                )
            ),
            issues.eq(taken & final),
            walker.advance.eq(taken & (final | (in_elements & ~last_tap))),
            self.advance_read.eq(issues & from_accumulators),
            self.advance_read_to.eq(now.row + 1),
            self.rows_done.eq(issues & walker.ends & from_accumulators),
            self.lines_done.eq(issues & walker.ends & ~from_accumulators),
            self.takes_line.eq(taken & ~from_accumulators),
        ]

        # The next cycle.
        with m.If(cooldown != 0):
            m.d.sync += cooldown.eq(cooldown - 1)
        with m.If(taken):
            m.d.sync += [fresh.eq(0), kept.eq(now)]
            with m.If(in_elements):
                m.d.sync += [kept.inside.eq(inside), kept.tap.eq(now.tap + 1)]
                with m.If(last_tap):
                    m.d.sync += kept.phase.eq(Mux(has_operand, Phase.OPERAND, Phase.ADDEND))
            with m.If(in_taps):
                m.d.sync += [kept.tap.eq(now.tap + 1), kept.operand.eq(now.operand + 1)]
                with m.If(now.tap + 1 == command.taps):
                    m.d.sync += [
                        kept.tap.eq(0),
                        kept.phase.eq(Phase.ELEMENTS),
                        cooldown.eq(Mux(command.taps < TAP_SPACING + 1, TAP_SPACING, 0)),
                    ]
            with m.If(in_operand):
                m.d.sync += [
                    kept.operand.eq(now.operand + 1),
                    kept.half.eq(~operand_ends),
                ]
                with m.If(operand_ends):
                    m.d.sync += kept.phase.eq(Phase.ADDEND)
            with m.If(in_addend):
                m.d.sync += kept.half.eq(~now.half)
                with m.If(now.half):
                    m.d.sync += kept.phase.eq(Phase.ELEMENTS)
        with m.If(issues):
            block_ends = last.ox & last.oy
            # Two lines are written for one that is read.
            drains = walker.ends & ~from_accumulators
            two_lines = command.wide & ~has_operand & ~command.wide_operands
            m.d.sync += [
                fresh.eq(walker.ends),
                kept.phase.eq(Mux(block_ends, begins_block, begins)),
                kept.tap.eq(0),
                kept.half.eq(0),
                kept.inside.eq(0),
                kept.row.eq(now.row + 1),
                kept.line.eq(now.line + 1 + command.wide),
                kept.parameter.eq(now.parameter + (block_ends & command.by_block)),
                cooldown.eq(
                    Mux(
                        gate,
                        Mux(drains, GATE_SPACING + DRAIN_SPACING, GATE_SPACING),
                        Mux(
                            command.accumulate,
                            ADDEND_SPACING,
                            Mux(drains, DRAIN_SPACING, two_lines),
                        ),
                    )
                ),
            ]

        lanes = m.submodules.lanes = ResultLanes(config=self._config)
        connect(m, lanes.buffer, flipped(self.buffer))
        connect(m, flipped(self.parameters), lanes.parameters)
        if self._config.tables:
            connect(m, flipped(self.tables), lanes.tables)
        m.d.comb += [
            lanes.line.eq(self._line(m, taken, now, outside, walker)),
            lanes.issue.eq(issues),
            *self._vector(lanes.vector, now, walker, parameter),
            lanes.accumulators.eq(self.accumulators),
            lanes.operands.eq(self.operands.data),
            self.advance_write.eq(lanes.advance_write),
            self.advance_write_to.eq(lanes.advance_write_to),
            self.write_done.eq(lanes.write_done),
        ]
        return m

    def _line(
        self, m: Module, taken: Signal, now: data.View, outside: Value, walker: Walker
    ) -> Signal:
        """The control of a buffer line."""
        command = self.command
        first = walker.first
        is_vector = command.source == Source.VECTOR
        in_elements = now.phase == Phase.ELEMENTS
        in_operand = now.phase == Phase.OPERAND
        in_addend = now.phase == Phase.ADDEND
        multiplies = is_vector & (command.operation == Operation.MULTIPLY)
        scaled = is_vector & (
            (command.operation == Operation.ADD) | (command.operation == Operation.SUBTRACT)
        )
        low = Signal()
        is_outside = Signal()
        scale = command.scale
        control = Signal(LineControl())
        m.d.comb += [
            is_outside.eq(in_elements & outside),
            low.eq(
                Mux(
                    in_addend,
                    ~now.half,
                    command.wide_operands & Mux(in_elements, first.kx, ~now.half),
                )
            ),
            control.load_tap.eq(taken & (now.phase == Phase.TAPS)),
            control.tap.eq(now.tap),
            control.element.low.eq(low),
            control.element.wide.eq(command.wide_operands),
            control.element.outside.eq(is_outside),
            control.element.addend.eq(taken & in_addend & now.half),
            control.element.zero.eq(
                Mux(
                    is_outside,
                    -command.fill,
                    Mux(is_vector, Mux(in_operand, scale.zero_b, scale.zero_a), 0),
                )
            ),
            control.element.coefficient.eq(
                Mux(
                    command.source == Source.DEPTHWISE,
                    Coefficient.TAP,
                    Mux(multiplies & in_operand, Coefficient.FIRST, Coefficient.MULTIPLIER),
                )
            ),
            control.element.multiplier.eq(
                Mux(scaled, Mux(in_operand, scale.multiplier_b, scale.multiplier_a), 1)
            ),
            control.element.keep.eq(in_elements),
            control.scaling.scaled.eq(scaled),
            control.scaling.wide.eq(command.wide_operands),
            control.scaling.shift.eq(Mux(scaled, Mux(in_operand, scale.shift_b, scale.shift_a), 0)),
            control.summing.update.eq(taken & ~low & (in_operand | (in_elements & ~multiplies))),
            control.summing.first.eq(Mux(is_vector, in_elements | multiplies, first.kx & first.ky)),
            control.summing.skip.eq((command.source == Source.POOL) & in_elements & outside),
            control.summing.maximum.eq(command.maximum),
            control.summing.subtract.eq(in_operand & (command.operation == Operation.SUBTRACT)),
        ]
        return control

    def _vector(
        self, control: data.View, now: data.View, walker: Walker, parameter: Signal
    ) -> list[object]:
        """Assignments that fill the control of a vector."""
        command = self.command
        return [
            control.line.eq(now.line),
            control.last.eq(walker.ends),
            control.parameter.eq(parameter),
            # `high` wins where it is the lower one.
            control.low.eq(Mux(command.low > command.high, command.high, command.low)),
            control.use_sum.eq(command.source != Source.ACCUMULATORS),
            *(
                control[name].eq(command[name])
                for name in (
                    "accumulate",
                    "wide",
                    "rounding",
                    "function",
                    "zero_point",
                    "high",
                    "table",
                )
            ),
        ]
