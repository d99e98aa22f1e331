# SPDX-License-Identifier: Apache-2.0
"""The datapath of the activation unit: lanes, parameters, taps, and the line that is written."""

from typing import Any

from amaranth.hdl import (
    Cat,
    Const,
    EnableInserter,
    Module,
    Mux,
    Signal,
    Value,
    ValueLike,
    signed,
)
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from systola.arch.config import Config
from systola.arch.isa import (
    DEPTHWISE_TAPS,
    DITHER_BITS,
    PARAMETER_PLANES,
    Function,
    Rounding,
)
from systola.hdl.activation.activation_lane import ActivationLane, Pick, lane_members
from systola.hdl.activation.addend_places import addend_places
from systola.hdl.activation.arrived import LINE_LATENCY, arrived
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
from systola.hdl.activation.line_writer import LineWriter
from systola.hdl.activation.other_results import OtherResults
from systola.hdl.activation.parameter_planes import ParameterPlanes
from systola.hdl.activation.random_bytes import SEED_BITS
from systola.hdl.activation.requantiser import SHIFT_BITS, Requantiser
from systola.hdl.activation.spacings import (
    ANNOUNCED,
    OPERAND_LATENCY,
    READ_SLACK,
    TAP_LATENCY,
)
from systola.hdl.activation.vector_lane import SumControl, VectorLane, lane_bits
from systola.hdl.commands import MeasureLayout, address_bits, is_gate
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
"""The first one for which more than the number of a vector's instruction waits in registers."""
SHARERS = 8
"""Lanes that share the registers of their controls, or an eighth of all."""


def lanes_are_instances(config: Config) -> bool:
    """Whether the lanes are instances of the module `lane_group`, like the MXU's tiles."""
    return config.cols > TILE_LIMIT


