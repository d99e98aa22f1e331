# SPDX-License-Identifier: Apache-2.0
"""From an instruction of the activation unit to its steps: what is read in which order."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from systola.arch.isa import DEPTHWISE_TAPS, Function, Operation
from systola.hdl.commands import (
    ACCUMULATOR_BITS,
    ADDRESS_BITS,
    VECTOR_LEVELS,
    ActivateCommand,
    Source,
)
from systola.hdl.result_lanes import TAP_SPACING
from systola.hdl.walker import WALK_GAP, Walk, Walker


class Phase(enum.Enum, shape=2):
    """What is read for a vector: the taps' weights (Depthwise, once a block), the elements of
    operand a or the accumulators, operand b, and what the result is added to."""

    TAPS = 0
    ELEMENTS = 1
    OPERAND = 2
    ADDEND = 3


class Pause(enum.Enum, shape=3):
    """What follows a step that the next one cannot follow at once."""

    NONE = 0
    ONE = 1
    TAPS = 2
    ADDEND = 3
    DRAIN = 4
    GATE = 5
    GATE_DRAIN = 6


class Step(data.StructLayout):
    """What happens in one cycle, if nothing is in the way.

    It reads buffer line `read` (`reads`), accumulator `row` (`sums`), or nothing, `outside` the
    map. `tap`: which one it loads or uses. `low`: the line has low bytes, whose high ones follow;
    `begins`: it has the first element of its vector.
    A `final` step issues its vector, whose result goes to `line` or, with two lines (`wide`), from
    there on, with the parameter entry `parameter` and, where it `looks_up`, with `table`. `narrow`:
    final and not wide. `ends`: it is the last step of its instruction. `pause` comes behind it.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "phase": Phase,
                "reads": 1,
                "read": ADDRESS_BITS,
                "sums": 1,
                "row": ACCUMULATOR_BITS,
                "outside": 1,
                "tap": range(DEPTHWISE_TAPS),
                "low": 1,
                "begins": 1,
                "final": 1,
                "narrow": 1,
                "wide": 1,
                "looks_up": 1,
                "line": ADDRESS_BITS,
                "parameter": 12,
                "table": 4,
                "ends": 1,
                "pause": Pause,
            }
        )


PLAN_LATENCY = WALK_GAP + 1
"""Cycles from a command to its first step."""


