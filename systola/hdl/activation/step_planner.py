# SPDX-License-Identifier: Apache-2.0
"""The steps of the activation unit: for each command, the reads in their order."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from systola.arch.config import Config
from systola.arch.isa import CURVE_TABLES, LONG_TABLES, Function
from systola.hdl.activation.step_kind import StepKind, halves_of, kind_of, pairs_of
from systola.hdl.activation.steps import PHASES, Pause, Step
from systola.hdl.commands import (
    ActivateCommand,
    Other,
    address_bits,
    line_bits,
    measures,
    most_taps,
    row_bits,
    vector_walk,
)
from systola.hdl.parts.replica import Replica
from systola.hdl.parts.walker import WALK_GAP, Walker

PLAN_LATENCY = WALK_GAP + 1
"""Cycles from a command to its first step."""


class Place(data.StructLayout):
    """A layout that has the place of a step in its instruction.

    The bits that show the end of a phase, or of a vector, are set as the step begins.

    | field          | meaning |
    |---|---|
    | `phase`        | the phase |
    | `tap`          | the tap that TAPS loads or ELEMENTS uses |
    | `half`         | the step reads the second of the two lines of an int16 number |
    | `last_load`    | in TAPS: the last load of the block |
    | `ends_by_tap`  | the last tap completes a vector |
    | `ends_by_line` | this line completes a vector |
    | `moves_on`     | the walk goes to its next place after this step |
    | `row`          | accumulator row of the vector |
    | `line`         | first line of the result |
    | `operand`      | next line of operand b or of the taps |
    | `addend`       | next line to which a result is added |
    | `parameter`    | parameter entry of the vector |
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "phase": PHASES,
                "tap": range(most_taps(config)),
                **dict.fromkeys(("half", "last_load", "ends_by_tap", "ends_by_line"), 1),
                "moves_on": 1,
                "row": row_bits(config),
                "line": address_bits(config),
                "operand": line_bits(config),
                "addend": address_bits(config),
                "parameter": bits_for(config.parameter_entries),
            }
        )


@dataclass(frozen=True)
class _Ends:
    """The parts of an instruction that end with the present step.

    | field         | part |
    |---|---|
    | `taps`        | all taps of a window |
    | `loads`       | the phase TAPS |
    | `operand`     | all lines of operand b, in the phase OPERAND |
    | `addend`      | all lines of the addend, in the phase ADDEND |
    | `vector`      | a vector, which the step issues |
    | `block`       | all places of a block; it ends with its last vector |
    | `instruction` | the instruction |
    """

    taps: Value
    loads: Value
    operand: Value
    addend: Value
    vector: Signal
    block: Value
    instruction: Signal


