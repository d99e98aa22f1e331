# SPDX-License-Identifier: Apache-2.0
"""The activation unit, which writes all results of computations into the unified buffer."""

from contextlib import nullcontext

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from systola.arch.config import Config
from systola.arch.isa import TANH_INTEGER_BITS, Function, Operation
from systola.hdl.activation.controls import INSTRUCTIONS
from systola.hdl.activation.gate_queue import GateQueue
from systola.hdl.activation.result_lanes import ResultLanes
from systola.hdl.activation.spacings import GATHER_SPACING, SLOT_DISTANCE
from systola.hdl.activation.step_checks import checks
from systola.hdl.activation.step_planner import PLAN_LATENCY, StepPlanner
from systola.hdl.activation.steps import Pause, Phase, Step, steps_left_out
from systola.hdl.activation.vector_lane import Coefficient
from systola.hdl.commands import (
    OTHER,
    ActivateCommand,
    Other,
    Source,
    is_gate,
    measures,
)
from systola.hdl.control.hazards import masks_of
from systola.hdl.control.signatures import list_signature, queue_signature
from systola.hdl.parts.in_flight import kept
from systola.hdl.parts.interlock import Interlock
from systola.hdl.parts.promise import promised
from systola.hdl.ports import (
    AccumulatorReadSignature,
    BufferReadSignature,
    BufferWriteSignature,
    ParameterWriteSignature,
    TableWriteSignature,
)

LEAST = 128
"""Zero point for taps outside the map, where Pool takes the maximum.

Such a tap counts as 0 - LEAST, the smallest int8, so that it never raises a maximum.
"""
FOLLOW_LATENCY = 2
"""Cycles through the interlock: from the report that lets a step pass to the read of the step."""
FRONT_LATENCY = PLAN_LATENCY + 1 + FOLLOW_LATENCY
"""Cycles from a command to its first read, through walker, planner and interlock."""