class StepPlanner(wiring.Component):
    """Offers the steps of `command`, one a cycle, the first one PLAN_LATENCY cycles after
    `command_valid`, from registers by an addition.

    `begins`: the command is taken, and kept as `planned` until the next one; that begins as soon as
    the last step of this one is taken off it, unless somebody still needs `planned` (`hold`).
    WALK_GAP cycles lie between their steps. `taken`: a step is taken off the command, and offered
    in the next cycle.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "command": In(ActivateCommand()),
                "command_valid": In(1),
                "hold": In(1),
                "begins": Out(1),
                "planned": Out(ActivateCommand()),
                "taken": Out(1),
                "steps": Out(stream.Signature(Step())),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command, coming = self.planned, self.command
        walker = m.submodules.walker = Walker(walk=Walk(VECTOR_LEVELS))
        first, last, place = walker.first, walker.last, walker.position
        planned = Signal(ActivateCommand(), reset_less=True)
        m.d.comb += [
            self.planned.eq(planned),
            walker.walk.payload.eq(coming.walk),
            walker.walk.valid.eq(self.command_valid & ~self.hold),
            self.begins.eq(self.command_valid & ~self.hold & ~walker.present),
        ]

        # What kind of instruction it is.
        coming_sums = coming.source == Source.ACCUMULATORS
        coming_vector = coming.source == Source.VECTOR
        coming_operand = coming_vector & (coming.operation != Operation.COPY)
        coming_phase = Signal(Phase)
        m.d.comb += coming_phase.eq(
            Mux(coming_sums & coming.accumulate, Phase.ADDEND, Phase.ELEMENTS)
        )
        from_accumulators = Signal(reset_less=True)
        from_map = Signal(reset_less=True)
        has_operand = Signal(reset_less=True)
        elements_end = Signal(reset_less=True)  # the last element completes a vector
        begins = Signal(Phase, reset_less=True)  # how a vector begins
        begins_block = Signal(Phase, reset_less=True)
        two_lines = Signal(reset_less=True)  # are written for one that is read
        gate = Signal(reset_less=True)
        few_taps = Signal(reset_less=True)
        with m.If(self.begins):
            m.d.sync += [
                planned.eq(coming),
                from_accumulators.eq(coming_sums),
                from_map.eq(~coming_sums & ~coming_vector),
                has_operand.eq(coming_operand),
                elements_end.eq(~coming_operand & (~coming.accumulate | coming_sums)),
                begins.eq(coming_phase),
                begins_block.eq(Mux(coming.source == Source.DEPTHWISE, Phase.TAPS, coming_phase)),
                two_lines.eq(coming.wide & ~coming_operand & ~coming.wide_operands),
                gate.eq((coming.function == Function.SIGMOID) | (coming.function == Function.TANH)),
                few_taps.eq(coming.taps <= TAP_SPACING),
            ]

        # Where the instruction stands.
        phase = Signal(Phase)
        tap = Signal(range(DEPTHWISE_TAPS))  # of TAPS: loaded; of ELEMENTS: in use
        half = Signal()
        row = Signal(ACCUMULATOR_BITS)
        line = Signal(ADDRESS_BITS)
        operand = Signal(ADDRESS_BITS)
        addend = Signal(ADDRESS_BITS)
        parameter = Signal(12)

        in_taps = phase == Phase.TAPS
        in_elements = phase == Phase.ELEMENTS
        in_operand = phase == Phase.OPERAND
        in_addend = phase == Phase.ADDEND

        last_tap = last.kx & last.ky
        operand_ends = ~command.wide_operands | half
        taps_end = Signal()  # the taps of a block are loaded
        final = Signal()
        ends = Signal()
        outside = Signal()
        taken = self.taken
        m.d.comb += [
            taps_end.eq(in_taps & (tap + 1 == command.taps)),
            final.eq(
                (in_elements & last_tap & elements_end)
                | (in_operand & operand_ends & ~command.accumulate)
                | (in_addend & half & ~from_accumulators)
            ),
            ends.eq(final & walker.ends),
            outside.eq(
                in_elements
                & from_map
                & ~(
                    (place.y >= 0)
                    & (place.y < command.height)
                    & (place.x >= 0)
                    & (place.x < command.width)
                )
            ),
        ]
        with m.If(~walker.present):
            m.d.sync += [
                phase.eq(Mux(coming.source == Source.DEPTHWISE, Phase.TAPS, coming_phase)),
                tap.eq(0),
                half.eq(0),
                row.eq(coming.accumulator),
                line.eq(coming.destination),
                operand.eq(coming.operand),
                addend.eq(coming.destination),
                parameter.eq(coming.parameter),
            ]
        with m.Elif(taken):
            with m.If(in_elements):
                m.d.sync += tap.eq(tap + 1)
                with m.If(last_tap):
                    m.d.sync += phase.eq(Mux(has_operand, Phase.OPERAND, Phase.ADDEND))
            with m.If(in_taps):
                m.d.sync += [tap.eq(tap + 1), operand.eq(operand + 1)]
                with m.If(taps_end):
                    m.d.sync += [tap.eq(0), phase.eq(Phase.ELEMENTS)]
            with m.If(in_operand):
                m.d.sync += [operand.eq(operand + 1), half.eq(~operand_ends)]
                with m.If(operand_ends):
                    m.d.sync += phase.eq(Phase.ADDEND)
            with m.If(in_addend):
                m.d.sync += [addend.eq(addend + 1), half.eq(~half)]
                with m.If(half):
                    m.d.sync += phase.eq(Phase.ELEMENTS)
            with m.If(final):
                block_ends = last.ox & last.oy
                m.d.sync += [
                    phase.eq(Mux(block_ends, begins_block, begins)),
                    tap.eq(0),
                    half.eq(0),
                    row.eq(row + 1),
                    line.eq(line + 1 + command.wide),
                    parameter.eq(parameter + (block_ends & command.by_block)),
                ]

        m.d.comb += walker.advance.eq(taken & (final | (in_elements & ~last_tap)))

        pause = Signal(Pause)
        drains = ends & ~from_accumulators
        with m.If(final & gate):
            m.d.comb += pause.eq(Mux(drains, Pause.GATE_DRAIN, Pause.GATE))
        with m.Elif(final & command.accumulate):
            m.d.comb += pause.eq(Pause.ADDEND)
        with m.Elif(drains):
            m.d.comb += pause.eq(Pause.DRAIN)
        with m.Elif(final & (two_lines | ends)):
            m.d.comb += pause.eq(Pause.ONE)
        with m.Elif(taps_end & few_taps):
            m.d.comb += pause.eq(Pause.TAPS)

        # The step, but for what the places of its window say about its parameter entry.
        valid = Signal()
        step = Signal(Step(), reset_less=True)
        counts = Signal(reset_less=True)
        m.d.comb += [
            taken.eq(walker.present & (~valid | self.steps.ready)),
        ]
        m.d.sync += valid.eq(walker.present | (valid & ~self.steps.ready))
        with m.If(~valid | self.steps.ready):
            m.d.sync += [
                step.phase.eq(phase),
                step.reads.eq(~(in_elements & from_accumulators) & ~outside),
                step.read.eq(Mux(in_elements, place.line, Mux(in_addend, addend, operand))),
                step.sums.eq(in_elements & from_accumulators),
                step.row.eq(row),
                step.outside.eq(outside),
                step.tap.eq(tap),
                step.low.eq(
                    Mux(in_addend, ~half, command.wide_operands & Mux(in_elements, first.kx, ~half))
                ),
                step.begins.eq(in_elements & first.kx & first.ky),
                step.final.eq(final),
                step.narrow.eq(final & ~command.wide),
                step.wide.eq(final & command.wide),
                step.looks_up.eq(final & (command.function == Function.TABLE)),
                step.line.eq(line),
                step.parameter.eq(parameter),
                step.table.eq(command.table),
                step.ends.eq(ends),
                step.pause.eq(pause),
                counts.eq(command.by_taps & in_elements & ~outside),
            ]

        # Of the taps inside the map, each one but the first takes the next entry.
        entry = Signal(12)
        kept_entry = Signal(12)
        kept_counted = Signal()
        counted = Signal()
        m.d.comb += [
            counted.eq(kept_counted & ~step.begins),
            entry.eq(Mux(step.begins, step.parameter, kept_entry) + (counts & counted)),
            self.steps.valid.eq(valid),
            self.steps.payload.eq(step),
            self.steps.payload.parameter.eq(entry),
        ]
        with m.If(valid & self.steps.ready):
            m.d.sync += [kept_entry.eq(entry), kept_counted.eq(counted | counts)]
        return m
