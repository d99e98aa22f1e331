# SPDX-License-Identifier: Apache-2.0
"""The steps of the activation unit: for each command, the reads in their order."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from systola.arch.config import Config
from systola.arch.isa import CURVE_TABLES, LONG_TABLES, Function, Operation
from systola.hdl.activation.spacings import TAP_SPACING
from systola.hdl.commands import (
    OTHER,
    ActivateCommand,
    Other,
    Source,
    address_bits,
    is_curve,
    is_gate,
    line_bits,
    measures,
    most_taps,
    row_bits,
    vector_walk,
)
from systola.hdl.parts.replica import Replica
from systola.hdl.parts.walker import WALK_GAP, Walker


class Phase(enum.Enum, shape=2):
    """A part of a vector's steps, named after the data that these steps read.

    TAPS: the weights of the taps (Depthwise, once a block). ELEMENTS: operand a or accumulators.
    OPERAND: operand b. ADDEND: the lines to which the result is added.
    """

    TAPS = 0
    ELEMENTS = 1
    OPERAND = 2
    ADDEND = 3


PHASES = data.StructLayout({"taps": 1, "elements": 1, "operand": 1, "addend": 1})
"""A layout with a bit for each Phase."""


class Pause(enum.Enum, shape=3):
    """A reason to leave out steps after a step: the next one would come too early."""

    NONE = 0
    ONE = 1
    TAPS = 2
    ADDEND = 3
    DRAIN = 4
    LONG = 5
    GATE = 6


class Step(data.StructLayout):
    """A step: the work of one cycle, if no other unit holds it up.

    | field           | meaning |
    |---|---|
    | `phase`         | the part of its vector |
    | `reads`         | it reads buffer line `read` |
    | `reads_operand` | the line belongs to operand b, or to the taps |
    | `reads_first`   | the line belongs to any other region |
    | `read`          | the line |
    | `sums`          | it reads accumulator `row` |
    | `row`           | the row |
    | `outside`       | its place lies outside the map, so it reads nothing |
    | `tap`           | number of the tap that it loads or uses |
    | `low`           | its line has low bytes, and the next line their high bytes |
    | `pair`          | the low bytes, in the line before, are read with it, if the machine
                        `reads_pairs` |
    | `scales`        | it completes an element that the requantisers scale |
    | `halves`        | it completes an element of int8 that is halved |
    | `begins`        | it has the first element of its vector |
    | `final`         | it issues its vector |
    | `narrow`        | it is final, and writes one line |
    | `wide`          | it is final, and writes two lines |
    | `looks_up`      | it is final, and the result comes from a table |
    | `line`          | the line of the result, or the first of two |
    | `parameter`     | the parameter entry of the vector |
    | `table`         | number of the table |
    | `ends`          | it is the last step of its instruction |
    | `pause`         | the pause that follows it |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "phase": Phase,
                "reads": 1,
                "reads_first": 1,
                "reads_operand": 1,
                "read": line_bits(config),
                "sums": 1,
                "row": row_bits(config),
                "outside": 1,
                "tap": range(most_taps(config)),
                "low": 1,
                **({"pair": 1} if config.reads_pairs else {}),
                "scales": 1,
                "halves": 1,
                "begins": 1,
                "final": 1,
                "narrow": 1,
                "wide": 1,
                "looks_up": 1,
                "line": address_bits(config),
                "parameter": bits_for(config.parameter_entries),
                "table": 4,
                "ends": 1,
                "pause": Pause,
            }
        )


HALF = 1 << 30
"""Multiplier of a scale of one half."""
PLAN_LATENCY = WALK_GAP + 1
"""Cycles from a command to its first step."""