class StepPlanner(wiring.Component):
    """A unit that offers the steps of one command after the other, one a cycle.

    | port       | meaning |
    |---|---|
    | `commands` | the commands; one is taken after its last step was taken, and while `hold` is
                   low |
    | `hold`     | another unit still needs the command |
    | `begins`   | the planner begins with the steps of a command |
    | `planned`  | the present command, with `low` limited to `high` |
    | `loads`    | the step that is offered in the next cycle, if there is one, is a new step |
    | `steps`    | the steps; the payload comes from registers through one addition |
    | `frees`    | the value of `steps.ready` in the next cycle |

    Latency: PLAN_LATENCY cycles from `commands.valid` to the first step. Throughput: one step a
    cycle; WALK_GAP cycles lie between the steps of two commands. docs/architecture.md, "Ready a
    cycle ahead", has the timing of `frees`.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "commands": In(stream.Signature(ActivateCommand(config=config))),
                "hold": In(1),
                "begins": Out(1),
                "planned": Out(ActivateCommand(config=config)),
                "loads": Out(1),
                "steps": Out(stream.Signature(Step(config=config))),
                "frees": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, command = self._config, self.commands.payload
        self._paired, self._halves = pairs_of(config, command), halves_of(config, command)
        self._walker = walker = Walker(walk=vector_walk(config))
        m.submodules.walker = walker
        self._place = place = Signal(Place(config=config))
        self._next_kind = coming = Signal(StepKind(config=config))
        self._kind = kind = Signal(StepKind(config=config), reset_less=True)
        m.d.comb += [coming[name].eq(value) for name, value in kind_of(config, command).items()]
        with m.If(~walker.present):
            m.d.sync += kind.eq(coming)

        # `walk_absent` is high if no walk is present. After a reset it may rise one cycle late, but
        # no command comes so early.
        walk_absent = m.submodules.absent = Replica()
        m.d.comb += walk_absent.input.eq(~walker.will_be_present)
        # When `steps.ready` is high, the planner goes on, and offers the next step in the next
        # cycle. Two copies of `steps.ready` control this: one for the place in the instruction, and
        # one for the step.
        plan_goes_on = Signal()
        for name, copy in (("goes_on", plan_goes_on), ("loads", self.loads)):
            replica = m.submodules[name] = Replica()
            m.d.comb += [replica.input.eq(self.frees), copy.eq(replica.output)]

        self._walk(m, plan_goes_on)
        parts_end = self._ends(m)
        next_phase = self._follows(m, parts_end)
        with m.If(walk_absent.output):
            self._begin(m)
        with m.Elif(plan_goes_on):
            self._go_on(m, parts_end, next_phase)
        in_window = place.phase.elements & ~parts_end.taps
        m.d.comb += walker.advance.eq(plan_goes_on & (place.moves_on | in_window))
        self._offer(m, parts_end, self._pause(m, parts_end))
        return m

    def _walk(self, m: Module, plan_goes_on: Value) -> None:
        """Give the command to the walker, and keep the command until all of its steps are taken."""
        command, walker = self.commands.payload, self._walker
        least_result = Signal.like(command.low, reset_less=True)
        # all steps of the command are taken, but another unit still needs the command
        command_walked = Signal()
        command_ended = Signal()
        with m.If(~walker.present):
            # `least_result` is `low`, but at most `high`. The sign of a difference decides, as it
            # comes directly out of a carry chain. The result of a comparison does not.
            m.d.sync += least_result.eq(
                Mux((command.high - command.low)[-1], command.high, command.low)
            )
        m.d.comb += [
            self.planned.eq(command),
            self.planned.low.eq(least_result),
            walker.walk.payload.eq(command.walk),
            walker.walk.valid.eq(self.commands.valid & ~command_walked),
            self.begins.eq(walker.walk.valid & ~walker.present),
            # The first term equals `walk.ready`, but is known earlier in the cycle. It does not
            # depend on the taps, as all taps have been walked when the last place ends.
            command_ended.eq(
                (plan_goes_on & self._place.moves_on & walker.present & walker.ends)
                | command_walked
            ),
            self.commands.ready.eq(command_ended & ~self.hold),
        ]
        m.d.sync += command_walked.eq(command_ended & self.hold)

    def _ends(self, m: Module) -> _Ends:
        """Find the parts of the instruction that end with the present step."""
        place, last = self._place, self._walker.last
        last_tap = last.kx & last.ky
        vector_ends = Signal()
        instruction_ends = Signal()
        m.d.comb += [
            vector_ends.eq((place.ends_by_tap & last_tap) | place.ends_by_line),
            instruction_ends.eq(vector_ends & self._walker.ends),
        ]
        return _Ends(
            taps=last_tap,
            loads=place.phase.taps & place.last_load,
            operand=~self._halves | place.half,
            addend=place.half | self._paired,
            vector=vector_ends,
            block=last.ox & last.oy,
            instruction=instruction_ends,
        )

    def _follows(self, m: Module, parts_end: _Ends) -> data.View:
        """Return the phase of the next step.

        Some phases end together with their vector, so the end of the vector decides about the next
        phase. Each other phase has a term for its own end.
        """
        kind, place, now = self._kind, self._place, self._place.phase
        begins_block = parts_end.block & kind.depthwise
        next_phase = Signal(PHASES)
        m.d.comb += [
            next_phase.taps.eq(Mux(parts_end.vector, begins_block, now.taps & ~place.last_load)),
            next_phase.elements.eq(
                (parts_end.vector & ~kind.addend_first & ~begins_block)
                | parts_end.loads
                | (now.elements & ~parts_end.taps)
                | (now.addend & parts_end.addend & kind.from_accumulators)
            ),
            next_phase.operand.eq(
                (now.elements & parts_end.taps & kind.has_operand)
                | (now.operand & ~parts_end.operand)
            ),
            next_phase.addend.eq(
                (parts_end.vector & kind.addend_first)
                | (now.elements & parts_end.taps & ~kind.has_operand & ~kind.elements_end)
                | (now.operand & parts_end.operand & self.commands.payload.accumulate)
                | (now.addend & ~parts_end.addend)
            ),
        ]
        return next_phase

    def _begin(self, m: Module) -> None:
        """Set `place` for the first step of the command."""
        command, coming, place = self.commands.payload, self._next_kind, self._place
        elements = ~coming.depthwise & ~coming.addend_first
        m.d.sync += [
            place.phase.taps.eq(coming.depthwise),
            place.phase.elements.eq(elements),
            place.phase.operand.eq(0),
            place.phase.addend.eq(coming.addend_first),
            place.tap.eq(0),
            place.half.eq(0),
            place.last_load.eq(coming.one_tap),
            place.ends_by_tap.eq(elements & coming.elements_end),
            place.ends_by_line.eq(0),
            place.moves_on.eq(elements & coming.elements_end),
            place.row.eq(command.accumulator),
            place.line.eq(command.destination),
            place.operand.eq(command.operand),
            place.addend.eq(command.destination | self._paired),
            place.parameter.eq(command.parameter),
        ]

    def _go_on(self, m: Module, parts_end: _Ends, next_phase: data.View) -> None:
        """Set `place` for the next step of the command."""
        command, kind = self.commands.payload, self._kind
        place, now, paired = self._place, self._place.phase, self._paired
        in_pair = paired & command.wide_operands
        operand_step = Cat(now.taps | (now.operand & ~in_pair), now.operand & in_pair)
        if self._config.training:
            operand_step = Mux(
                parts_end.vector & parts_end.block & kind.other,
                command.walk.step.block.line,
                operand_step,
            )
        by_tap = next_phase.elements & kind.elements_end
        by_line = (
            (now.elements & parts_end.taps & kind.one_line)
            | (now.operand & ~parts_end.operand & ~command.accumulate)
            | (now.addend & ~parts_end.addend & ~kind.from_accumulators)
            | (next_phase.addend & paired & ~kind.from_accumulators)
        )
        m.d.sync += [
            now.eq(next_phase),
            place.tap.eq(Mux(parts_end.vector | parts_end.loads, 0, place.tap + 1)),
            place.half.eq((now.operand & ~parts_end.operand) | (now.addend & ~parts_end.addend)),
            place.last_load.eq(Mux(now.taps, place.tap == kind.last_but_one, kind.one_tap)),
            place.ends_by_tap.eq(by_tap),
            place.ends_by_line.eq(by_line),
            place.moves_on.eq(by_tap | by_line),
            place.operand.eq(place.operand + operand_step),
            place.addend.eq(place.addend + Cat(now.addend & ~paired, now.addend & paired)),
        ]
        with m.If(parts_end.vector):
            m.d.sync += [
                place.row.eq(place.row + 1),
                place.line.eq(place.line + 1 + command.wide),
            ]
            with m.If(parts_end.block & command.by_block):
                m.d.sync += place.parameter.eq(place.parameter + 1)

    def _pause(self, m: Module, parts_end: _Ends) -> Signal:
        """Return the pause that must follow the present step."""
        config, command, kind = self._config, self.commands.payload, self._kind
        final = parts_end.vector
        drains = parts_end.instruction & ~kind.from_accumulators
        # An addend that is read before the other operands needs no pause.
        adds_soon = final & command.accumulate & ~kind.from_accumulators
        if config.training:
            adds_soon &= kind.few_lines
        pauses: list[tuple[Value, ValueLike]] = [
            (final & kind.gate, Pause.GATE),
            (((final & command.accumulate) | drains) & kind.scaled, Pause.LONG),
            (drains, Pause.DRAIN),
            (adds_soon, Pause.ADDEND),
            (
                final & (kind.two_lines | parts_end.instruction),
                Mux(kind.addend_first & ~parts_end.instruction, Pause.NONE, Pause.WIDE),
            ),
            (parts_end.loads & kind.few_taps, Pause.TAPS),
        ]
        if config.training:
            # Pauses also follow a transposed tile, a Measure, random bytes and the load of a seed.
            few_loads = self._place.last_load & kind.few_taps
            rests = kind.other & Mux(self._place.phase.taps, few_loads, final & parts_end.block)
            pauses.insert(0, (rests, Pause.LONG))
            # The generators of random numbers make their steps late, and the next seed must come
            # after these steps. A pause for the gates is longer, so it suffices.
            pauses.insert(2, (parts_end.instruction & command.stochastic, Pause.LONG))
        if config.attention:
            # Results on curves come late. Without a pause, results of the next instruction could
            # overtake the results on curves.
            pauses.insert(0, (parts_end.instruction & kind.curve & kind.scaled, Pause.GATE))
            pauses.insert(1, (parts_end.instruction & kind.curve, Pause.LONG))
        step_pause = Signal(Pause)
        for number, (holds, which) in enumerate(pauses):
            with m.Elif(holds) if number else m.If(holds):
                m.d.comb += step_pause.eq(which)
        return step_pause

    def _offer(self, m: Module, parts_end: _Ends, step_pause: Signal) -> None:
        """Load the next step, and give `_complete` two facts about its place, from registers.

        The facts are whether the place lies outside the map, and whether the number of taps inside
        the map chooses the parameter entry.
        """
        config, command, kind = self._config, self.commands.payload, self._kind
        place, now, final = self._place, self._place.phase, parts_end.vector
        first, position = self._walker.first, self._walker.position
        first_half = self._halves & Mux(now.elements, first.kx, ~place.half)
        halved = Mux(now.elements, kind.halved_a, kind.halved_b)
        offered_step = Signal(Step(config=config), reset_less=True)
        in_window = Signal(reset_less=True)
        in_rows = Signal(reset_less=True)
        in_columns = Signal(reset_less=True)
        by_taps = Signal(reset_less=True)
        reads = ~(now.elements & kind.from_accumulators)
        # A Transpose reads operand a in the phase TAPS, in which other instructions read taps.
        of_operand = now.operand | (now.taps & ~kind.other)
        narrow = final & ~command.wide
        if config.training:
            moves_none = now.elements | (command.table != Other.TRANSPOSE)
            reads &= ~(kind.other & kind.depthwise & moves_none)
            narrow &= ~(kind.other & measures(command.table))
        looks_up, table = self._table(final)
        with m.If(self.loads):
            if config.reads_pairs:
                in_pair = now.addend | (command.wide_operands & ~kind.from_accumulators)
                m.d.sync += offered_step.pair.eq(self._paired & in_pair)
            m.d.sync += [
                self.steps.valid.eq(self._walker.present),
                offered_step.phase.eq(Cat(now.elements | now.addend, now.operand | now.addend)),
                offered_step.reads.eq(reads),
                offered_step.reads_first.eq(reads & ~of_operand),
                offered_step.reads_operand.eq(reads & of_operand),
                offered_step.read.eq(
                    Mux(now.elements, position.line, Mux(now.addend, place.addend, place.operand))
                ),
                offered_step.sums.eq(now.elements & kind.from_accumulators),
                offered_step.row.eq(place.row),
                offered_step.tap.eq(place.tap),
                offered_step.low.eq(Mux(now.addend, ~parts_end.addend, first_half)),
                offered_step.scales.eq(kind.scaled & ~now.addend & ~first_half & ~halved),
                offered_step.halves.eq(kind.scaled & ~now.addend & halved),
                offered_step.begins.eq(now.elements & first.kx & first.ky),
                offered_step.final.eq(final),
                offered_step.narrow.eq(narrow),
                offered_step.wide.eq(final & command.wide),
                offered_step.looks_up.eq(looks_up),
                offered_step.line.eq(place.line),
                offered_step.parameter.eq(place.parameter),
                offered_step.table.eq(table),
                offered_step.ends.eq(parts_end.instruction),
                offered_step.pause.eq(step_pause),
                in_window.eq(now.elements & kind.from_map),
                in_rows.eq((position.y >= 0) & (position.y < command.height)),
                in_columns.eq((position.x >= 0) & (position.x < command.width)),
                by_taps.eq(command.by_taps & now.elements),
            ]
        self._complete(m, offered_step, in_window & ~(in_rows & in_columns), by_taps)

    def _table(self, final: Value) -> tuple[Value, Value]:
        """Return whether the present step uses a table for its result, and the table's number.

        A curve, or a table of int32, lies in several tables. The step names the last of these
        tables, as the load of this table is the last one that matters.
        """
        command = self.commands.payload
        looks_up = final & (command.function == Function.TABLE)
        if not self._config.attention:
            return looks_up, command.table
        more = Mux(self._kind.curve, CURVE_TABLES - 1, Mux(command.gathers, LONG_TABLES - 1, 0))
        return looks_up | command.gathers, (command.table + more)[: len(command.table)]

    def _complete(
        self, m: Module, offered_step: data.View, is_outside: Value, by_taps: Value
    ) -> None:
        """Drive `steps` with the loaded step, and suppress its read outside the map.

        The first tap inside the map takes the parameter entry of the vector. Each further tap
        inside the map takes the next entry.
        """
        tap_outside = Signal()
        entry_counts = Signal()
        parameter_entry = Signal.like(self.commands.payload.parameter)
        kept_entry = Signal.like(self.commands.payload.parameter)
        kept_counted = Signal()
        entry_counted = Signal()
        m.d.comb += [
            tap_outside.eq(is_outside),
            entry_counts.eq(by_taps & ~tap_outside),
            entry_counted.eq(kept_counted & ~offered_step.begins),
            parameter_entry.eq(
                Mux(offered_step.begins, offered_step.parameter, kept_entry)
                + (entry_counts & entry_counted)
            ),
            self.steps.payload.eq(offered_step),
            self.steps.payload.reads.eq(offered_step.reads & ~tap_outside),
            self.steps.payload.reads_first.eq(offered_step.reads_first & ~tap_outside),
            self.steps.payload.outside.eq(tap_outside),
            self.steps.payload.parameter.eq(parameter_entry),
        ]
        with m.If(self.loads):
            m.d.sync += [
                kept_entry.eq(parameter_entry),
                kept_counted.eq(entry_counted | entry_counts),
            ]
