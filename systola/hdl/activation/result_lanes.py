# SPDX-License-Identifier: Apache-2.0
"""The datapath of the activation unit: lanes, parameters, taps, and the line that is written."""

from typing import Any

from amaranth.hdl import Cat, Const, EnableInserter, Module, Mux, Signal, Value, ValueLike, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from systola.arch.config import Config
from systola.arch.isa import DEPTHWISE_TAPS, DITHER_BITS, PARAMETER_PLANES, Function, Rounding
from systola.hdl.activation.activation_lane import ActivationLane, Pick, lane_members
from systola.hdl.activation.addend_places import addend_places
from systola.hdl.activation.arrived import LINE_LATENCY, arrived
from systola.hdl.activation.column_turns import ColumnTurns
from systola.hdl.activation.controls import (
    INSTRUCTIONS,
    EndControl,
    InstructionControl,
    LineControl,
    PassingControl,
    VectorControl,
)
from systola.hdl.activation.curve_stage import CurveStage
from systola.hdl.activation.exponent_registers import ShiftLayout
from systola.hdl.activation.gate_sequencer import GateSequencer
from systola.hdl.activation.issued_vectors import IssuedVectors
from systola.hdl.activation.lane_group import place_groups, place_lanes
from systola.hdl.activation.line_controls import line_controls
from systola.hdl.activation.line_writer import LineWriter
from systola.hdl.activation.other_results import OtherResults
from systola.hdl.activation.parameter_planes import ParameterPlanes
from systola.hdl.activation.partition_entries import PartitionEntries
from systola.hdl.activation.random_bytes import SEED_BITS
from systola.hdl.activation.requantiser import SHIFT_BITS, Requantiser
from systola.hdl.activation.requantiser_turns import promise_turns
from systola.hdl.activation.reservations import OPERAND_LATENCY, TAP_LATENCY
from systola.hdl.activation.spacings import ANNOUNCED, READ_SLACK
from systola.hdl.activation.vector_lane import VectorLane, lane_bits
from systola.hdl.commands import MeasureLayout, address_bits, is_gate
from systola.hdl.control.signatures import list_signature
from systola.hdl.memories.accumulators import READ_LATENCY as ROW_LATENCY
from systola.hdl.memories.sram import Sram
from systola.hdl.parts.delay_line import DelayLine, delayed
from systola.hdl.parts.delay_ring import DelayRing
from systola.hdl.parts.ored import ored
from systola.hdl.parts.replica import replicas
from systola.hdl.parts.tile_limit import TILE_LIMIT
from systola.hdl.ports import BufferWriteSignature, ParameterWriteSignature, TableWriteSignature

ANNOUNCED_STAGE = ActivationLane.PICK_STAGE - ANNOUNCED
END_STAGE = min(ANNOUNCED_STAGE, ActivationLane.GATE_STAGE)
"""Stage from which on registers hold a vector's settings, not only the number of its instruction.
"""
ROUNDING_STAGE, CLAMP_STAGE = Requantiser.ROUNDING_STAGE, Requantiser.CLAMP_STAGE - 1
"""Stages in which the lanes get settings: first rounding and offset, then the bounds of results."""
SHARERS = 8
"""Number of lanes that share a register of controls; in large machines it is an eighth of all."""


def lanes_are_instances(config: Config) -> bool:
    """Return whether the lanes are placed as instances of the module `lane_group`."""
    return config.cols > TILE_LIMIT


