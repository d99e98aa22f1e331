# SPDX-License-Identifier: Apache-2.0
"""The datapath of the activation unit: lanes, parameters, taps, and the line that is written."""

from typing import Any

from amaranth.hdl import (
    Cat,
    Const,
    Module,
    Mux,
    Signal,
    Value,
    ValueLike,
    signed,
)
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from systola.arch.config import Config
from systola.arch.isa import DEPTHWISE_TAPS, PARAMETER_PLANES, Function, Rounding
from systola.hdl.activation.activation_lane import ActivationLane, Pick, lane_members
from systola.hdl.activation.controls import (
    INSTRUCTIONS,
    EndControl,
    InstructionControl,
    LineControl,
    PassingControl,
    VectorControl,
)
from systola.hdl.activation.exponent_registers import ShiftLayout
from systola.hdl.activation.gate_sequencer import GateSequencer
from systola.hdl.activation.lane_group import place_groups
from systola.hdl.activation.other_results import OtherResults
from systola.hdl.activation.random_bytes import SEED_BITS
from systola.hdl.activation.requantiser import Requantiser
from systola.hdl.activation.spacings import (
    ANNOUNCED,
    OPERAND_LATENCY,
    SCALED_LATENCY,
    SUM_LATENCY,
    TAP_LATENCY,
)
from systola.hdl.activation.vector_lane import SumControl, VectorLane, lane_bits
from systola.hdl.commands import OTHER, MeasureLayout, address_bits, is_gate, measures
from systola.hdl.memories.accumulators import READ_LATENCY as ROW_LATENCY
from systola.hdl.memories.sram import Sram
from systola.hdl.parts.delay_line import DelayLine
from systola.hdl.parts.delay_ring import DelayRing
from systola.hdl.parts.ored import ored
from systola.hdl.parts.replica import Replica
from systola.hdl.parts.tile_limit import TILE_LIMIT
from systola.hdl.ports import BufferWriteSignature, ParameterWriteSignature, TableWriteSignature

ENTRY_LATENCY = 2
"""Cycles from the number of a parameter entry to its bytes."""
ANNOUNCED_STAGE = ActivationLane.PICK_STAGE - ANNOUNCED
END_STAGE = min(ANNOUNCED_STAGE, ActivationLane.GATE_STAGE)
"""The first one for which more than the number of a vector's instruction waits in registers."""
MULTIPLIER_PLANES = range(4, 8)
SHARERS = 8
"""Lanes that share the registers of their controls, or an eighth of all."""


def lanes_are_instances(config: Config) -> bool:
    """Whether the lanes are instances of the module `lane_group`, like the MXU's tiles."""
    return config.cols > TILE_LIMIT


