# SPDX-License-Identifier: Apache-2.0
"""The datapath of the activation unit: lanes, parameters, taps, and the line that is written."""

from amaranth.hdl import (
    Cat,
    ClockSignal,
    Elaboratable,
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

from systola.arch.config import Config
from systola.arch.isa import DEPTHWISE_TAPS, PARAMETER_PLANES, Function
from systola.hdl.accumulators import READ_LATENCY
from systola.hdl.activation_lane import ActivationLane, TableWriteSignature
from systola.hdl.commands import ADDRESS_BITS
from systola.hdl.delay_line import DelayLine
from systola.hdl.gate_sequencer import GateSequencer
from systola.hdl.host_reader import ParameterWriteSignature
from systola.hdl.mxu import TILE_LIMIT
from systola.hdl.requantiser import Requantiser
from systola.hdl.sram import Sram
from systola.hdl.unified_buffer import READ_LATENCY as LINE_LATENCY
from systola.hdl.unified_buffer import BufferWriteSignature
from systola.hdl.vector_lane import (
    ElementControl,
    ProductControl,
    ScalingControl,
    SumControl,
    VectorLane,
    lane_bits,
)

GATE_SPACING = GateSequencer.LATENCY + 8
"""Cycles between a vector with SIGMOID or TANH and the next one."""
SUM_LATENCY = LINE_LATENCY + VectorLane.LATENCY - READ_LATENCY
"""Cycles by which the sum of lines is later than an accumulator row."""
DRAIN_SPACING = SUM_LATENCY + 1
"""Cycles in which the front of the lanes empties, so that nothing overtakes it."""
ADDEND_SPACING = VectorLane.LATENCY + Requantiser.CLAMP_STAGE - 2
"""Cycles between vectors that add to what is there: the addend of a vector comes with its second
line at the earliest, and then that of the vector before has been added."""


def lanes_are_instances(config: Config) -> bool:
    """Whether the lanes are instances of the module `activation_lane`, like the MXU's tiles."""
    return config.cols > TILE_LIMIT


class LineControl(data.StructLayout):
    """What accompanies the elements of a buffer line through the front of the lanes."""

    def __init__(self) -> None:
        super().__init__(
            {
                "load_tap": 1,
                "tap": range(DEPTHWISE_TAPS),
                "element": ElementControl(),
                "product": ProductControl(),
                "scaling": ScalingControl(),
                "summing": SumControl(),
            }
        )


class VectorControl(data.StructLayout):
    """What accompanies a vector through the rest of the lanes."""

    def __init__(self) -> None:
        super().__init__(
            {
                "line": ADDRESS_BITS,
                "last": 1,
                "parameter": 12,
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
    LINE_LATENCY cycles after `line`, the row of `accumulators` READ_LATENCY cycles after `issue`.

    The line of a vector is written `latency` cycles after its issue, SUM_LATENCY cycles
    later if it is the sum of lines (`use_sum`), the last of which comes with it, and
    GateSequencer.LATENCY later with SIGMOID or TANH; the second line of an int16 result a cycle
    later. Nothing stops a vector. Between vectors the caller leaves GATE_SPACING cycles behind one
    with SIGMOID or TANH, one behind any other int16 result, ADDEND_SPACING behind one that adds to
    what is there, and DRAIN_SPACING between a sum and an accumulator row.
    `advance_write`, `advance_write_to`: lines below are written; `write_done`: all are.
    """

    def __init__(self, *, config: Config):
        self._config = config
        members = {
            "line": In(LineControl()),
            "issue": In(1),
            "vector": In(VectorControl()),
            "accumulators": In(32 * config.cols),
            "operands": In(8 * config.line_bytes),
            "parameters": In(ParameterWriteSignature(config=config)),
            "buffer": Out(BufferWriteSignature(config=config)),
            "advance_write": Out(1),
            "advance_write_to": Out(ADDRESS_BITS),
            "write_done": Out(1),
        }
        if config.tables:
            members["tables"] = In(TableWriteSignature(tables=config.tables))
        super().__init__(members)

    @staticmethod
    def latency() -> int:
        """Cycles from the issue of a vector to the write of its line."""
        return READ_LATENCY + ActivationLane.LATENCY

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config

        # The controls of a line, delayed to where the fronts of the lanes need them.
        stages = [self.line]
        for stage in range(LINE_LATENCY + VectorLane.SUM_STAGE):
            stages.append(Signal(LineControl(), name=f"line_{stage}"))
            m.d.sync += stages[-1].eq(stages[-2])
        byte_stage = stages[LINE_LATENCY]
        line_controls = {
            "element": byte_stage.element,
            "product": stages[LINE_LATENCY + VectorLane.PRODUCT_STAGE].product,
            "scaling": stages[LINE_LATENCY + VectorLane.SCALING_STAGE].scaling,
            "shift": stages[LINE_LATENCY + VectorLane.SHIFT_STAGE].scaling.shift,
            "summing": stages[LINE_LATENCY + VectorLane.SUM_STAGE].summing,
        }
        if config.depthwise:
            m.submodules.taps = taps = Sram(width=8 * config.cols, depth=DEPTHWISE_TAPS)
            m.d.comb += [
                taps.write_enable.eq(byte_stage.load_tap),
                taps.write_address.eq(byte_stage.tap),
                taps.write_data.eq(self.operands[: 8 * config.cols]),
                taps.read_enable.eq(1),
                taps.read_address.eq(byte_stage.tap),
            ]
            tap_weights = taps.read_data

        # A sum is ready later than an accumulator row. The contract keeps the two apart.
        control = Signal(VectorControl())
        issued = Signal()

        def delayed(name: str, value: data.View, valid: object, cycles: int) -> DelayLine:
            line = DelayLine(layout=VectorControl(), cycles=cycles)
            m.submodules[name] = line
            m.d.comb += [line.input.eq(value), line.input_valid.eq(valid)]
            return line

        summed = delayed("to_sum", self.vector, self.issue & self.vector.use_sum, SUM_LATENCY)
        m.d.comb += [
            control.eq(Mux(summed.output_valid, summed.output, self.vector)),
            issued.eq(summed.output_valid | (self.issue & ~self.vector.use_sum)),
        ]
        planes = []
        for plane in range(PARAMETER_PLANES):
            memory = Sram(
                width=8 * config.cols, depth=config.parameter_entries, output_register=True
            )
            m.submodules[f"parameter_plane_{plane}"] = memory
            m.d.comb += [
                memory.write_enable.eq(self.parameters.planes[plane]),
                memory.write_address.eq(self.parameters.address),
                memory.write_data.eq(self.parameters.data),
                memory.read_enable.eq(issued),
                memory.read_address.eq(control.parameter),
            ]
            planes.append(memory.read_data)

        # The control of each vector, delayed to where the lanes need it.
        entry = delayed("to_entry", control, issued, READ_LATENCY)
        rounding = delayed(
            "to_rounding", entry.output, entry.output_valid, Requantiser.ROUNDING_STAGE
        )
        clamp = delayed(
            "to_clamp",
            rounding.output,
            rounding.output_valid,
            Requantiser.CLAMP_STAGE - Requantiser.ROUNDING_STAGE,
        )
        table = delayed(
            "to_table",
            clamp.output,
            clamp.output_valid,
            ActivationLane.TABLE_STAGE - Requantiser.CLAMP_STAGE,
        )
        end = delayed(
            "to_end",
            table.output,
            table.output_valid,
            ActivationLane.LATENCY - ActivationLane.TABLE_STAGE,
        )

        inputs: dict[str, ValueLike] = {
            **line_controls,
            "use_sum": entry.output.use_sum,
            "rounding": rounding.output.rounding,
            "zero_point": clamp.output.zero_point,
            "low": clamp.output.low[: lane_bits(config)],
            "high": clamp.output.high[: lane_bits(config)],
        }
        if config.tables:
            inputs |= {
                "table": table.output.table,
                "use_table": table.output.function == Function.TABLE,
                "write__enable": self.tables.enable,
                "write__address": self.tables.address,
                "write__data": self.tables.data,
            }
        done = Signal()  # the results of a vector are there
        finished = Signal(VectorControl())
        results = [Signal(lane_bits(config), name=f"result_{c}") for c in range(config.cols)]
        gate_results = [Signal(16, name=f"gate_result_{c}") for c in range(config.cols)]
        m.d.comb += [done.eq(end.output_valid), finished.eq(end.output)]
        if config.wide:
            m.submodules.gate_sequencer = gates = GateSequencer()
            inputs |= {"accumulate": clamp.output.accumulate, "gate": gates.control}
            kept = Signal(VectorControl())
            waiting = Signal(range(GateSequencer.LATENCY + 1))
            is_tanh = table.output.function == Function.TANH
            m.d.comb += [
                gates.start.eq(
                    table.output_valid & (is_tanh | (table.output.function == Function.SIGMOID))
                ),
                gates.tanh.eq(is_tanh),
                gates.integer_bits.eq(table.output.table),
            ]
            with m.If(gates.start):
                m.d.sync += [kept.eq(table.output), waiting.eq(GateSequencer.LATENCY)]
            with m.Elif(waiting != 0):
                m.d.sync += waiting.eq(waiting - 1)
            gated = (end.output.function == Function.TANH) | (
                end.output.function == Function.SIGMOID
            )
            with m.If(waiting == 1):
                m.d.comb += [done.eq(1), finished.eq(kept)]
            with m.Elif(gated):
                m.d.comb += done.eq(0)
            from_gate = waiting == 1

        for c in range(config.cols):
            lane = inputs | {
                "accumulator": self.accumulators.word_select(c, 32),
                "byte": self.operands.word_select(c, 8),
                "bias": Cat(planes[i].word_select(c, 8) for i in range(4)),
                "multiplier": Cat(planes[4 + i].word_select(c, 8) for i in range(4))[:31],
                "shift_right": planes[8].word_select(c, 8)[:5],
                "shift_left": planes[8].word_select(c, 8)[5:],
            }
            outputs = {"result": results[c]}
            if config.depthwise:
                lane["tap"] = tap_weights.word_select(c, 8)
            if config.wide:
                outputs["gate_result"] = gate_results[c]
            m.submodules[f"lane_{c}"] = self._lane(m, lane, outputs)

        # The line, or first the line of the low bytes and then that of the high ones.
        if not config.wide:
            m.d.comb += [
                self.buffer.enable.eq(done),
                self.buffer.address.eq(finished.line),
                self.buffer.data.eq(Cat(results)),
                self.advance_write.eq(done),
                self.advance_write_to.eq(finished.line + 1),
                self.write_done.eq(done & finished.last),
            ]
            return m
        chosen = [Mux(from_gate, gate_results[c], results[c]) for c in range(config.cols)]
        high = Signal(8 * config.cols, reset_less=True)
        high_line = Signal(ADDRESS_BITS)
        high_last = Signal()
        high_due = Signal()
        m.d.sync += [
            high_due.eq(done & finished.wide),
            high.eq(Cat(result[8:] for result in chosen)),
            high_line.eq(finished.line + 1),
            high_last.eq(finished.last),
        ]
        m.d.comb += [
            self.buffer.enable.eq(done | high_due),
            self.buffer.address.eq(Mux(high_due, high_line, finished.line)),
            self.buffer.data.eq(Mux(high_due, high, Cat(result[:8] for result in chosen))),
            self.advance_write.eq((done & ~finished.wide) | high_due),
            self.advance_write_to.eq(self.buffer.address + 1),
            self.write_done.eq(Mux(high_due, high_last, done & ~finished.wide & finished.last)),
        ]
        return m

    def _lane(
        self, m: Module, inputs: dict[str, ValueLike], outputs: dict[str, Value]
    ) -> Elaboratable:
        """A lane with its ports connected, as an instance where there are many."""
        if lanes_are_instances(self._config):
            return Instance(
                "activation_lane",
                i_clk=ClockSignal(),
                i_rst=ResetSignal(),
                **{f"o_{name}": value for name, value in outputs.items()},
                **{f"i_{name}": value for name, value in inputs.items()},
            )
        lane = ActivationLane(config=self._config)
        for path, member, port in lane.signature.flatten(lane):
            name = "__".join(path)
            if member.flow is In:
                m.d.comb += port.eq(inputs[name])
            else:
                m.d.comb += outputs[name].eq(port)
        return lane