class ResultLanes(wiring.Component):
    """A datapath with an ActivationLane for each column, which makes result lines and never stops.

    | port               | meaning |
    |---|---|
    | `line`             | control of a buffer line for the front of the lanes |
    | `operands`         | bytes of the line, LINE_LATENCY cycles after `line` |
    | `before`           | low bytes for `pair`, with `operands`; only if the core `reads_pairs` |
    | `issue`            | a vector is issued; with it comes the last line of its sum |
    | `vector`           | control of the vector |
    | `said`             | settings of the instruction, from one cycle before its first `issue` to
                           its last `issue` |
    | `accumulators`     | sums of the row, ROW_LATENCY cycles after `issue` |
    | `parameters`       | writes into the parameter memory |
    | `tables`           | writes into the tables |
    | `buffer`           | writes of result lines |
    | `activate_writing` | reports lines ANNOUNCED cycles before their write, and retires with the
                           last line of an instruction |
    | `about`            | with the last vector of a Measure: its fields |
    | `seed`             | with the load of a seed: the seed |
    | `turn`             | number of the column that has its turn, where columns take turns |
    | `made`             | with turns: `line` and `issue` of the two cycles before are valid |
    | `reads`            | a line or a row is read in this cycle, where columns take turns |
    | `gathers`          | with `line`: its elements are looked up, with attention |
    | `entry_done`       | a partition has written its entry, with attention |

    Latency: a line is written `latency` cycles after `issue`. A sum of lines (`use_sum`) takes
    SUM_LATENCY more, or SCALED_LATENCY if its elements are `scaled`. SIGMOID and TANH, for int16
    results only, take GateSequencer.latency() more. The second line of an int16 result takes one
    more; both lines are announced together. Throughput: one line and one vector a cycle.

    With attention, a result on a curve (TABLE with int16 results) takes CURVE_LATENCY cycles more.
    With `gathers` the elements of a line are looked up in a table of int32. After the `issue` of a
    partition the next `issue` comes after `entry_done`.

    The user keeps the pauses of `spacings`, and `said.low` <= `said.high`. With function OTHER,
    `table` chooses a line of the tile loaded before, random bytes, or a Measure. A Measure alone
    may be a sum of lines, and is not written. Where two columns share a lane, `line` and `issue`
    stay for both turns. Lines are written and announced with the last turn, READ_SLACK + 1 cycles
    later.
    """

    def __init__(self, *, config: Config):
        self._config = config
        self._sharers = max(SHARERS, config.cols // 8)
        self._shared = config.columns_per_lane > 1
        self._operand_latency = OPERAND_LATENCY + READ_SLACK * self._shared
        members = {
            "line": In(LineControl(config=config)),
            "issue": In(1),
            "vector": In(VectorControl(config=config)),
            "said": In(InstructionControl(config=config)),
            "accumulators": In(32 * config.cols),
            "operands": In(8 * config.line_bytes),
            "parameters": In(ParameterWriteSignature(config=config)),
            "buffer": Out(BufferWriteSignature(config=config)),
            "activate_writing": In(list_signature("activate_writing", config)),
        }
        if config.tables:
            members["tables"] = In(TableWriteSignature(tables=config.tables))
        if config.attention:
            members |= {"gathers": In(1), "entry_done": Out(1)}
        if config.training:
            members |= {"about": In(MeasureLayout()), "seed": In(SEED_BITS)}
        if config.reads_pairs:
            members["before"] = In(8 * config.line_bytes)
        if self._shared:
            members |= {"turn": In(range(config.columns_per_lane)), "made": In(1), "reads": In(1)}
        super().__init__(members)

    @staticmethod
    def latency() -> int:
        """Return the cycles from the issue of a vector to the write of its line."""
        return ROW_LATENCY + ActivationLane.PICK_STAGE + 1

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        self._turns = ColumnTurns(self.turn if self._shared else None)
        self._inputs: dict[str, Any] = {}  # inputs that are the same for all lanes
        self._copied: dict[str, ValueLike] = {}  # inputs that lanes get through registers
        self._lends: Value = Const(0)  # the lanes lend a multiplier to the gates in the next cycle
        line_bytes = Signal(8 * config.cols, reset_less=True)
        self._line_controls(m, line_bytes)
        rows, line_read = self.accumulators, self.operands
        if self._shared:
            rows, line_read = arrived(m, self.reads, rows, line_read[: len(line_bytes)])
        m.d.sync += line_bytes.eq(line_read)
        with m.If(self._stages[self._operand_latency - 1].outside):
            m.d.sync += line_bytes.eq(0)

        vectors = m.submodules.issued = IssuedVectors(config=config)
        m.d.comb += [vectors.issue.eq(self.issue), vectors.vector.eq(self.vector)]
        if self._shared:
            m.d.comb += [vectors.first_turn.eq(self.turn == 0), vectors.made.eq(self.made)]
        planes = self._planes(m, vectors)
        self._at = self._delayed_controls(m, vectors)
        draws = self._settings(m)
        ending = self._endings(m, vectors.control)
        self._result_controls(m, ending)

        self._outputs = {
            name: [Signal(member.shape, name=f"{name}_{c}") for c in range(config.lanes)]
            for name, member in lane_members(config).items()
            if member.flow is Out
        }
        if config.attention:
            m.d.comb += self._entries.sums.eq(Cat(self._outputs["sum"]))
        line: Value = Cat(self._outputs["byte_out"])
        if self._shared:
            first_turn_bytes = Signal(len(line), reset_less=True)  # columns with the first turn
            m.d.sync += first_turn_bytes.eq(line)
            line = Cat(first_turn_bytes, line)
        if config.training:
            others = self._other(m, line_bytes, line)
            line = others.line
            self._inputs["dithers"] = self._dithers(m, others, draws)
        operands_now = self._turns.now(m, line_bytes, OPERAND_LATENCY, once=True)
        rows = self._turns.now(m, rows, ROW_LATENCY, once=True)
        lanes = self._lanes(m, operands_now, rows, planes)
        element = self._stages[self._operand_latency + VectorLane.VALUE_STAGE - 1].scaling.scaled
        promise_turns(m, platform, element, self._at[-1].output_valid, self._lends)
        place = place_groups if lanes_are_instances(config) else place_lanes
        place(m, config, lanes, self._outputs)
        m.d.sync += self.buffer.data.eq(line)
        return m

    def _delayed_controls(self, m: Module, vectors: IssuedVectors) -> dict[int, DelayLine]:
        """Return a delay line of vector controls for each stage before END_STAGE that uses them."""
        at: dict[int, DelayLine] = {}
        passing_control = Signal(PassingControl())
        m.d.comb += [
            passing_control[name].eq(vectors.control[name])
            for name in passing_control.shape().members
        ]
        last, value, valid = -ROW_LATENCY, passing_control, vectors.valid
        for stage in (-1, 0, ROUNDING_STAGE, CLAMP_STAGE, END_STAGE - 1):
            at[stage] = delayed(m, f"to_stage_{stage}", value, valid, stage - last)
            last, value, valid = stage, at[stage].output, at[stage].output_valid
        return at

    def _settings(self, m: Module) -> Value:
        """Drive the settings of the lanes; return whether a vector in ROUNDING_STAGE is
        `stochastic`.
        """
        config, rounding = self._config, self._at[ROUNDING_STAGE]
        stochastic = ("stochastic",) * config.training
        rounds = self._said(m, rounding.output, "rounding", "zero_point", "accumulate", *stochastic)
        bounds = self._said(m, self._at[CLAMP_STAGE].output, "low", "high")
        zero_point = Signal(signed(8), reset_less=True)
        accumulate = Signal(reset_less=True)
        m.d.sync += [zero_point.eq(rounds.zero_point), accumulate.eq(rounds.accumulate)]
        self._copied |= {
            "use_sum": self._at[-1].output.use_sum,
            "zero_point": zero_point,
            "low": bounds.low[: lane_bits(config)],
            "high": bounds.high[: lane_bits(config)],
        }
        # The requantisers may scale an element in a cycle without a vector, which needs DOUBLE.
        self._inputs["rounding"] = Mux(rounding.output_valid, rounds.rounding, Rounding.DOUBLE)
        if config.reads_pairs:
            adds_up = rounding.output_valid & rounding.output.use_sum
            self._copied["waits_at"] = addend_places(m, adds_up & rounds.accumulate)
        if config.wide:
            self._copied["accumulate"] = accumulate
        return rounding.output_valid & rounds.stochastic if config.training else Const(0)

    def _endings(self, m: Module, control: data.View) -> data.View:
        """Delay the control of each vector to the last stages of the lanes, and choose its table.

        Returns the control of the vector just before END_STAGE. From END_STAGE on, registers hold
        the vector's own settings.
        """
        config, before = self._config, self._at[END_STAGE - 1]
        ending_control = Signal(EndControl(config=config))
        said = self._said(m, before.output, "wide", "function", "table")
        m.submodules.lines = lines = DelayRing(
            width=address_bits(config), cycles=ROW_LATENCY + END_STAGE - 1
        )
        m.d.comb += [
            lines.input.eq(control.line),
            ending_control.line.eq(lines.output),
            ending_control.last.eq(before.output.last),
        ]
        m.d.comb += [ending_control[name].eq(said[name]) for name in ("wide", "function", "table")]
        valid: Value = before.output_valid
        curves = CurveStage(config=config) if config.attention else None
        if curves:
            m.submodules.curves = curves
            m.d.comb += [curves.control.eq(ending_control), curves.valid.eq(valid)]
            ending_control, valid = curves.passed, curves.passed_valid
        value = ending_control
        for stage in range(END_STAGE, ActivationLane.PICK_STAGE + 1):
            self._at[stage] = delayed(m, f"to_stage_{stage}", value, valid, 1)
            value, valid = self._at[stage].output, self._at[stage].output_valid
        if config.tables:
            self._choose_table(m, curves)
        return ending_control

    def _choose_table(self, m: Module, curves: CurveStage | None) -> None:
        """Drive the table ports of the lanes: the number of the table, and the writes."""
        table, write = self._at[ActivationLane.TABLE_STAGE].output.table, self.tables
        if curves:
            connect(m, flipped(self.tables), curves.bytes)
            table, write = curves.table, curves.row
            self._copied |= {"on_curve": curves.on_curve, "gathers": curves.gathers_now}
            m.d.comb += curves.gathers.eq(self.gathers)
            m.d.comb += curves.gathered_table.eq(self.said.table)
        self._inputs |= {
            "table": table,
            "write__enable": write.enable,
            "write__address": write.address,
            "write__data": write.data,
        }

    def _result_controls(self, m: Module, ending: data.View) -> None:
        """Drive the choice of each result byte, and the writes and announcements of lines."""
        config = self._config
        # the first line after the result lines of the vector
        next_line = Signal(address_bits(config), reset_less=True)
        m.d.sync += next_line.eq(ending.line + 1 + ending.wide)
        if config.wide:
            gates = GateSequencer(training=config.training, turns=config.columns_per_lane)
            if self._shared:  # A step takes one cycle for each turn.
                last_turn = self._turns.at(ROW_LATENCY + END_STAGE - 1)
                m.submodules.gate_sequencer = EnableInserter(last_turn)(gates)
            else:
                m.submodules.gate_sequencer = gates
            self._lends = gates.following.factors.multiply
            starts = self._at[END_STAGE - 1].output_valid & is_gate(ending.function)
            m.d.comb += [
                gates.start.eq(starts),
                gates.tanh.eq(ending.function == Function.TANH),
                gates.exp.eq(ending.function == Function.EXP if config.training else 0),
                gates.integer_bits.eq(ending.table),
            ]
            self._copied |= {
                "gate": gates.following,
                "pick": self._writer(m, next_line, starts, gates.finishes).pick,
            }
        else:
            pick = ActivationLane.PICK_STAGE
            function = self._at[pick - 1].output.function
            self._copied["pick"] = Mux(function == Function.TABLE, Pick.TABLE, Pick.PLAIN)
            announced, end = self._at[ANNOUNCED_STAGE], self._at[pick]
            announces = self._turns.last(announced.output_valid, ROW_LATENCY + ANNOUNCED_STAGE)
            m.d.sync += [
                self.buffer.enable.eq(self._turns.last(end.output_valid, ROW_LATENCY + pick)),
                self.buffer.address.eq(end.output.line),
                self.activate_writing.advance.eq(announces),
                self.activate_writing.advance_to.eq(next_line),
                self.activate_writing.retire.eq(announces & announced.output.last),
            ]

    def _lanes(
        self, m: Module, operands: Value, rows: Value, planes: list[Value]
    ) -> list[dict[str, Any]]:
        """Return the input values of each lane, by port name."""
        config, inputs = self._config, self._inputs
        sharing = {"users": config.lanes, "sharers": self._sharers}
        copies = {name: replicas(m, name, value, **sharing) for name, value in self._copied.items()}
        dithers = inputs.pop("dithers", None)
        if config.depthwise:
            inputs["tap"] = self._turns.now(m, inputs["tap"], OPERAND_LATENCY)
        # The distance of a shift right waits in a memory until the product to be shifted is there.
        m.submodules.shifts = waiting = DelayRing(
            width=SHIFT_BITS * config.lanes, cycles=Requantiser.SHIFT_STAGE
        )
        lanes: list[dict[str, Any]] = []
        for c in range(config.lanes):
            lane = inputs | {name: copy[c] for name, copy in copies.items()}
            lane |= {
                "accumulator": rows.word_select(c, 32),
                "byte": operands.word_select(c, 8),
                "bias": Cat(planes[i].word_select(c, 8) for i in range(4)),
                "multiplier": Cat(planes[4 + i].word_select(c, 8) for i in range(4))[:31],
                "shift_right": planes[8].word_select(c, 8)[:SHIFT_BITS],
                "shift_left": planes[8].word_select(c, 8)[SHIFT_BITS:],
            }
            if config.reads_pairs:
                lane["before"] = self.before.word_select(c, 8)
            if config.training:
                lane["dither"] = dithers.word_select(c, DITHER_BITS)
                shifts = data.View(ShiftLayout(), lane.pop("shifts"))
                for name, there in (("shift_right", shifts.right), ("shift_left", shifts.left)):
                    lane[name] = Mux(shifts.replaces, there, lane[name])
            shift = lane.pop("shift")
            m.d.comb += waiting.input.word_select(c, SHIFT_BITS).eq(
                Mux(shift[0], shift[1:], lane["shift_right"])
            )
            lane["shift_right"] = waiting.output.word_select(c, SHIFT_BITS)
            if config.depthwise:
                lane["tap"] = inputs["tap"].word_select(c, 8)
            lanes.append(lane)
        return lanes

    def _said(self, m: Module, vector: data.View, *names: str) -> data.View:
        """Return the settings `names` that the instruction of a vector has.

        A small memory of their own keeps these settings, at the number of the instruction.
        """
        members = self.said.shape().members
        layout = data.StructLayout({name: members[name] for name in names})
        memory = Memory(shape=layout, depth=INSTRUCTIONS, init=[])
        m.submodules["said_" + "_".join(names)] = memory
        write = memory.write_port()
        read = memory.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(1),
            write.addr.eq(self.vector.number),
            read.addr.eq(vector.number),
            *(write.data[name].eq(self.said[name]) for name in names),
        ]
        return read.data

    def _line_controls(self, m: Module, operands: Signal) -> None:
        """Drive the inputs of the lanes for a buffer line, and place the memory of the taps."""
        self._stages = stages = [self.line]
        layout = LineControl(config=self._config)
        for stage in range(self._operand_latency + VectorLane.SCALED_STAGE):
            stages.append(Signal(layout, name=f"line_{stage}", reset_less=True))
            m.d.sync += stages[-1].eq(stages[-2])
            if self._shared and stage == READ_SLACK:
                with m.If(~self.made):
                    m.d.sync += stages[-1].eq(0)
        lanes = stages[self._operand_latency :]
        if self._config.reads_pairs:
            self._copied["pair"] = stages[LINE_LATENCY - 1].pair
        self._copied |= line_controls(m, stages[self._operand_latency - 1], lanes)
        if self._config.depthwise:
            width = 8 * self._config.cols
            m.submodules.taps = taps = Sram(width=width, depth=DEPTHWISE_TAPS, output_register=True)
            early = stages[self._operand_latency - TAP_LATENCY]
            m.d.comb += [
                taps.write_enable.eq(self._turns.first(lanes[0].load_tap, OPERAND_LATENCY)),
                taps.write_address.eq(lanes[0].tap),
                taps.write_data.eq(operands),
                taps.read_enable.eq(1),
                taps.read_address.eq(early.tap),
            ]
            self._inputs["tap"] = taps.read_data

    def _planes(self, m: Module, vectors: IssuedVectors) -> list[Value]:
        """Return the planes of the parameter entry of a vector, each in the cycle that needs it."""
        parameters = m.submodules.parameters = ParameterPlanes(config=self._config)
        if self._config.attention:
            self._entries = m.submodules.entries = PartitionEntries(config=self._config)
            connect(m, flipped(self.parameters), self._entries.loads)
            connect(m, self._entries.write, parameters.write)
            m.d.comb += [
                self._entries.comes.eq(vectors.partition),
                self._entries.entry.eq(parameters.entry),
                self.entry_done.eq(self._entries.done),
            ]
        else:
            connect(m, flipped(self.parameters), parameters.write)
        m.d.comb += parameters.entry.eq(vectors.control.parameter)
        return [
            self._turns.now(m, parameters.planes[plane], parameters.latency(plane))
            for plane in range(PARAMETER_PLANES)
        ]

    def _writer(self, m: Module, written: Signal, starts: Value, finishes: Value) -> LineWriter:
        """Place the LineWriter, which handles results of two lines and results from the gates."""
        pick, turns = ActivationLane.PICK_STAGE, self._config.columns_per_lane
        writer = m.submodules.writer = LineWriter(config=self._config)
        ends = self._at[pick - 1].output
        looks_up = ends.function == Function.TABLE
        if self._config.attention:
            looks_up &= ~ends.wide  # a number on a curve has already replaced the result
        for vector, stage in (
            (writer.at_gate, ActivationLane.GATE_STAGE),
            (writer.announced, ANNOUNCED_STAGE),
            (writer.announced_wide, ANNOUNCED_STAGE + turns),
            (writer.end, pick),
        ):
            line = self._at[stage]
            m.d.comb += [vector.valid.eq(line.output_valid), vector.control.eq(line.output)]
        m.d.comb += [
            writer.starts.eq(starts),
            writer.finishes.eq(finishes),
            writer.next_looks_up.eq(looks_up),
            writer.written.eq(written),
            *([writer.entry_done.eq(self.entry_done)] if self._config.attention else []),
            self.buffer.enable.eq(writer.enable),
            self.buffer.address.eq(writer.address),
        ]
        connect(m, writer.activate_writing, flipped(self.activate_writing))
        if self._shared:
            m.d.comb += writer.turn.eq(self._turns.at(ROW_LATENCY + pick))
        return writer

    def _other(self, m: Module, operands: Signal, plain: Value) -> OtherResults:
        """Place the units of training, which may replace the line that is written."""
        others = m.submodules.others = OtherResults(config=self._config)
        valued, ending = self._at[0], self._at[ActivationLane.PICK_STAGE - 1]
        measured = self._said(m, valued.output, "function", "table")
        ends = self._turns.last(ending.output_valid, ROW_LATENCY + ActivationLane.PICK_STAGE - 1)
        for port, vector, said, valid, stage in (
            (others.issued, self.vector, self.said, self.issue, 0),
            (others.valued, valued.output, measured, valued.output_valid, ROW_LATENCY),
            (others.ending, ending.output, ending.output, ends, 0),
        ):
            m.d.comb += [
                port.valid.eq(valid),
                port.last.eq(self._turns.last(vector.last, stage)),
                port.function.eq(said.function),
                port.table.eq(said.table),
            ]
        m.d.comb += others.coming.exponent.eq(
            self._said(m, self._at[-1].output, "exponent").exponent
        )
        loads = self._stages[self._operand_latency]
        m.d.comb += [
            others.about.eq(self.about),
            others.magnitude.eq(ored(self._outputs["magnitude"])),
            others.load_tile.eq(self._turns.first(loads.load_tile, OPERAND_LATENCY)),
            others.bytes.eq(operands),
            others.load_seed.eq(self._turns.first(loads.load_seed, OPERAND_LATENCY)),
            others.seed.eq(self.seed),
            others.plain.eq(plain),
        ]
        self._copied["shifts"] = others.shifts
        return others

    def _dithers(self, m: Module, others: OtherResults, draws: Value) -> Signal:
        """Return the number, random or one half, that each lane adds after its ROUNDING_STAGE."""
        stage = ROW_LATENCY + Requantiser.ROUNDING_STAGE
        now = self._turns.now(m, others.dither, stage)
        dithers = Signal(len(now), reset_less=True)
        half = Const(1 << DITHER_BITS - 1, DITHER_BITS).replicate(self._config.lanes)
        m.d.comb += others.draw.eq(self._turns.last(draws, stage))
        m.d.sync += dithers.eq(Mux(draws, now, half))
        return dithers