class ResultLanes(wiring.Component):
    """Takes a buffer line for the front of the lanes with `line`, and makes a result of each vector
    with `issue`, `vector`, and what its instruction `said`, which begins a cycle before and stays
    until the last issue. An ActivationLane for each column; the bytes of `operands` come
    LINE_LATENCY cycles after `line`, the row of `accumulators` ROW_LATENCY cycles after `issue`.

    The line of a vector is written `latency` cycles after its issue, SUM_LATENCY cycles later if it
    is the sum of lines (`use_sum`), the last of which comes with it, SCALED_LATENCY cycles if their
    elements are `scaled`, and GateSequencer.LATENCY later with SIGMOID or TANH, which are for int16
    results only; the second line of an int16 result a cycle later. Nothing stops a vector. Between
    vectors the caller leaves GATE_SPACING cycles behind one with SIGMOID or TANH, one behind any
    other int16 result, ADDEND_SPACING behind a sum that is added to what is there, and
    DRAIN_SPACING between a sum and an accumulator row. Where elements are scaled it is LONG_SPACING
    in both cases, and no element is to be scaled SLOT_DISTANCE cycles after the issue. Behind a
    gate these come on top of GATE_SPACING; TAP_SPACING between a tap and its use. `said.low` <=
    `said.high`.
    With function OTHER, which `table` tells apart: a line of the tile that was loaded before, or of
    random bytes, or no line, but a Measure of the vector, and what `about` says with the last one;
    none of these is a sum of lines but the last. LONG_SPACING cycles lie behind the last one of a
    tile, and of an instruction, and behind the load of a `seed`.
    `advance_write`, `advance_write_to`: lines below are written in ANNOUNCED cycles; `write_done`:
    all are. Both lines of an int16 result are announced together.
    """

    def __init__(self, *, config: Config):
        self._config = config
        self._sharers = max(SHARERS, config.cols // 8)
        members = {
            "line": In(LineControl()),
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
        if config.training:
            members |= {"about": In(MeasureLayout()), "seed": In(SEED_BITS)}
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
        m.d.sync += operands.eq(self.operands)
        with m.If(self._stages[OPERAND_LATENCY - 1].outside):
            m.d.sync += operands.eq(0)

        control, issued = self._issued(m)
        planes = self._planes(m, control)

        # The control of each vector, delayed to where the lanes need it.
        at: dict[int, DelayLine] = {}
        passing = Signal(PassingControl())
        m.d.comb += [passing[name].eq(control[name]) for name in passing.shape().members]
        last, value, valid = -ROW_LATENCY, passing, issued
        rounding, clamp = Requantiser.ROUNDING_STAGE, Requantiser.CLAMP_STAGE - 1
        for stage in (-1, 0, rounding, clamp, END_STAGE - 1):
            at[stage] = self._delayed(m, f"to_stage_{stage}", value, valid, stage - last)
            last, value, valid = stage, at[stage].output, at[stage].output_valid
        rounds = self._said(m, at[rounding].output, "rounding", "zero_point", "accumulate")
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
        value = ending
        for stage in range(END_STAGE, ActivationLane.PICK_STAGE + 1):
            at[stage] = self._delayed(m, f"to_stage_{stage}", value, valid, 1)
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
            inputs |= {
                "table": at[ActivationLane.TABLE_STAGE].output.table,
                "write__enable": self.tables.enable,
                "write__address": self.tables.address,
                "write__data": self.tables.data,
            }
        # How far the lines are written with this vector.
        written = Signal(address_bits(config), reset_less=True)
        m.d.sync += written.eq(ending.line + 1 + ending.wide)
        if config.wide:
            m.submodules.gate_sequencer = gates = GateSequencer(training=config.training)
            starts = at[END_STAGE - 1].output_valid & is_gate(ending.function)
            m.d.comb += [
                gates.start.eq(starts),
                gates.tanh.eq(ending.function == Function.TANH),
                gates.exp.eq(ending.function == Function.EXP if config.training else 0),
                gates.integer_bits.eq(ending.table),
            ]
            copied |= {
                "accumulate": accumulate,
                "gate": gates.following,
                "pick": self._write_wide(m, gates, at, written, starts),
            }
        else:
            function = at[ActivationLane.PICK_STAGE - 1].output.function
            copied["pick"] = Mux(function == Function.TABLE, Pick.TABLE, Pick.PLAIN)
            announced = at[ANNOUNCED_STAGE]
            m.d.sync += [
                self.buffer.enable.eq(valid),
                self.buffer.address.eq(value.line),
                self.advance_write.eq(announced.output_valid),
                self.advance_write_to.eq(written),
                self.write_done.eq(announced.output_valid & announced.output.last),
            ]

        self._outputs = {
            name: [Signal(member.shape, name=f"{name}_{c}") for c in range(config.cols)]
            for name, member in lane_members(config).items()
            if member.flow is Out
        }
        line: Value = Cat(self._outputs["byte_out"])
        if config.training:
            line = self._other(m, at, operands, copied)
        copies = {name: self._copies(m, name, value) for name, value in copied.items()}
        lanes: list[dict[str, Any]] = []
        for c in range(config.cols):
            lane = inputs | {name: copy[c] for name, copy in copies.items()}
            lane |= {
                "accumulator": self.accumulators.word_select(c, 32),
                "byte": operands.word_select(c, 8),
                "bias": Cat(planes[i].word_select(c, 8) for i in range(4)),
                "multiplier": Cat(planes[4 + i].word_select(c, 8) for i in range(4))[:31],
                "shift_right": planes[8].word_select(c, 8)[:5],
                "shift_left": planes[8].word_select(c, 8)[5:],
            }
            if config.training:
                shifts = data.View(ShiftLayout(), lane.pop("shifts"))
                for name, there in (("shift_right", shifts.right), ("shift_left", shifts.left)):
                    lane[name] = Mux(shifts.replaces, there, lane[name])
            if config.depthwise:
                lane["tap"] = inputs["tap"].word_select(c, 8)
            lanes.append(lane)
        if lanes_are_instances(config):
            place_groups(m, config, lanes, self._outputs)
        else:
            for c, lane in enumerate(lanes):
                m.submodules[f"lane_{c}"] = self._lane(m, lane, c)
        m.d.sync += self.buffer.data.eq(line)
        return m

    def _issued(self, m: Module) -> tuple[data.View, Signal]:
        """The control of a vector when its row could be read, and whether there is one.

        A sum is ready later than an accumulator row. The contract keeps the two apart.
        """
        layout = VectorControl(config=self._config)
        depth = 1 << SCALED_LATENCY.bit_length()
        kept = m.submodules.kept = Memory(shape=layout, depth=depth, init=[])
        write, read = kept.write_port(), kept.read_port(domain="comb")
        place = Signal(range(depth))
        sums, scaled = Signal(SUM_LATENCY), Signal(SCALED_LATENCY)
        issues = self.issue & self.vector.use_sum
        control, summed = Signal(layout), Signal()
        issued = Signal()
        m.d.sync += [
            place.eq(place + 1),
            sums.eq(Cat(issues & ~self.vector.scaled, sums)),
            scaled.eq(Cat(issues & self.vector.scaled, scaled)),
        ]
        m.d.comb += [
            write.en.eq(1),
            write.addr.eq(place),
            write.data.eq(self.vector),
            read.addr.eq(place - Mux(scaled[-1], SCALED_LATENCY, SUM_LATENCY)),
            summed.eq(sums[-1] | scaled[-1]),
            control.eq(Mux(summed, read.data, self.vector)),
            issued.eq(summed | (self.issue & ~self.vector.use_sum)),
        ]
        return control, issued

    def _delayed(
        self, m: Module, name: str, value: data.View, valid: ValueLike, cycles: int
    ) -> DelayLine:
        line = DelayLine(layout=value.shape(), cycles=cycles)
        m.submodules[name] = line
        m.d.comb += [line.input.eq(value), line.input_valid.eq(valid)]
        return line

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

    def _copies(self, m: Module, name: str, value: ValueLike) -> list[Signal]:
        """`value` a cycle later, for each lane, from a register for some of them."""
        bits = Value.cast(value)
        copies: list[Signal] = []
        for group in range(-(-self._config.cols // self._sharers)):
            replica = Replica(width=len(bits))
            m.submodules[f"{name}_of_group_{group}"] = replica
            copy = Signal(len(bits), name=f"{name}_{group}")
            m.d.comb += [replica.input.eq(bits), copy.eq(replica.output)]
            copies += self._sharers * [copy]
        return copies

    def _line_controls(
        self, m: Module, operands: Signal
    ) -> tuple[dict[str, Any], dict[str, ValueLike]]:
        """The controls of a line, delayed to where the fronts of the lanes need them, or one cycle
        less for those that get copies; the taps."""
        self._stages = stages = [self.line]
        for stage in range(OPERAND_LATENCY + VectorLane.SCALED_STAGE):
            stages.append(Signal(LineControl(), name=f"line_{stage}", reset_less=True))
            m.d.sync += stages[-1].eq(stages[-2])
        lanes = stages[OPERAND_LATENCY:]
        summing = Signal(SumControl())
        soon = lanes[VectorLane.SUM_STAGE - 1].summing
        late = lanes[VectorLane.SCALED_STAGE - 1].summing
        m.d.comb += [
            summing.eq(soon),
            summing.update.eq(soon.update & ~soon.scaled & ~soon.halved),
        ]
        with m.If(late.scaled | late.halved):
            m.d.comb += summing.eq(late)
        multiplied = lanes[VectorLane.VALUE_STAGE + Requantiser.MULTIPLIER_STAGE - 1]
        found: dict[str, Any] = {}
        copied: dict[str, ValueLike] = {
            "element": stages[OPERAND_LATENCY - 1].element,
            "scaling": lanes[VectorLane.VALUE_STAGE - 1].scaling,
            "scale": Cat(multiplied.scaling.scaled, multiplied.multiplier),
            "summing": summing,
        }
        if self._config.depthwise:
            width = 8 * self._config.cols
            m.submodules.taps = taps = Sram(width=width, depth=DEPTHWISE_TAPS, output_register=True)
            early = stages[OPERAND_LATENCY - TAP_LATENCY]
            m.d.comb += [
                taps.write_enable.eq(lanes[0].load_tap),
                taps.write_address.eq(lanes[0].tap),
                taps.write_data.eq(operands),
                taps.read_enable.eq(1),
                taps.read_address.eq(early.tap),
            ]
            found["tap"] = taps.read_data
        return found, copied

    def _planes(self, m: Module, control: data.View) -> list[Value]:
        """The bytes of the parameter entry, as the value comes; those of the multiplier later.

        They are read whether there is a vector or not, as that is known late.
        """
        with_value = ROW_LATENCY - ENTRY_LATENCY
        entries = [control.parameter]
        for stage in range(with_value + Requantiser.MULTIPLIER_STAGE):
            kept = Signal.like(control.parameter, name=f"entry_{stage}", reset_less=True)
            m.d.sync += kept.eq(entries[-1])
            entries.append(kept)
        planes: list[Value] = []
        for plane in range(PARAMETER_PLANES):
            late = plane in MULTIPLIER_PLANES
            memory = Sram(
                width=8 * self._config.cols,
                depth=self._config.parameter_entries,
                output_register=True,
            )
            m.submodules[f"parameter_plane_{plane}"] = memory
            m.d.comb += [
                memory.write_enable.eq(self.parameters.planes[plane]),
                memory.write_address.eq(self.parameters.address),
                memory.write_data.eq(self.parameters.data),
                memory.read_enable.eq(1),
                memory.read_address.eq(entries[-1 if late else with_value]),
            ]
            planes.append(memory.read_data)
        return planes

    def _write_wide(
        self,
        m: Module,
        gates: GateSequencer,
        at: dict[int, DelayLine],
        written: Signal,
        starts: Value,
    ) -> Value:
        """The write of a line, where results may have two, or come from the gates. The next pick of
        the lanes."""
        end = at[ActivationLane.PICK_STAGE]

        def gated(vector: DelayLine) -> Value:
            return is_gate(vector.output.function)

        # The announcement of two lines is one of the second.
        written_by_two = Signal.like(written, reset_less=True)
        m.d.sync += written_by_two.eq(written)

        kept = Signal(EndControl(config=self._config), reset_less=True)
        written_by_gate = Signal.like(written, reset_less=True)
        m.d.sync += written_by_gate.eq(kept.line + 1 + kept.wide)
        started = Signal()
        waiting = Signal(range(GateSequencer.LATENCY + 1))
        m.d.sync += started.eq(starts)
        with m.If(started):
            m.d.sync += [
                kept.eq(at[ActivationLane.GATE_STAGE].output),
                waiting.eq(GateSequencer.LATENCY),
            ]
        with m.Elif(waiting != 0):
            m.d.sync += waiting.eq(waiting - 1)

        done = Signal()  # the result of a vector is there
        gate_done = Signal()  # it is that of the gates
        finished = Signal(EndControl(config=self._config))
        silent: Value = Const(0)  # a Measure writes nothing
        if self._config.training:
            silent = (end.output.function == OTHER) & measures(end.output.table)
        high_due = Signal()  # the low bytes are written in this cycle, the high ones are to follow
        m.d.sync += gate_done.eq(waiting == 2)
        m.d.comb += [
            done.eq((end.output_valid & ~gated(end) & ~silent) | gate_done),
            finished.eq(Mux(gate_done, kept, end.output)),
        ]
        pick = Signal(Pick)
        with m.If(done & finished.wide):
            m.d.comb += pick.eq(Pick.HIGH)
        with m.Elif(waiting == 2):
            m.d.comb += pick.eq(Pick.GATE)
        with m.Elif(at[ActivationLane.PICK_STAGE - 1].output.function == Function.TABLE):
            m.d.comb += pick.eq(Pick.TABLE)

        line = Mux(high_due, self.buffer.address + 1, finished.line)
        m.d.sync += [
            high_due.eq(done & finished.wide),
            self.buffer.enable.eq(done | high_due),
            self.buffer.address.eq(line),
        ]

        one, two = at[ANNOUNCED_STAGE], at[ANNOUNCED_STAGE + 1]
        by_one, by_two, by_gate, announces = Signal(), Signal(), Signal(), Signal()
        last = Signal()
        m.d.comb += [
            by_one.eq(one.output_valid & ~one.output.wide),
            by_two.eq(two.output_valid & two.output.wide & ~gated(two)),
            by_gate.eq(waiting == ANNOUNCED),
            announces.eq(by_one | by_two | by_gate),
            last.eq(Mux(by_gate, kept.last, Mux(by_two, two.output.last, one.output.last))),
        ]
        m.d.sync += [
            self.advance_write.eq(announces),
            self.advance_write_to.eq(
                Mux(by_gate, written_by_gate, Mux(by_two, written_by_two, written))
            ),
            self.write_done.eq(announces & last),
        ]
        return pick

    def _other(
        self, m: Module, at: dict[int, DelayLine], operands: Signal, copied: dict[str, ValueLike]
    ) -> Value:
        """The line that is written, where there is training. Adds to what is `copied`."""
        others = m.submodules.others = OtherResults(config=self._config)
        valued, ending = at[0], at[ActivationLane.PICK_STAGE - 1]
        for port, vector, said, valid in (
            (others.issued, self.vector, self.said, self.issue),
            (
                others.valued,
                valued.output,
                self._said(m, valued.output, "function", "table"),
                valued.output_valid,
            ),
            (others.ending, ending.output, ending.output, ending.output_valid),
        ):
            m.d.comb += [
                port.valid.eq(valid),
                port.last.eq(vector.last),
                port.function.eq(said.function),
                port.table.eq(said.table),
            ]
        m.d.comb += others.coming.exponent.eq(self._said(m, at[-1].output, "exponent").exponent)
        loads = self._stages[OPERAND_LATENCY]
        m.d.comb += [
            others.about.eq(self.about),
            others.magnitude.eq(ored(self._outputs["magnitude"])),
            others.load_tile.eq(loads.load_tile),
            others.bytes.eq(operands),
            others.load_seed.eq(loads.load_seed),
            others.seed.eq(self.seed),
            others.plain.eq(Cat(self._outputs["byte_out"])),
        ]
        copied["shifts"] = others.shifts
        return others.line

    def _lane(self, m: Module, inputs: dict[str, ValueLike], number: int) -> ActivationLane:
        """A lane with its ports connected."""
        lane = ActivationLane(config=self._config)
        for path, member, port in lane.signature.flatten(lane):
            name = "__".join(map(str, path))
            if member.flow is In:
                m.d.comb += port.eq(inputs[name])
            else:
                m.d.comb += self._outputs[name][number].eq(port)
        return lane
