# SPDX-License-Identifier: Apache-2.0
"""The datapath of the activation unit: lanes, parameters, taps, and the line that is written."""

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import (
    Cat,
    ClockSignal,
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
from amaranth.utils import bits_for

from systola.arch.config import Config
from systola.arch.isa import DEPTHWISE_TAPS, PARAMETER_PLANES, Function
from systola.hdl.activation.activation_lane import ActivationLane, Pick
from systola.hdl.activation.gate_sequencer import GateSequencer
from systola.hdl.activation.lane_group import OF_EACH, group_size
from systola.hdl.activation.requantiser import Requantiser
from systola.hdl.activation.vector_lane import (
    ElementControl,
    ScalingControl,
    SumControl,
    VectorLane,
    lane_bits,
)
from systola.hdl.commands import address_bits
from systola.hdl.memories.accumulators import READ_LATENCY as ROW_LATENCY
from systola.hdl.memories.sram import Sram
from systola.hdl.parts.delay_line import DelayLine
from systola.hdl.parts.replica import Replica
from systola.hdl.parts.tile_limit import TILE_LIMIT
from systola.hdl.ports import BUFFER_LATENCY as LINE_LATENCY
from systola.hdl.ports import BufferWriteSignature, ParameterWriteSignature, TableWriteSignature

OPERAND_LATENCY = LINE_LATENCY + 1
"""Cycles from the read of a buffer line to its bytes at the lanes, which are behind a register."""
ENTRY_LATENCY = 2
"""Cycles from the number of a parameter entry to its bytes."""
SUM_LATENCY = OPERAND_LATENCY + VectorLane.LATENCY - ROW_LATENCY
"""Cycles by which the sum of lines comes later to the requantisers than an accumulator row."""
GATE_SPACING = GateSequencer.LATENCY + 1
"""Cycles between a vector with SIGMOID or TANH and the next one."""
DRAIN_SPACING = SUM_LATENCY + 1
"""Cycles in which the front of the lanes empties, so that nothing overtakes it."""
ADDEND_SPACING = VectorLane.LATENCY + Requantiser.OFFSET_STAGE - 2
"""Cycles between vectors that add to what is there: the addend of a vector comes with its second
line at the earliest, and then that of the vector before has been added."""
TAP_LATENCY = 2
"""Cycles from the number of a tap to its weights."""
TAP_SPACING = TAP_LATENCY
"""Cycles between the load of a tap and its use, at least."""
ANNOUNCED = 2
"""Cycles from the announcement of a line to its write. An `Interlock` lets nobody read it before
the cycle behind the write."""
ANNOUNCED_STAGE = ActivationLane.PICK_STAGE - ANNOUNCED
MULTIPLIER_PLANES = range(4, 8)
CLOSE = ("shift", "longer", "summing", "use_sum", "gate")
"""Controls of a lane's whole words, from registers as near as can be."""


def lanes_are_instances(config: Config) -> bool:
    """Whether the lanes are instances of the module `lane_group`, like the MXU's tiles."""
    return config.cols > TILE_LIMIT


class LineControl(data.StructLayout):
    """What accompanies the elements of a buffer line through the front of the lanes."""

    def __init__(self) -> None:
        super().__init__(
            {
                "load_tap": 1,
                "tap": range(DEPTHWISE_TAPS),
                "element": ElementControl(),
                "scaling": ScalingControl(),
                "summing": SumControl(),
            }
        )


class VectorControl(data.StructLayout):
    """What accompanies a vector through the rest of the lanes."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "line": address_bits(config),
                "last": 1,
                "parameter": bits_for(config.parameter_entries),
                "use_sum": 1,
                "accumulate": 1,
                "wide": 1,
                "rounding": 1,
                "function": 3,
                "zero_point": signed(8),
                "low": signed(16),
                "high": signed(16),
                "table": 4,
            }
        )


class ResultLanes(wiring.Component):
    """Takes a buffer line for the front of the lanes with `line`, and makes a result of each vector
    with `issue` and `vector`. An ActivationLane for each column; the bytes of `operands` come
    LINE_LATENCY cycles after `line`, the row of `accumulators` ROW_LATENCY cycles after `issue`.

    The line of a vector is written `latency` cycles after its issue, SUM_LATENCY cycles later if it
    is the sum of lines (`use_sum`), the last of which comes with it, and GateSequencer.LATENCY
    later with SIGMOID or TANH, which are for int16 results only; the second line of an int16 result
    a cycle later. Nothing stops a vector. Between vectors the caller leaves GATE_SPACING cycles
    behind one with SIGMOID or TANH, one behind any other int16 result, ADDEND_SPACING behind one
    that adds to what is there, and DRAIN_SPACING, in addition to GATE_SPACING, between a sum and an
    accumulator row; TAP_SPACING between a tap and its use. `vector.low` <= `vector.high`.
    `advance_write`, `advance_write_to`: lines below are written in ANNOUNCED cycles; `write_done`:
    all are. Both lines of an int16 result are announced together.
    """

    def __init__(self, *, config: Config):
        self._config = config
        # Lanes that share registers of their controls, and of those with the most users.
        self._sharers, self._close_sharers = max(2, config.cols // 8), max(1, config.cols // 8)
        members = {
            "line": In(LineControl()),
            "issue": In(1),
            "vector": In(VectorControl(config=config)),
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
        super().__init__(members)

    @staticmethod
    def latency() -> int:
        """Cycles from the issue of a vector to the write of its line."""
        return ROW_LATENCY + ActivationLane.PICK_STAGE + 1

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        operands = Signal(8 * config.cols, reset_less=True)
        m.d.sync += operands.eq(self.operands)
        inputs, copied = self._line_controls(m, operands)

        # A sum is ready later than an accumulator row. The contract keeps the two apart.
        summed = self._delayed(
            m, "to_sum", self.vector, self.issue & self.vector.use_sum, SUM_LATENCY
        )
        control = Signal(VectorControl(config=config))
        issued = Signal()
        m.d.comb += [
            control.eq(Mux(summed.output_valid, summed.output, self.vector)),
            issued.eq(summed.output_valid | (self.issue & ~self.vector.use_sum)),
        ]
        planes = self._planes(m, control)

        # The control of each vector, delayed to where the lanes need it.
        at: dict[int, DelayLine] = {}
        last, value, valid = -ROW_LATENCY, control, issued
        stages = {
            -1,
            Requantiser.ROUNDING_STAGE,
            Requantiser.OFFSET_STAGE - 1,
            ActivationLane.TABLE_STAGE,
            ANNOUNCED_STAGE - 1,
            ANNOUNCED_STAGE,
            ANNOUNCED_STAGE + 1,
            ActivationLane.GATE_STAGE - 1,
            ActivationLane.GATE_STAGE,
            ActivationLane.PICK_STAGE - 1,
            ActivationLane.PICK_STAGE,
        }
        for stage in sorted(stages):
            at[stage] = self._delayed(m, f"to_stage_{stage}", value, valid, stage - last)
            last, value, valid = stage, at[stage].output, at[stage].output_valid
        before_offset = at[Requantiser.OFFSET_STAGE - 1].output
        copied |= {
            "use_sum": at[-1].output.use_sum,
            "zero_point": before_offset.zero_point,
            "low": before_offset.low[: lane_bits(config)],
            "high": before_offset.high[: lane_bits(config)],
        }
        inputs["rounding"] = at[Requantiser.ROUNDING_STAGE].output.rounding
        if config.tables:
            inputs |= {
                "table": at[ActivationLane.TABLE_STAGE].output.table,
                "write__enable": self.tables.enable,
                "write__address": self.tables.address,
                "write__data": self.tables.data,
            }
        # How far the lines are written with this vector.
        written = Signal(address_bits(config), reset_less=True)
        coming = at[ANNOUNCED_STAGE - 1].output
        m.d.sync += written.eq(coming.line + 1 + coming.wide)
        if config.wide:
            m.submodules.gate_sequencer = gates = GateSequencer()
            copied |= {
                "accumulate": before_offset.accumulate,
                "gate": gates.following,
                "pick": self._write_wide(m, gates, at, written),
            }
        else:
            function = at[ActivationLane.PICK_STAGE - 1].output.function
            copied["pick"] = Mux(function == Function.TABLE, Pick.TABLE, Pick.PLAIN)
            announced = at[ANNOUNCED_STAGE]
            m.d.sync += [
                self.buffer.enable.eq(at[last].output_valid),
                self.buffer.address.eq(at[last].output.line),
                self.advance_write.eq(announced.output_valid),
                self.advance_write_to.eq(written),
                self.write_done.eq(announced.output_valid & announced.output.last),
            ]

        copies = {name: self._copies(m, name, value) for name, value in copied.items()}
        lanes: list[dict[str, ValueLike]] = []
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
            if config.depthwise:
                lane["tap"] = inputs["tap"].word_select(c, 8)
            lanes.append(lane)
        line = Signal(8 * config.cols)
        if lanes_are_instances(config):
            self._place_groups(m, lanes, line)
        else:
            for c, lane in enumerate(lanes):
                m.submodules[f"lane_{c}"] = self._lane(m, lane, line.word_select(c, 8))
        m.d.sync += self.buffer.data.eq(line)
        return m

    def _delayed(
        self, m: Module, name: str, value: data.View, valid: ValueLike, cycles: int
    ) -> DelayLine:
        line = DelayLine(layout=VectorControl(config=self._config), cycles=cycles)
        m.submodules[name] = line
        m.d.comb += [line.input.eq(value), line.input_valid.eq(valid)]
        return line

    def _copies(self, m: Module, name: str, value: ValueLike) -> list[Signal]:
        """`value` a cycle later, for each lane, from a register for some of them."""
        bits = Value.cast(value)
        sharers = self._close_sharers if name in CLOSE else self._sharers
        copies = []
        for group in range(-(-self._config.cols // sharers)):
            replica = Replica(width=len(bits))
            m.submodules[f"{name}_of_group_{group}"] = replica
            copy = Signal(len(bits), name=f"{name}_{group}")
            m.d.comb += [replica.input.eq(bits), copy.eq(replica.output)]
            copies += sharers * [copy]
        return copies

    def _line_controls(
        self, m: Module, operands: Signal
    ) -> tuple[dict[str, Any], dict[str, ValueLike]]:
        """The controls of a line, delayed to where the fronts of the lanes need them, or one cycle
        less for those that get copies; the taps."""
        stages = [self.line]
        for stage in range(OPERAND_LATENCY + VectorLane.SUM_STAGE):
            stages.append(Signal(LineControl(), name=f"line_{stage}", reset_less=True))
            m.d.sync += stages[-1].eq(stages[-2])
        lanes = stages[OPERAND_LATENCY:]
        product = VectorLane.PRODUCT_STAGE
        coarse = lanes[product + 1].scaling.shift[2:]
        found = {}
        copied = {
            "element": stages[OPERAND_LATENCY - 1].element,
            "product_scaling": lanes[product - 1].scaling,
            "scaling": lanes[product].scaling,
            "shift": coarse,
            "longer": Cat(coarse > n for n in range(7)),
            "summing": lanes[VectorLane.SUM_STAGE - 1].summing,
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

    def _planes(self, m: Module, control: data.View) -> list[Signal]:
        """The bytes of the parameter entry, as the value comes; those of the multiplier later.

        They are read whether there is a vector or not, as that is known late.
        """
        with_value = ROW_LATENCY - ENTRY_LATENCY
        entries = [control.parameter]
        for stage in range(with_value + Requantiser.MULTIPLIER_STAGE):
            kept = Signal.like(control.parameter, name=f"entry_{stage}", reset_less=True)
            m.d.sync += kept.eq(entries[-1])
            entries.append(kept)
        planes = []
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
    ) -> Value:
        """The write of a line, where results may have two, or come from the gates. The next pick of
        the lanes."""
        gate, end = at[ActivationLane.GATE_STAGE - 1], at[ActivationLane.PICK_STAGE]
        is_tanh = gate.output.function == Function.TANH

        def gated(vector: DelayLine) -> Value:
            function = vector.output.function
            return (function == Function.TANH) | (function == Function.SIGMOID)

        # The announcement of two lines is one of the second.
        written_by_two = Signal.like(written, reset_less=True)
        m.d.sync += written_by_two.eq(written)

        kept = Signal(VectorControl(config=self._config), reset_less=True)
        written_by_gate = Signal.like(written, reset_less=True)
        m.d.sync += written_by_gate.eq(kept.line + 1 + kept.wide)
        started = Signal()
        waiting = Signal(range(GateSequencer.LATENCY + 1))
        m.d.comb += [
            gates.start.eq(gate.output_valid & gated(gate)),
            gates.tanh.eq(is_tanh),
            gates.integer_bits.eq(gate.output.table),
        ]
        m.d.sync += started.eq(gates.start)
        with m.If(started):
            m.d.sync += [
                kept.eq(at[ActivationLane.GATE_STAGE].output),
                waiting.eq(GateSequencer.LATENCY),
            ]
        with m.Elif(waiting != 0):
            m.d.sync += waiting.eq(waiting - 1)

        done = Signal()  # the result of a vector is there
        gate_done = Signal()  # it is that of the gates
        finished = Signal(VectorControl(config=self._config))
        high_due = Signal()  # the low bytes are written in this cycle, the high ones are to follow
        m.d.sync += gate_done.eq(waiting == 2)
        m.d.comb += [
            done.eq((end.output_valid & ~gated(end)) | gate_done),
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

    def _lane(self, m: Module, inputs: dict[str, ValueLike], byte: Value) -> ActivationLane:
        """A lane with its ports connected."""
        lane = ActivationLane(config=self._config)
        for path, member, port in lane.signature.flatten(lane):
            name = "__".join(map(str, path))
            m.d.comb += port.eq(inputs[name]) if member.flow is In else byte.eq(port)
        return lane

    def _place_groups(self, m: Module, lanes: Sequence[dict[str, ValueLike]], line: Signal) -> None:
        """The lanes as instances of the module `lane_group`."""
        size = group_size(self._config)
        for number in range(len(lanes) // size):
            group = lanes[number * size : (number + 1) * size]
            inputs = {
                name: Cat(lane[name] for lane in group) if name in OF_EACH else value
                for name, value in group[0].items()
            }
            m.submodules[f"lanes_{number}"] = Instance(
                "lane_group",
                i_clk=ClockSignal(),
                i_rst=ResetSignal(),
                **{f"i_lane_{name}": value for name, value in inputs.items()},
                o_lane_byte_out=line.word_select(number, 8 * size),
            )