class ResultLanes(wiring.Component):
    """Takes a buffer line for the front of the lanes with `line`, and makes a result of each vector
    with `issue`, `vector`, and what its instruction `said`, which begins a cycle before and stays
    until the last issue. An ActivationLane for each column; the bytes of `operands` come
    LINE_LATENCY cycles after `line` (with `pair` the low bytes in `before`), the row of
    `accumulators` ROW_LATENCY cycles after `issue`.

    Where two columns share a lane, `line` and `issue` with all that belongs to them stay for two
    cycles, in which `turn` is 0 and 1, and count only if `made` holds in the two cycles behind.
    Bytes or row come after the one of them with `reads`. Therefore all is READ_SLACK cycles later,
    and a cycle more, as what is written and told comes with the last turn.

    The line of a vector is written `latency` cycles after its issue, SUM_LATENCY cycles later if it
    is the sum of lines (`use_sum`), the last of which comes with it, SCALED_LATENCY cycles if their
    elements are `scaled`, and GateSequencer.latency() later with SIGMOID or TANH, which are for
    int16 results only; the second line of an int16 result a cycle later. Nothing stops a vector.
    Of vectors with SIGMOID or TANH each comes `gate_spacing` after the one before, or a multiple of
    `slots` later, if both are sums of lines that are not scaled, or neither is. All else, and 1/x,
    comes `gates_alone` after them, and LONG_SPACING more behind a sum of lines. Between other
    vectors the caller leaves a cycle behind an int16 result, ADDEND_SPACING behind a sum that is
    added to what is there (with training if it has one step and its addend), and DRAIN_SPACING
    between a sum and an accumulator row. Where elements are scaled it is LONG_SPACING in both
    cases, and no element is to be scaled SLOT_DISTANCE cycles after the issue; TAP_SPACING between
    a tap and its use. `said.low` <= `said.high`. Curves (TABLE with int16 results) are
    CURVE_LATENCY later: after the last one comes LONG_SPACING, or `gate_pause` if elements are
    scaled.
    With `gathers` the elements of a line are looked up in a table of int32: GATHER_SPACING after
    the last vector with TABLE.
    With function OTHER, which `table` tells apart: a line of the tile that was loaded before, or of
    random bytes, or no line, but a Measure of the vector, and what `about` says with the last one;
    none of these is a sum of lines but the last. LONG_SPACING cycles lie behind the last one of a
    tile, and of an instruction, and behind the load of a `seed`; also behind the last `stochastic`
    one, whose rounding takes from the generators.
    `advance_write`, `advance_write_to`: lines below are written in ANNOUNCED cycles; `write_done`:
    all are. Both lines of an int16 result are announced together.
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
            "advance_write": Out(1),
            "advance_write_to": Out(address_bits(config)),
            "write_done": Out(1),
        }
        if config.tables:
            members["tables"] = In(TableWriteSignature(tables=config.tables))
        if config.attention:
            members["gathers"] = In(1)
        if config.training:
            members |= {"about": In(MeasureLayout()), "seed": In(SEED_BITS)}
        if config.reads_pairs:
            members["before"] = In(8 * config.line_bytes)
        if self._shared:
            members |= {"turn": In(range(config.columns_per_lane)), "made": In(1), "reads": In(1)}
        super().__init__(members)

    @staticmethod
    def latency() -> int:
        """Cycles from the issue of a vector to the write of its line."""
        return ROW_LATENCY + ActivationLane.PICK_STAGE + 1

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        operands = Signal(8 * config.cols, reset_less=True)
        inputs, copied = self._line_controls(m, operands)
        rows, line_read = self.accumulators, self.operands
        if self._shared:
            rows, line_read = arrived(m, self.reads, rows, line_read[: len(operands)])
        m.d.sync += operands.eq(line_read)
        with m.If(self._stages[self._operand_latency - 1].outside):
            m.d.sync += operands.eq(0)

        vectors = m.submodules.issued = IssuedVectors(config=config)
        control, issued = vectors.control, vectors.valid
        m.d.comb += [vectors.issue.eq(self.issue), vectors.vector.eq(self.vector)]
        if self._shared:
            m.d.comb += [vectors.first_turn.eq(self.turn == 0), vectors.made.eq(self.made)]
        planes = self._planes(m, control)

        # The control of each vector, delayed to where the lanes need it.
        at: dict[int, DelayLine] = {}
        passing = Signal(PassingControl())
        m.d.comb += [passing[name].eq(control[name]) for name in passing.shape().members]
        last, value, valid = -ROW_LATENCY, passing, issued
        rounding, clamp = Requantiser.ROUNDING_STAGE, Requantiser.CLAMP_STAGE - 1
        for stage in (-1, 0, rounding, clamp, END_STAGE - 1):
            at[stage] = delayed(m, f"to_stage_{stage}", value, valid, stage - last)
            last, value, valid = stage, at[stage].output, at[stage].output_valid
        stochastic = ("stochastic",) * config.training
        rounds = self._said(
            m, at[rounding].output, "rounding", "zero_point", "accumulate", *stochastic
        )
        bounds = self._said(m, at[clamp].output, "low", "high")
        ending = Signal(EndControl(config=config))
        said = self._said(m, value, "wide", "function", "table")
        m.submodules.lines = lines = DelayRing(
            width=address_bits(config), cycles=ROW_LATENCY + END_STAGE - 1
        )
        m.d.comb += [
            lines.input.eq(control.line),
            ending.line.eq(lines.output),
            ending.last.eq(value.last),
        ]
        m.d.comb += [ending[name].eq(said[name]) for name in ("wide", "function", "table")]
        curves = CurveStage(config=config) if config.attention else None
        if curves:
            m.submodules.curves = curves
            m.d.comb += [curves.control.eq(ending), curves.valid.eq(valid)]
            ending, valid = curves.passed, curves.passed_valid
        value = ending
        for stage in range(END_STAGE, ActivationLane.PICK_STAGE + 1):
            at[stage] = delayed(m, f"to_stage_{stage}", value, valid, 1)
            value, valid = at[stage].output, at[stage].output_valid
        zero_point, accumulate = Signal(signed(8), reset_less=True), Signal(reset_less=True)
        m.d.sync += [zero_point.eq(rounds.zero_point), accumulate.eq(rounds.accumulate)]
        copied |= {
            "use_sum": at[-1].output.use_sum,
            "zero_point": zero_point,
            "low": bounds.low[: lane_bits(config)],
            "high": bounds.high[: lane_bits(config)],
        }
        # Without a vector the requantisers scale an element, or nothing.
        inputs["rounding"] = Mux(at[rounding].output_valid, rounds.rounding, Rounding.DOUBLE)
        if config.tables:
            table, write = at[ActivationLane.TABLE_STAGE].output.table, self.tables
            if curves:
                connect(m, flipped(self.tables), curves.bytes)
                table, write = curves.table, curves.row
                copied |= {"on_curve": curves.on_curve, "gathers": curves.gathers_now}
                m.d.comb += curves.gathers.eq(self.gathers)
                m.d.comb += curves.gathered_table.eq(self.said.table)
            inputs |= {
                "table": table,
                "write__enable": write.enable,
                "write__address": write.address,
                "write__data": write.data,
            }
        # How far the lines are written with this vector.
        written = Signal(address_bits(config), reset_less=True)
        m.d.sync += written.eq(ending.line + 1 + ending.wide)
        if config.wide:
            gates = GateSequencer(training=config.training, turns=config.columns_per_lane)
            if self._shared:  # A step takes a cycle a turn.
                last_turn = self._turn_at(ROW_LATENCY + END_STAGE - 1)
                m.submodules.gate_sequencer = EnableInserter(last_turn)(gates)
            else:
                m.submodules.gate_sequencer = gates
            starts = at[END_STAGE - 1].output_valid & is_gate(ending.function)
            m.d.comb += [
                gates.start.eq(starts),
                gates.tanh.eq(ending.function == Function.TANH),
                gates.exp.eq(ending.function == Function.EXP if config.training else 0),
                gates.integer_bits.eq(ending.table),
            ]
            if config.reads_pairs:
                adds_up = at[rounding].output_valid & at[rounding].output.use_sum
                copied["waits_at"] = addend_places(m, adds_up & rounds.accumulate)
            copied |= {
                "accumulate": accumulate,
                "gate": gates.following,
                "pick": self._writer(m, at, written, starts, gates.finishes).pick,
            }
        else:
            function = at[ActivationLane.PICK_STAGE - 1].output.function
            copied["pick"] = Mux(function == Function.TABLE, Pick.TABLE, Pick.PLAIN)
            announced = at[ANNOUNCED_STAGE]
            announces = self._in_last_turn(announced.output_valid, ROW_LATENCY + ANNOUNCED_STAGE)
            complete = self._in_last_turn(valid, ROW_LATENCY + ActivationLane.PICK_STAGE)
            m.d.sync += [
                self.buffer.enable.eq(complete),
                self.buffer.address.eq(value.line),
                self.advance_write.eq(announces),
                self.advance_write_to.eq(written),
                self.write_done.eq(announces & announced.output.last),
            ]

        self._outputs = {
            name: [Signal(member.shape, name=f"{name}_{c}") for c in range(config.lanes)]
            for name, member in lane_members(config).items()
            if member.flow is Out
        }
        line: Value = Cat(self._outputs["byte_out"])
        if self._shared:
            earlier = Signal(len(line), reset_less=True)  # the bytes of the first turn
            m.d.sync += earlier.eq(line)
            line = Cat(earlier, line)
        dithers: Value = Const(0)
        if config.training:
            others = self._other(m, at, operands, line, copied)
            line = others.line
            dithers = self._dithers(m, others, at[rounding].output_valid & rounds.stochastic)
        sharing = {"users": config.lanes, "sharers": self._sharers}
        copies = {name: replicas(m, name, value, **sharing) for name, value in copied.items()}
        operands_now = self._now(m, operands, OPERAND_LATENCY, once=True)
        rows = self._now(m, rows, ROW_LATENCY, once=True)
        if config.depthwise:
            inputs["tap"] = self._now(m, inputs["tap"], OPERAND_LATENCY)
        # The shifts right come before the products, and wait for them in a memory.
        m.submodules.shifts = waiting = DelayRing(
            width=SHIFT_BITS * config.lanes, cycles=Requantiser.SHIFT_STAGE
        )
        lanes: list[dict[str, Any]] = []
        for c in range(config.lanes):
            lane = inputs | {name: copy[c] for name, copy in copies.items()}
            lane |= {
                "accumulator": rows.word_select(c, 32),
                "byte": operands_now.word_select(c, 8),
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
        place = place_groups if lanes_are_instances(config) else place_lanes
        place(m, config, lanes, self._outputs)
        m.d.sync += self.buffer.data.eq(line)
        return m

    def _turn_at(self, stage: int) -> Value:
        """The turn at a stage, so many cycles after the read, to which READ_SLACK adds nothing."""
        return (self.turn - stage)[0]

    def _in_first_turn(self, holds: Value, stage: int) -> Value:
        """What `holds` in all turns as what holds once, when its line is there as a whole."""
        return holds & ~self._turn_at(stage) if self._shared else holds

    def _in_last_turn(self, holds: Value, stage: int) -> Value:
        """What `holds` in all turns as what holds once, with the last of them."""
        return holds & self._turn_at(stage) if self._shared else holds

    def _now(self, m: Module, columns: Value, stage: int, *, once: bool = False) -> Value:
        """Of a word for each column the words of those whose turn it is `stage` cycles after a
        read; they are there for all turns, or `once`."""
        if not self._shared:
            return columns
        first, later = columns[: len(columns) // 2], columns[len(columns) // 2 :]
        if once:
            kept = Signal(len(later), reset_less=True)
            m.d.sync += kept.eq(later)
            later = kept
        return Mux(self._turn_at(stage), later, first)

    def _said(self, m: Module, vector: data.View, *names: str) -> data.View:
        """What the instruction of a vector says: some of its fields, from a memory for these."""
        members = self.said.shape().members
        layout = data.StructLayout({name: members[name] for name in names})
        memory = Memory(shape=layout, depth=INSTRUCTIONS, init=[])
        m.submodules["said_" + "_".join(names)] = memory
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(1),
            write.addr.eq(self.vector.number),
            read.addr.eq(vector.number),
            *(write.data[name].eq(self.said[name]) for name in names),
        ]
        return read.data

    def _line_controls(
        self, m: Module, operands: Signal
    ) -> tuple[dict[str, Any], dict[str, ValueLike]]:
        """The controls of a line, delayed to where the fronts of the lanes need them, or one cycle
        less for those that get copies; the taps."""
        self._stages = stages = [self.line]
        layout = LineControl(config=self._config)
        for stage in range(self._operand_latency + VectorLane.SCALED_STAGE):
            stages.append(Signal(layout, name=f"line_{stage}", reset_less=True))
            m.d.sync += stages[-1].eq(stages[-2])
            if self._shared and stage == READ_SLACK:
                with m.If(~self.made):
                    m.d.sync += stages[-1].eq(0)
        lanes = stages[self._operand_latency :]
        summing = Signal(SumControl())
        soon = lanes[VectorLane.SUM_STAGE - 1].summing
        late = lanes[VectorLane.SCALED_STAGE - 1].summing
        m.d.comb += [
            summing.eq(soon),
            summing.update.eq(soon.update & ~soon.scaled & ~soon.halved),
        ]
        with m.If(late.scaled | late.halved):
            m.d.comb += summing.eq(late)
        scaled = lanes[VectorLane.VALUE_STAGE - 1]
        multiplied = lanes[VectorLane.VALUE_STAGE + Requantiser.MULTIPLIER_STAGE - 1]
        found: dict[str, Any] = {}
        paired = {"pair": stages[LINE_LATENCY - 1].pair} if self._config.reads_pairs else {}
        copied: dict[str, ValueLike] = {
            **paired,
            "element": stages[self._operand_latency - 1].element,
            "scaling": scaled.scaling,
            "shift": Cat(scaled.scaling.scaled, scaled.shift),
            "scale": Cat(multiplied.scaling.scaled, multiplied.multiplier),
            "summing": summing,
        }
        if self._config.depthwise:
            width = 8 * self._config.cols
            m.submodules.taps = taps = Sram(width=width, depth=DEPTHWISE_TAPS, output_register=True)
            early = stages[self._operand_latency - TAP_LATENCY]
            m.d.comb += [
                taps.write_enable.eq(self._in_first_turn(lanes[0].load_tap, OPERAND_LATENCY)),
                taps.write_address.eq(lanes[0].tap),
                taps.write_data.eq(operands),
                taps.read_enable.eq(1),
                taps.read_address.eq(early.tap),
            ]
            found["tap"] = taps.read_data
        return found, copied

    def _planes(self, m: Module, control: data.View) -> list[Value]:
        """The bytes of the parameter entry, as the value comes; those of the multiplier later."""
        parameters = m.submodules.parameters = ParameterPlanes(config=self._config)
        connect(m, flipped(self.parameters), parameters.write)
        m.d.comb += parameters.entry.eq(control.parameter)
        return [
            self._now(m, parameters.planes[plane], parameters.latency(plane))
            for plane in range(PARAMETER_PLANES)
        ]

    def _writer(
        self, m: Module, at: dict[int, DelayLine], written: Signal, starts: Value, finishes: Value
    ) -> LineWriter:
        """Writes the lines, where results may have two, or come from the gates."""
        pick, turns = ActivationLane.PICK_STAGE, self._config.columns_per_lane
        writer = m.submodules.writer = LineWriter(config=self._config)
        ends = at[pick - 1].output
        looks_up = ends.function == Function.TABLE
        if self._config.attention:
            looks_up &= ~ends.wide  # the number on a curve is there as it is
        for vector, stage in (
            (writer.at_gate, ActivationLane.GATE_STAGE),
            (writer.announced, ANNOUNCED_STAGE),
            (writer.announced_wide, ANNOUNCED_STAGE + turns),
            (writer.end, pick),
        ):
            line = at[stage]
            m.d.comb += [vector.valid.eq(line.output_valid), vector.control.eq(line.output)]
        m.d.comb += [
            writer.starts.eq(starts),
            writer.finishes.eq(finishes),
            writer.next_looks_up.eq(looks_up),
            writer.written.eq(written),
            self.buffer.enable.eq(writer.enable),
            self.buffer.address.eq(writer.address),
            self.advance_write.eq(writer.advance_write),
            self.advance_write_to.eq(writer.advance_write_to),
            self.write_done.eq(writer.write_done),
        ]
        if self._shared:
            m.d.comb += writer.turn.eq(self._turn_at(ROW_LATENCY + pick))
        return writer

    def _other(
        self,
        m: Module,
        at: dict[int, DelayLine],
        operands: Signal,
        plain: Value,
        copied: dict[str, ValueLike],
    ) -> OtherResults:
        """Where there is training: what has the line that is written. Adds to what is `copied`."""
        others = m.submodules.others = OtherResults(config=self._config)
        valued, ending = at[0], at[ActivationLane.PICK_STAGE - 1]
        measured = self._said(m, valued.output, "function", "table")
        ends = self._in_last_turn(ending.output_valid, ROW_LATENCY + ActivationLane.PICK_STAGE - 1)
        for port, vector, said, valid, stage in (
            (others.issued, self.vector, self.said, self.issue, 0),
            (others.valued, valued.output, measured, valued.output_valid, ROW_LATENCY),
            (others.ending, ending.output, ending.output, ends, 0),
        ):
            m.d.comb += [
                port.valid.eq(valid),
                port.last.eq(self._in_last_turn(vector.last, stage)),
                port.function.eq(said.function),
                port.table.eq(said.table),
            ]
        m.d.comb += others.coming.exponent.eq(self._said(m, at[-1].output, "exponent").exponent)
        loads = self._stages[self._operand_latency]
        m.d.comb += [
            others.about.eq(self.about),
            others.magnitude.eq(ored(self._outputs["magnitude"])),
            others.load_tile.eq(self._in_first_turn(loads.load_tile, OPERAND_LATENCY)),
            others.bytes.eq(operands),
            others.load_seed.eq(self._in_first_turn(loads.load_seed, OPERAND_LATENCY)),
            others.seed.eq(self.seed),
            others.plain.eq(plain),
        ]
        copied["shifts"] = others.shifts
        return others

    def _dithers(self, m: Module, others: OtherResults, draws: Value) -> Signal:
        """What each lane adds in the cycle behind its ROUNDING_STAGE."""
        stage = ROW_LATENCY + Requantiser.ROUNDING_STAGE
        now = self._now(m, others.dither, stage)
        dithers = Signal(len(now), reset_less=True)
        half = Const(1 << DITHER_BITS - 1, DITHER_BITS).replicate(self._config.lanes)
        m.d.comb += others.draw.eq(self._in_last_turn(draws, stage))
        m.d.sync += dithers.eq(Mux(draws, now, half))
        return dithers