class StepPlanner(wiring.Component):
    """A unit that offers the steps of `command`, one a cycle.

    | port            | meaning |
    |---|---|
    | `command`       | the instruction; it stays until `ends` |
    | `command_valid` | there is an instruction; the next one may follow `ends` at once |
    | `hold`          | another unit still needs `command` |
    | `begins`        | the steps of `command` begin |
    | `ends`          | the last step was taken off, and `hold` is low |
    | `planned`       | `command`, with `low` <= `high` |
    | `loads`         | the step that is offered in the next cycle, if any, is another than in this
                        cycle |
    | `steps`         | the steps, from registers by an addition |
    | `frees`         | the value of `steps.ready` in the next cycle |

    Latency: PLAN_LATENCY cycles from `command_valid` to the first step. Throughput: one step a
    cycle; WALK_GAP cycles lie between the steps of two commands. docs/architecture.md, "Ready a
    cycle ahead", has the timing of `frees`.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "command": In(ActivateCommand(config=config)),
                "command_valid": In(1),
                "hold": In(1),
                "begins": Out(1),
                "ends": Out(1),
                "planned": Out(ActivateCommand(config=config)),
                "loads": Out(1),
                "steps": Out(stream.Signature(Step(config=config))),
                "frees": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        command = self.command
        # Both lines of an int16 operand or addend are one step.
        paired = command.paired if config.reads_pairs else Const(0, 1)
        halved_operands = command.wide_operands & ~paired
        walker = m.submodules.walker = Walker(walk=vector_walk(config))
        first, last, place = walker.first, walker.last, walker.position
        low = Signal.like(command.low, reset_less=True)
        walked = Signal()  # all steps of the command are made, but units still need it
        ended = Signal()
        goes_on = Signal()
        moves_on = Signal()  # the walk moves on after this step
        m.d.comb += [
            self.planned.eq(command),
            self.planned.low.eq(low),
            walker.walk.payload.eq(command.walk),
            walker.walk.valid.eq(self.command_valid & ~walked),
            self.begins.eq(walker.walk.valid & ~walker.present),
            # This equals `walk.ready`, but is known sooner in the cycle: it need not look at the
            # taps, as all taps have been walked when the last place ends.
            ended.eq((goes_on & moves_on & walker.present & walker.ends) | walked),
            self.ends.eq(ended & ~self.hold),
        ]
        m.d.sync += walked.eq(ended & self.hold)

        # The kind of the instruction.
        coming_sums = command.source == Source.ACCUMULATORS
        coming_vector = command.source == Source.VECTOR
        coming_depthwise = command.source == Source.DEPTHWISE
        coming_adds = (command.operation == Operation.ADD) | (
            command.operation == Operation.SUBTRACT
        )
        coming_operand = coming_vector & (command.operation != Operation.COPY)
        coming_addend = coming_sums & command.accumulate  # the addend is read first
        coming_end = ~coming_operand & (~command.accumulate | coming_sums)
        from_accumulators = Signal(reset_less=True)
        from_map = Signal(reset_less=True)
        has_operand = Signal(reset_less=True)
        elements_end = Signal(reset_less=True)  # the last element of a vector is its last step
        addend_first = Signal(reset_less=True)  # a vector begins with the phase ADDEND
        depthwise = Signal(reset_less=True)  # a block begins with the phase TAPS
        one_line = Signal(reset_less=True)  # one line of operand b completes a vector
        two_lines = Signal(reset_less=True)  # a vector reads one line and writes two
        gate = Signal(reset_less=True)
        other = Signal(reset_less=True)  # nothing is requantised
        scaled = Signal(reset_less=True)
        halved = Signal(data.StructLayout({"a": 1, "b": 1}), reset_less=True)
        few_taps = Signal(reset_less=True)
        one_tap = Signal(reset_less=True)
        last_but_one = Signal.like(command.taps, reset_less=True)  # number of the last tap but one
        with m.If(~walker.present):
            m.d.sync += [
                # `low` must not exceed `high`. (The sign of a difference comes directly out of a
                # carry chain, a comparison does not.)
                low.eq(Mux((command.high - command.low)[-1], command.high, command.low)),
                from_accumulators.eq(coming_sums),
                from_map.eq(~coming_sums & ~coming_vector),
                has_operand.eq(coming_operand),
                elements_end.eq(coming_end),
                addend_first.eq(coming_addend),
                depthwise.eq(coming_depthwise),
                one_line.eq(coming_operand & ~halved_operands & ~command.accumulate),
                two_lines.eq(command.wide & ~coming_operand & ~halved_operands),
                gate.eq(is_gate(command.function)),
                other.eq(command.function == OTHER),
                scaled.eq(coming_vector & coming_adds),
                *(
                    halved[operand].eq(
                        (command.scale[f"multiplier_{operand}"] == HALF)
                        & (command.scale[f"shift_{operand}"] == 0)
                        & ~command.wide_operands
                    )
                    for operand in "ab"
                ),
                few_taps.eq(command.taps <= TAP_SPACING),
                one_tap.eq(command.taps == 1),
                last_but_one.eq(command.taps - 2),
            ]

        # The position in the instruction. When a phase begins, it is known how it may end.
        now = Signal(PHASES)
        tap = Signal(range(most_taps(config)))  # the tap that TAPS loads or ELEMENTS uses
        half = Signal()
        last_load = Signal()  # in TAPS: the last load of the block
        ends_by_tap = Signal()  # the last tap completes a vector
        ends_by_line = Signal()  # this line completes a vector
        row = Signal.like(command.accumulator)
        line = Signal.like(command.destination)
        operand = Signal.like(command.operand)
        addend = Signal.like(command.destination)
        parameter = Signal.like(command.parameter)

        operand_ends = ~halved_operands | half
        addend_ends = half | paired
        last_tap = last.kx & last.ky
        block_ends = last.ox & last.oy
        taps_end = now.taps & last_load
        final = Signal()
        ends = Signal()
        m.d.comb += [
            final.eq((ends_by_tap & last_tap) | ends_by_line),
            ends.eq(final & walker.ends),
        ]

        # The phase of the next step. `final` stands for phases that complete a vector. Phases that
        # do not complete a vector have terms of their own.
        begins_block = block_ends & depthwise
        next_half = (now.operand & ~operand_ends) | (now.addend & ~addend_ends)
        follows = Signal(PHASES)
        m.d.comb += [
            follows.taps.eq(Mux(final, begins_block, now.taps & ~last_load)),
            follows.elements.eq(
                (final & ~addend_first & ~begins_block)
                | taps_end
                | (now.elements & ~last_tap)
                | (now.addend & addend_ends & from_accumulators)
            ),
            follows.operand.eq(
                (now.elements & last_tap & has_operand) | (now.operand & ~operand_ends)
            ),
            follows.addend.eq(
                (final & addend_first)
                | (now.elements & last_tap & ~has_operand & ~elements_end)
                | (now.operand & operand_ends & command.accumulate)
                | (now.addend & ~addend_ends)
            ),
        ]

        # No walk is present. After a reset this may be a cycle late, but no command comes so early.
        absent = m.submodules.absent = Replica()
        m.d.comb += absent.input.eq(~walker.will_be_present)

        # Whenever `steps.ready` is high, the planner goes on, and offers the next step in the next
        # cycle. Two copies of `steps.ready` serve this: one for the place in the instruction, and
        # one for the step.
        loads = Signal()
        for name, copy in (("goes_on", goes_on), ("loads", loads)):
            replica = m.submodules[name] = Replica()
            m.d.comb += [replica.input.eq(self.frees), copy.eq(replica.output)]
        with m.If(absent.output):
            m.d.sync += [
                now.taps.eq(coming_depthwise),
                now.elements.eq(~coming_depthwise & ~coming_addend),
                now.operand.eq(0),
                now.addend.eq(coming_addend),
                tap.eq(0),
                half.eq(0),
                last_load.eq(command.taps == 1),
                ends_by_tap.eq(~coming_depthwise & ~coming_addend & coming_end),
                ends_by_line.eq(0),
                moves_on.eq(~coming_depthwise & ~coming_addend & coming_end),
                row.eq(command.accumulator),
                line.eq(command.destination),
                operand.eq(command.operand),
                addend.eq(command.destination | paired),
                parameter.eq(command.parameter),
            ]
        with m.Elif(goes_on):
            in_pair = paired & command.wide_operands
            operand_step = Cat(now.taps | (now.operand & ~in_pair), now.operand & in_pair)
            if config.training:
                operand_step = Mux(
                    final & block_ends & other, command.walk.step.block.line, operand_step
                )
            by_tap = follows.elements & elements_end
            by_line = (
                (now.elements & last_tap & one_line)
                | (now.operand & ~operand_ends & ~command.accumulate)
                | (now.addend & ~addend_ends & ~from_accumulators)
                | (follows.addend & paired & ~from_accumulators)
            )
            m.d.sync += [
                now.eq(follows),
                tap.eq(Mux(final | taps_end, 0, tap + 1)),
                half.eq(next_half),
                last_load.eq(Mux(now.taps, tap == last_but_one, one_tap)),
                ends_by_tap.eq(by_tap),
                ends_by_line.eq(by_line),
                moves_on.eq(by_tap | by_line),
                operand.eq(operand + operand_step),
                addend.eq(addend + Cat(now.addend & ~paired, now.addend & paired)),
            ]
            with m.If(final):
                m.d.sync += [
                    row.eq(row + 1),
                    line.eq(line + 1 + command.wide),
                ]
                with m.If(block_ends & command.by_block):
                    m.d.sync += parameter.eq(parameter + 1)
        m.d.comb += walker.advance.eq(goes_on & (moves_on | (now.elements & ~last_tap)))

        drains = ends & ~from_accumulators
        # An addend that is read before the other operands needs no pause.
        adds_soon = final & command.accumulate & ~from_accumulators
        if config.training:
            few_lines = Signal(reset_less=True)  # a vector is one element of one step
            with m.If(~walker.present):
                m.d.sync += few_lines.eq(~coming_operand & ~halved_operands)
            adds_soon &= few_lines
        pauses: list[tuple[Value, ValueLike]] = [
            (final & gate, Pause.GATE),
            (((final & command.accumulate) | drains) & scaled, Pause.LONG),
            (drains, Pause.DRAIN),
            (adds_soon, Pause.ADDEND),
            (final & (two_lines | ends), Mux(addend_first & ~ends, Pause.NONE, Pause.ONE)),
            (taps_end & few_taps, Pause.TAPS),
        ]
        if config.training:
            # A pause follows a transposed tile, a Measure, random bytes and a seed.
            rests = other & Mux(now.taps, last_load & few_taps, final & block_ends)
            pauses.insert(0, (rests, Pause.LONG))
            # The generators of random numbers make their steps late, and the next seed must come
            # after them. A gate's pause is longer, so it needs no second one.
            pauses.insert(2, (ends & command.stochastic, Pause.LONG))
        table = command.table
        looks_up: Value = final & (command.function == Function.TABLE)
        if config.attention:
            curve = Signal(reset_less=True)
            with m.If(~walker.present):
                m.d.sync += curve.eq(is_curve(command))
            # The load of the last of several tables is the last one that matters.
            more = Mux(curve, CURVE_TABLES - 1, Mux(command.gathers, LONG_TABLES - 1, 0))
            table = (table + more)[: len(table)]
            looks_up |= command.gathers
            # Numbers on curves come late. Without the pause, results of the next instruction could
            # pass them.
            pauses.insert(0, (ends & curve & scaled, Pause.GATE))
            pauses.insert(1, (ends & curve, Pause.LONG))
        pause = Signal(Pause)
        for number, (holds, which) in enumerate(pauses):
            with m.Elif(holds) if number else m.If(holds):
                m.d.comb += pause.eq(which)

        # The step, but for two facts that follow from its place: whether the place lies outside
        # the map, and which parameter entry the step uses. Both are added below.
        first_half = halved_operands & Mux(now.elements, first.kx, ~half)
        halves = Mux(now.elements, halved.a, halved.b)
        step = Signal(Step(config=config), reset_less=True)
        in_window = Signal(reset_less=True)
        in_rows, in_columns = Signal(reset_less=True), Signal(reset_less=True)
        by_taps = Signal(reset_less=True)
        valid = Signal()
        m.d.comb += self.loads.eq(loads)
        reads = ~(now.elements & from_accumulators)
        # A Transpose reads operand a in the phase in which other instructions read taps.
        of_operand = now.operand | (now.taps & ~other)
        narrow = final & ~command.wide
        if config.training:
            reads &= ~(other & depthwise & (now.elements | (command.table != Other.TRANSPOSE)))
            narrow &= ~(other & measures(command.table))
        if config.reads_pairs:
            in_pair = paired & (now.addend | (command.wide_operands & ~from_accumulators))
            with m.If(loads):
                m.d.sync += step.pair.eq(in_pair)
        with m.If(loads):
            m.d.sync += [
                valid.eq(walker.present),
                step.phase.eq(Cat(now.elements | now.addend, now.operand | now.addend)),
                step.reads.eq(reads),
                step.reads_first.eq(reads & ~of_operand),
                step.reads_operand.eq(reads & of_operand),
                step.read.eq(Mux(now.elements, place.line, Mux(now.addend, addend, operand))),
                step.sums.eq(now.elements & from_accumulators),
                step.row.eq(row),
                step.tap.eq(tap),
                step.low.eq(Mux(now.addend, ~addend_ends, first_half)),
                step.scales.eq(scaled & ~now.addend & ~first_half & ~halves),
                step.halves.eq(scaled & ~now.addend & halves),
                step.begins.eq(now.elements & first.kx & first.ky),
                step.final.eq(final),
                step.narrow.eq(narrow),
                step.wide.eq(final & command.wide),
                step.looks_up.eq(looks_up),
                step.line.eq(line),
                step.parameter.eq(parameter),
                step.table.eq(table),
                step.ends.eq(ends),
                step.pause.eq(pause),
                in_window.eq(now.elements & from_map),
                in_rows.eq((place.y >= 0) & (place.y < command.height)),
                in_columns.eq((place.x >= 0) & (place.x < command.width)),
                by_taps.eq(command.by_taps & now.elements),
            ]

        # Each tap inside the map takes the next parameter entry; the first takes the vector's own.
        outside = Signal()
        counts = Signal()
        entry = Signal.like(command.parameter)
        kept_entry = Signal.like(command.parameter)
        kept_counted = Signal()
        counted = Signal()
        m.d.comb += [
            outside.eq(in_window & ~(in_rows & in_columns)),
            counts.eq(by_taps & ~outside),
            counted.eq(kept_counted & ~step.begins),
            entry.eq(Mux(step.begins, step.parameter, kept_entry) + (counts & counted)),
            self.steps.valid.eq(valid),
            self.steps.payload.eq(step),
            self.steps.payload.reads.eq(step.reads & ~outside),
            self.steps.payload.reads_first.eq(step.reads_first & ~outside),
            self.steps.payload.outside.eq(outside),
            self.steps.payload.parameter.eq(entry),
        ]
        with m.If(loads):
            m.d.sync += [kept_entry.eq(entry), kept_counted.eq(counted | counts)]
        return m