class ActivationUnit(wiring.Component):
    """A unit that carries out Activate, Depthwise, Pool, Vector, Measure, Transpose and Random.

    It makes one vector after the other. StepPlanner makes the steps of each instruction. An
    `Interlock` lets a step pass once no older instruction uses its addresses any longer.
    ResultLanes does the work, with an `ActivationLane` for each column. A step is a read of an
    accumulator row or of a buffer line. A step of a `paired` command reads both lines of an int16
    operand or addend. The last step of a vector issues the vector.

    | port                | meaning |
    |---|---|
    | `queue`             | the queue of commands; with `pop` all steps of the command are taken |
    | `activate_reading`  | the list of accumulator rows: reports each row in the cycle after its
                            read, and retires when all are read |
    | `activate_operands` | the list of buffer lines: retires in the cycle after the last read |
    | `activate_writing`  | the list of results: reports lines ANNOUNCED cycles before their write,
                            and retires with the last line |
    | `accumulators`      | reads of accumulator rows |
    | `operands`          | reads of buffer lines, with their `ready` and their data |
    | `parameters`        | writes into the parameter memory |
    | `tables`            | writes into the tables, with tables |
    | `buffer`            | writes of result lines |
    | `takes_line`        | for a counter: in the cycle before, a step was made that reads no
                            accumulators |
    | `running`           | a program runs; only where columns take turns |

    - Latency: the first read comes FRONT_LATENCY cycles after the command. The read of a step that
      waits comes FOLLOW_LATENCY cycles after a list lets the step go, or one cycle more. From the
      read of a vector's accumulators to the write of its line there are `latency` cycles.
    - Throughput: one step a cycle, less the pauses below.
    - Back-pressure: a step waits while the bank of the accumulators or of the buffer is busy.
      Nothing stops a vector after its issue.

    Steps are left out so that no two meet in the lanes: `spacings` has these pauses, docs/lanes.md
    has their reasons. WALK_GAP cycles are lost between two instructions, and more if the first one
    has fewer than five steps. A step waits for a multiplier that gates still use, see GateQueue.

    Where two columns share a lane, a step takes two cycles. A pause is then a whole number of
    steps: as many cycles as above, or one more. Each program begins with the same turn, counted
    from the rise of `running`, so that it takes the same cycles each time.
    """

    def __init__(self, *, config: Config):
        self._config = config
        lists = ("activate_reading", "activate_operands", "activate_writing")
        members = {
            "queue": In(queue_signature("activate", config)),
            **{name: In(list_signature(name, config)) for name in lists},
            "accumulators": Out(AccumulatorReadSignature(config=config)),
            "operands": Out(BufferReadSignature(config=config, pairs=config.reads_pairs)),
            "parameters": In(ParameterWriteSignature(config=config)),
            "buffer": Out(BufferWriteSignature(config=config)),
            "takes_line": Out(1),
        }
        if config.tables:
            members["tables"] = In(TableWriteSignature(tables=config.tables))
        if config.columns_per_lane > 1:
            members["running"] = In(1)
        super().__init__(members)

    @staticmethod
    def latency() -> int:
        """Return the cycles from the read of a vector's accumulators to the write of its line."""
        return ResultLanes.latency()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._column_turn = Signal(range(self._config.columns_per_lane))
        self._shared = self._config.columns_per_lane > 1
        interlock = m.submodules.interlock = Interlock(
            item=Step(config=self._config),
            checks=checks(self._config),
            depth=self._config.queue_depth,
            widths=masks_of("activate", self._config),
        )
        instruction_ends = Signal()  # the last step of the instruction is taken
        command = self._plan(m, interlock, instruction_ends)

        from_accumulators = command.source == Source.ACCUMULATORS
        in_both = Signal()  # the command is a Measure, with entries in both lists of reads
        if self._config.training:
            m.d.comb += in_both.eq((command.function == OTHER) & measures(command.table))
        adds = (command.operation == Operation.ADD) | (command.operation == Operation.SUBTRACT)
        elements_scaled = Signal()
        m.d.comb += elements_scaled.eq((command.source == Source.VECTOR) & adds)
        # Bit n: a sum of scaled elements was issued n + 1 cycles ago. Such a sum occupies the
        # requantisers for one cycle in each turn, and so does each element of the sum.
        scaled_sums = Signal(SLOT_DISTANCE)
        meeting = scaled_sums[SLOT_DISTANCE + 1 - 2 * self._config.columns_per_lane :]
        step, offered, done = self._step(m, interlock, meeting.any())
        vector_issues = Signal()
        self._entry_done = Signal()  # a partition has written its entry
        if self._config.wide:
            self._wait_for_gates(m, platform, command, elements_scaled, vector_issues)
        m.d.sync += scaled_sums.eq(Cat(vector_issues & elements_scaled, scaled_sums))
        m.d.comb += [vector_issues.eq(done & step.final), instruction_ends.eq(done & step.ends)]
        m.d.sync += [
            self.activate_reading.advance.eq(vector_issues & from_accumulators),
            self.activate_reading.advance_to.eq(step.row + 1),
            self.activate_reading.retire.eq(instruction_ends & (from_accumulators | in_both)),
            self.activate_operands.retire.eq(instruction_ends & (~from_accumulators | in_both)),
            self.takes_line.eq(done & ~from_accumulators),
        ]

        lanes = self._place_lanes(m, command)
        if self._config.attention:
            m.d.comb += [
                lanes.gathers.eq(offered & command.gathers & (step.phase == Phase.ELEMENTS)),
                lanes.vector.partition.eq(command.partition),
                self._entry_done.eq(lanes.entry_done),
            ]
        self._control_line(m, lanes.line, command, step, offered, elements_scaled)
        instruction_number = Signal(range(INSTRUCTIONS))
        with m.If(instruction_ends):
            m.d.sync += instruction_number.eq(instruction_number + 1)
        m.d.comb += [
            lanes.vector.number.eq(instruction_number),
            *(lanes.said[name].eq(command[name]) for name in lanes.said.shape().members),
        ]
        self._control_vector(m, lanes.vector, command, step)
        m.d.comb += [
            lanes.vector.scaled.eq(elements_scaled),
            lanes.issue.eq(offered & step.final),
        ]
        return m

    def _plan(self, m: Module, interlock: Interlock, instruction_ends: Signal) -> data.View:
        """Connect the planner with the interlock; return the command of the present step.

        The planner may already have the next command. At `instruction_ends` the last step of the
        present command ends. A pause follows, in which the next command takes its place.
        """
        planner = m.submodules.planner = StepPlanner(config=self._config)
        queue = self.queue
        connect(m, planner.steps, interlock.input)
        m.d.comb += planner.frees.eq(interlock.frees)
        # The masks of the step that the planner offers. A mask loses its entry when the entry
        # leaves its list.
        step_masks = Signal.like(queue.masks)
        next_masks = Signal.like(step_masks)
        m.d.comb += [
            next_masks.eq(Mux(planner.loads, queue.masks, step_masks)),
            interlock.awaited.eq(step_masks),
            interlock.progress.eq(queue.progress),
        ]
        m.d.sync += step_masks.eq(kept(next_masks, queue.progress))

        command = Signal(ActivateCommand(config=self._config), reset_less=True)
        command_present = Signal()
        command_follows = Signal()  # the planner already has the next command
        m.d.comb += [
            planner.commands.payload.eq(queue.command),
            planner.commands.valid.eq(queue.valid),
            planner.hold.eq(command_follows & command_present),
            queue.pop.eq(planner.commands.ready),
        ]
        m.d.sync += [
            command_present.eq(Mux(command_present, ~instruction_ends, command_follows)),
            command_follows.eq(planner.begins | (command_follows & command_present)),
        ]
        with m.If(~command_present):
            m.d.sync += command.eq(planner.planned)
        return command

    def _wait_for_gates(
        self,
        m: Module,
        platform: object,
        command: data.View,
        elements_scaled: Signal,
        vector_issues: Signal,
    ) -> None:
        """Hold steps that need a multiplier, table or entry which older vectors still use."""
        from_accumulators = command.source == Source.ACCUMULATORS
        inverts = (command.function == Function.EXP) & (command.table > TANH_INTEGER_BITS)
        queue = m.submodules.gate_queue = GateQueue(turns=self._config.columns_per_lane)
        hold_all: Value = queue.hold_all
        hold_issue: Value = queue.hold_issue
        if self._config.attention:
            hold_all |= self._awaits_tables(m, command, vector_issues)
            # No vector is issued from the issue of a partition until its entry is written. So
            # instructions end in their order, and vectors never use an entry that is still due.
            entry_due = Signal()
            issues_partition = vector_issues & command.partition
            m.d.sync += entry_due.eq(issues_partition | (entry_due & ~self._entry_done))
            hold_issue |= entry_due
            message = "a vector is issued while the entry of a partition is due"
            promised(m, platform, ~(vector_issues & entry_due), message)
        m.d.comb += [
            queue.gate.eq(is_gate(command.function)),
            queue.sums_lines.eq(~from_accumulators),
            queue.alone.eq(elements_scaled | (inverts if self._config.training else 0)),
            queue.issues.eq(vector_issues),
            self._hold_all.eq(hold_all),
            self._hold_issue.eq(hold_issue),
        ]
        if self._shared:
            m.d.comb += queue.turn.eq(self._column_turn)

    def _place_lanes(self, m: Module, command: data.View) -> ResultLanes:
        """Place the result lanes and connect their ports, except for the controls of lines and
        vectors.
        """
        lanes = m.submodules.lanes = ResultLanes(config=self._config)
        if self._shared:
            was_running = Signal()
            m.d.sync += [was_running.eq(self.running), self._column_turn.eq(self._column_turn + 1)]
            with m.If(self.running & ~was_running):
                m.d.sync += self._column_turn.eq(0)
            m.d.comb += [
                lanes.turn.eq(self._column_turn),
                lanes.made.eq(self._read_made),
                lanes.reads.eq(
                    (self.accumulators.enable & self.accumulators.ready)
                    | (self.operands.enable & self.operands.ready)
                ),
            ]
        connect(m, lanes.buffer, flipped(self.buffer))
        connect(m, lanes.activate_writing, flipped(self.activate_writing))
        connect(m, flipped(self.parameters), lanes.parameters)
        if self._config.tables:
            connect(m, flipped(self.tables), lanes.tables)
        if self._config.training:
            scale = command.scale
            m.d.comb += [
                lanes.about.eq(scale.multiplier_b),
                lanes.seed.eq(Cat(scale.multiplier_b, scale.shift_b[0], scale.multiplier_a)),
            ]
        m.d.comb += [
            lanes.accumulators.eq(self.accumulators.data),
            lanes.operands.eq(self.operands.data),
            *([lanes.before.eq(self.operands.before)] if self._config.reads_pairs else []),
        ]
        return lanes

    def _awaits_tables(self, m: Module, command: data.View, vector_issues: Value) -> Value:
        """Return whether a look-up of lines must wait, as older results still use the tables."""
        cycles_remaining = Signal(range(GATHER_SPACING + 1))
        with m.If(vector_issues & (command.function == Function.TABLE)):
            m.d.sync += cycles_remaining.eq(GATHER_SPACING)
        with m.Elif(cycles_remaining != 0):
            m.d.sync += cycles_remaining.eq(cycles_remaining - 1)
        return (cycles_remaining != 0) & command.gathers

    def _step(
        self, m: Module, interlock: Interlock, busy: Value
    ) -> tuple[data.View, Signal, Value]:
        """Return the present step, whether ResultLanes sees it, and whether it ends in this cycle.

        A step with an element for the requantisers waits while the requantisers are `busy`. A step
        also waits while the GateQueue holds it.

        Where columns take turns, a step has two cycles and may read in either of them. ResultLanes
        sees the step in both cycles. In the cycle after them, `made` shows if the read took place.
        """
        layout, turns = Step(config=self._config), self._config.columns_per_lane
        present_step = Signal(layout, reset_less=True)
        step_valid = Signal()
        enable_row = Signal()
        enable_line = Signal()
        reads_granted = Signal()
        step_taken = Signal()
        line_blocked = Signal()
        step_held = Signal()
        self._hold_all = Signal()
        self._hold_issue = Signal()
        m.d.comb += step_held.eq(
            step_valid & (self._hold_all | (self._hold_issue & present_step.final))
        )
        meets: Value = present_step.scales & busy
        reads: Value = (
            (~enable_row | self.accumulators.ready)
            & (~enable_line | (self.operands.ready & ~line_blocked))
            & ~step_held
        )
        row, line = enable_row & ~step_held, enable_line & ~line_blocked & ~step_held
        offered, done = step_taken, step_taken
        if self._shared:
            # state of a step after its first cycle
            has_read = Signal()
            was_blocked = Signal()
            m.d.sync += [has_read.eq(reads & ~self._column_turn), was_blocked.eq(meets)]
            meets = Mux(self._column_turn, was_blocked, meets)
            row, line, reads = row & ~has_read, line & ~has_read, reads | has_read
            offered, done = step_valid, step_taken & self._column_turn
            self._read_made = Signal()
            with m.If(self._column_turn):
                m.d.sync += self._read_made.eq(step_taken)
        m.d.comb += [
            line_blocked.eq(meets),
            self.accumulators.enable.eq(row),
            self.accumulators.address.eq(present_step.row),
            self.operands.enable.eq(line),
            self.operands.address.eq(present_step.read),
            *([self.operands.pair.eq(present_step.pair)] if self._config.reads_pairs else []),
            reads_granted.eq(reads),
            step_taken.eq(step_valid & reads_granted),
        ]

        # A step that cannot become the present step yet waits in `waiting_step`. So the interlock's
        # `ready` is a register. A step with a pause is followed by an invalid step.
        passed = interlock.output
        waiting_step = Signal(layout, reset_less=True)
        step_waits = Signal()
        waiting_free = Signal(init=1)  # no step waits in `waiting_step`
        next_step = Signal(layout)
        step_comes = Signal()
        pause_follows = Signal()  # a pause follows this step
        left_out_for = steps_left_out(turns)
        rest_remaining = Signal(range(max(left_out_for.values())))
        unit_rests = Signal()
        long_rest = Signal.like(rest_remaining)
        step_leaves = Signal()
        step_proceeds = Signal()
        m.d.comb += [
            passed.ready.eq(waiting_free & self._column_turn if self._shared else waiting_free),
            next_step.eq(Mux(step_waits, waiting_step, passed.payload)),
            step_comes.eq(step_waits | passed.valid),
            # No step is valid during a pause, so no memory has to grant a read.
            step_leaves.eq(reads_granted & ~unit_rests),
            step_proceeds.eq(step_comes & ~(step_valid & pause_follows)),
        ]
        with m.If(self._column_turn) if self._shared else nullcontext():
            with m.If(~step_waits):
                m.d.sync += waiting_step.eq(passed.payload)
            m.d.sync += [
                step_waits.eq(step_comes & ~(step_leaves & step_proceeds)),
                waiting_free.eq(~step_comes | (step_leaves & step_proceeds)),
            ]
            with m.If(step_leaves):
                m.d.sync += [
                    present_step.eq(next_step),
                    pause_follows.eq(next_step.pause != Pause.NONE),
                    step_valid.eq(step_proceeds),
                    enable_row.eq(step_proceeds & next_step.sums),
                    enable_line.eq(step_proceeds & next_step.reads),
                ]

            # A pause leaves out steps. The first one is the invalid step that is loaded after a
            # step with a pause. `rest_remaining` counts the further ones.
            with m.If(step_leaves):
                m.d.sync += long_rest.eq(0)
                with m.Switch(next_step.pause):
                    for pause, count in left_out_for.items():
                        with m.Case(pause):
                            m.d.sync += long_rest.eq(count - 1)
            with m.If(unit_rests):
                m.d.sync += [
                    rest_remaining.eq(rest_remaining - 1),
                    unit_rests.eq(rest_remaining != 1),
                ]
            with m.Else():
                m.d.sync += [
                    rest_remaining.eq(long_rest),
                    unit_rests.eq(step_taken & (long_rest != 0)),
                ]
        return present_step, offered, done

    def _control_line(
        self,
        m: Module,
        control: data.View,
        command: data.View,
        step: data.View,
        taken: Signal,
        elements_scaled: Signal,
    ) -> None:
        """Derive from the step the control of the buffer line that it reads."""
        is_vector = command.source == Source.VECTOR
        in_elements = step.phase == Phase.ELEMENTS
        in_operand = step.phase == Phase.OPERAND
        in_addend = step.phase == Phase.ADDEND
        in_taps = step.phase == Phase.TAPS
        multiplies = is_vector & (command.operation == Operation.MULTIPLY)
        scale = command.scale
        loads = taken & in_taps
        other = self._config.training & (command.function == OTHER)
        divides = in_operand & command.quotient if self._config.training else Const(0)
        pools = command.source == Source.POOL
        no_product = ~taken | elements_scaled
        keeps: Value = in_elements | (divides & ~step.low)
        zero_a: Value = scale.zero_a
        begins = Mux(is_vector, in_elements | multiplies, step.begins)
        if self._config.attention:
            begins = Mux(command.partition, step.begins, begins)
            no_product |= command.gathers
            # A `relative` command keeps a line in the phase TAPS, with `zero_a` added to each byte.
            # Later each lane subtracts its kept number from each element.
            keeps = Mux(command.relative, in_taps, keeps)
            zero_a = Mux(in_taps, -zero_a, zero_a)
            m.d.comb += control.element.relative.eq(command.relative & in_elements)
        with m.If(no_product):
            m.d.comb += control.element.coefficient.eq(Coefficient.ZERO)
        with m.Elif(command.source == Source.DEPTHWISE):
            m.d.comb += control.element.coefficient.eq(Coefficient.TAP)
        with m.Elif(multiplies & in_operand):
            m.d.comb += control.element.coefficient.eq(Coefficient.FIRST)
        with m.Else():
            m.d.comb += control.element.coefficient.eq(Coefficient.ONE)
        if self._config.reads_pairs:
            m.d.comb += control.pair.eq(taken & step.pair)
        m.d.comb += [
            control.load_tap.eq(loads),
            control.load_tile.eq(loads & other & (command.table == Other.TRANSPOSE)),
            control.load_seed.eq(loads & other & (command.table == Other.RANDOM)),
            control.tap.eq(step.tap),
            control.element.low.eq(taken & step.low),
            control.element.wide.eq(command.wide_operands),
            control.outside.eq(step.outside),
            control.element.addend.eq(taken & in_addend & ~step.low),
            control.element.zero.eq(
                Mux(
                    step.outside,
                    Mux(pools, Mux(command.maximum, LEAST, 0), -command.fill),
                    Mux(is_vector, Mux(in_operand, scale.zero_b, zero_a), 0),
                )
            ),
            control.element.keep.eq(taken & keeps),
            control.scaling.scaled.eq(taken & step.scales),
            control.scaling.wide.eq(command.wide_operands),
            control.shift.eq(Mux(in_operand, scale.shift_b, scale.shift_a)),
            control.multiplier.eq(Mux(in_operand, scale.multiplier_b, scale.multiplier_a)),
            control.summing.update.eq(
                taken & ~step.low & (in_operand | (in_elements & ~multiplies))
            ),
            control.summing.first.eq(begins),
            control.summing.scaled.eq(taken & step.scales),
            control.summing.halved.eq(taken & step.halves),
            control.summing.maximum.eq(command.maximum),
            control.summing.subtract.eq(in_operand & (command.operation == Operation.SUBTRACT)),
        ]

    def _control_vector(
        self, m: Module, control: data.View, command: data.View, step: data.View
    ) -> None:
        """Derive from the step the control of the vector that it issues."""
        m.d.comb += [
            control.line.eq(step.line),
            control.last.eq(step.ends),
            control.parameter.eq(step.parameter),
            control.use_sum.eq(
                (command.source == Source.VECTOR)
                | ((command.source != Source.ACCUMULATORS) & (command.function != OTHER))
            ),
        ]
