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
from systola.hdl.walker import WALK_GAP, Walk, Walker


class Phase(enum.Enum, shape=2):
    """What is read for a vector: the taps' weights (Depthwise, once a block), the elements of
    operand a or the accumulators, operand b, and what the result is added to."""

    TAPS = 0
    ELEMENTS = 1
    OPERAND = 2
    ADDEND = 3


class Step(data.StructLayout):
    """What happens in one cycle, if nothing is in the way.

    It reads buffer line `read` (`reads`), accumulator `row` (`sums`), or nothing, `outside` the
    map. `tap`: which one it loads or uses. `low`: the line has low bytes, whose high ones follow;
    `begins`: it has the first element of its vector. `ends_taps`: the taps of a block are loaded.

    A `final` step issues its vector, whose result goes to `line` or, with two lines (`wide`), from
    there on, with the parameter entry `parameter` and, where it `looks_up`, with `table`. `narrow`:
    final and not wide. `ends`: it is the last step of its instruction.
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
                "ends_taps": 1,
                "final": 1,
                "narrow": 1,
                "wide": 1,
                "looks_up": 1,
                "line": ADDRESS_BITS,
                "parameter": 12,
                "table": 4,
                "ends": 1,
            }
        )


PLAN_LATENCY = WALK_GAP + 1
"""Cycles from a command to its first step."""


class StepPlanner(wiring.Component):
    """Offers the steps of `command`, one a cycle, the first one PLAN_LATENCY cycles after
    `command_valid`, from registers by an addition.

    `taken`: a step is taken off the command, and offered in the next cycle. `done`: that was the
    last one, and nobody else needs the command any longer (`hold`); the next one may come with the
    next cycle, and WALK_GAP cycles lie between their steps.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "command": In(ActivateCommand()),
                "command_valid": In(1),
                "hold": In(1),
                "done": Out(1),
                "taken": Out(1),
                "steps": Out(stream.Signature(Step())),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        command = self.command
        walker = m.submodules.walker = Walker(walk=Walk(VECTOR_LEVELS))
        first, last, place = walker.first, walker.last, walker.position
        from_accumulators = command.source == Source.ACCUMULATORS
        is_vector = command.source == Source.VECTOR
        has_operand = is_vector & (command.operation != Operation.COPY)

        # Where the instruction stands.
        phase = Signal(Phase)
        tap = Signal(range(DEPTHWISE_TAPS))  # of TAPS: loaded; of ELEMENTS: in use
        half = Signal()
        row = Signal(ACCUMULATOR_BITS)
        line = Signal(ADDRESS_BITS)
        operand = Signal(ADDRESS_BITS)
        addend = Signal(ADDRESS_BITS)
        parameter = Signal(12)
        begins = Signal(Phase)  # how a vector of this instruction begins
        begins_block = Signal(Phase)
        in_taps = phase == Phase.TAPS
        in_elements = phase == Phase.ELEMENTS
        in_operand = phase == Phase.OPERAND
        in_addend = phase == Phase.ADDEND

        last_tap = last.kx & last.ky
        operand_ends = ~command.wide_operands | half
        final = Signal()
        ends = Signal()
        outside = Signal()
        taken = self.taken
        m.d.comb += [
            begins.eq(Mux(from_accumulators & command.accumulate, Phase.ADDEND, Phase.ELEMENTS)),
            begins_block.eq(Mux(command.source == Source.DEPTHWISE, Phase.TAPS, begins)),
            final.eq(
                (in_elements & last_tap & ~has_operand & (~command.accumulate | from_accumulators))
                | (in_operand & operand_ends & ~command.accumulate)
                | (in_addend & half & ~from_accumulators)
            ),
            ends.eq(final & walker.ends),
            outside.eq(
                in_elements
                & ~from_accumulators
                & ~is_vector
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
                phase.eq(begins_block),
                tap.eq(0),
                half.eq(0),
                row.eq(command.accumulator),
                line.eq(command.destination),
                operand.eq(command.operand),
                addend.eq(command.destination),
                parameter.eq(command.parameter),
            ]
        with m.Elif(taken):
            with m.If(in_elements):
                m.d.sync += tap.eq(tap + 1)
                with m.If(last_tap):
                    m.d.sync += phase.eq(Mux(has_operand, Phase.OPERAND, Phase.ADDEND))
            with m.If(in_taps):
                m.d.sync += [tap.eq(tap + 1), operand.eq(operand + 1)]
                with m.If(tap + 1 == command.taps):
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

        # The walk is over; the command is still in use.
        walked = Signal()
        over = Signal()
        m.d.comb += [
            over.eq(walked | (taken & ends)),
            self.done.eq(over & ~self.hold),
            walker.walk.eq(command.walk),
            walker.walk_valid.eq(self.command_valid & ~walked),
            walker.advance.eq(taken & (final | (in_elements & ~last_tap))),
        ]
        m.d.sync += walked.eq(over & self.hold)

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
                step.ends_taps.eq(in_taps & (tap + 1 == command.taps)),
                step.final.eq(final),
                step.narrow.eq(final & ~command.wide),
                step.wide.eq(final & command.wide),
                step.looks_up.eq(final & (command.function == Function.TABLE)),
                step.line.eq(line),
                step.parameter.eq(parameter),
                step.table.eq(command.table),
                step.ends.eq(ends),
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
