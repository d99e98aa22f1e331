# SPDX-License-Identifier: Apache-2.0
"""The lane of the activation unit: all the work for one column, or for two that take turns."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.arch.isa import DITHER_BITS, TABLE_BYTES
from systola.hdl.activation.exponent_registers import MAGNITUDE_BITS
from systola.hdl.activation.gate_lane import GateControl, GateLane
from systola.hdl.activation.requantiser import SHIFT_BITS, Requantiser
from systola.hdl.activation.table_lane import TABLE_LATENCY, TableLane
from systola.hdl.activation.vector_lane import AddendPlaces, VectorLane, lane_bits, line_inputs
from systola.hdl.memories.sram import Sram
from systola.hdl.parts.turns import registers_in_turn
from systola.hdl.ports import TableRowSignature, TableWriteSignature


class Pick(enum.Enum, shape=2):
    """A choice of the byte that a lane gives to the result line."""

    PLAIN = 0
    """The byte of an int8 result, or the low byte of an int16 result."""
    TABLE = 1
    """The byte that a table gives for the result."""
    GATE = 2
    """The low byte of the gate's result."""
    HIGH = 3
    """The high byte of an int16 result; PLAIN or GATE gave its low byte just before."""


class ScalingControl(data.StructLayout):
    """A control for an element at the requantiser.

    | field    | meaning |
    |---|---|
    | `scaled` | the requantiser scales the element |
    | `wide`   | the element is an int16 |
    """

    def __init__(self) -> None:
        super().__init__({"scaled": 1, "wide": 1})


class ScaleControl(data.StructLayout):
    """A control with the multiplier of an element, for MULTIPLIER_STAGE of the requantiser.

    The multiplier is valid if `scaled` is set; then the requantiser scales the element.
    """

    def __init__(self) -> None:
        super().__init__({"scaled": 1, "multiplier": 31})


BYTE_SHIFT = 5
"""Bits by which int8 elements are shifted further left than int16 elements before scaling."""


def lane_members(config: Config) -> dict[str, wiring.Member]:
    """Return the ports of an ActivationLane."""
    bits = lane_bits(config)
    members = {
        **line_inputs(config),
        "scaling": In(ScalingControl()),
        "scale": In(ScaleControl()),
        "accumulator": In(signed(32)),
        "use_sum": In(1),
        "bias": In(signed(32)),
        "multiplier": In(unsigned(31)),
        "shift_right": In(SHIFT_BITS),
        "shift_left": In(3),
        "rounding": In(1),
        "zero_point": In(signed(8)),
        "low": In(signed(bits)),
        "high": In(signed(bits)),
        "byte_out": Out(8),
    }
    if config.training:
        members |= {"magnitude": Out(MAGNITUDE_BITS), "dither": In(DITHER_BITS)}
    if config.tables:
        members |= {
            "table": In(max(1, ceil_log2(config.tables))),
            "write": In(TableWriteSignature(tables=config.tables)),
        }
    if config.attention:
        members |= {
            "sum": Out(32),
            "on_curve": In(1),
            "gathers": In(1),
            "write": In(TableRowSignature(tables=config.tables)),
        }
    if config.tables or config.wide:
        members["pick"] = In(Pick)
    if config.wide:
        members |= {"accumulate": In(1), "gate": In(GateControl())}
    if config.reads_pairs:
        members["waits_at"] = In(AddendPlaces())
    return members


class ActivationLane(wiring.Component):
    """A lane that makes one result byte a cycle from an accumulator or from bytes of buffer lines.

    A VectorLane adds up the elements of buffer lines. A Requantiser turns this sum, or a sum from
    the accumulators, into the result. A table or a GateLane may replace the result. At last a byte
    is picked for the line that is written.

    The column "cycle" counts cycles from the cycle in which the lane gets the value. Stages are
    constants of Requantiser, or of this class.

    | port          | cycle            | meaning |
    |---|---|---|
    | `byte`        |                  | byte of a buffer line, for the VectorLane, in the cycles
                                         that its docstring has |
    | `element`     |                  | control of the byte |
    | `summing`     |                  | control of the sum of the VectorLane |
    | `tap`         |                  | weight for the VectorLane, with depthwise lanes |
    | `before`      |                  | low byte for the VectorLane, if the machine `reads_pairs` |
    | `pair`        |                  | `before` is valid |
    | `waits_at`    |                  | places in the VectorLane's memory of halved elements
                                         and addends, if the machine `reads_pairs` |
    | `accumulator` | 0                | a sum from the accumulators: the value |
    | `use_sum`     | 0                | the value is the sum of the VectorLane instead |
    | `scaling`     | 0                | the value is an element instead |
    | `bias`        | 0                | number that is added to the value, if it is not an element
                                         |
    | `shift_left`  | 0                | left shift of the biased value, if it is not an element |
    | `scale`       | MULTIPLIER_STAGE | multiplier of an element |
    | `multiplier`  | MULTIPLIER_STAGE | multiplier of any other value |
    | `shift_right` | SHIFT_STAGE      | right shift of the product |
    | `rounding`    | ROUNDING_STAGE   | Rounding of the right shift |
    | `dither`      | DITHER_STAGE     | random number for the rounding, with training |
    | `zero_point`  | OFFSET_STAGE     | offset of the result |
    | `accumulate`  | OFFSET_STAGE     | the addend of the VectorLane is the offset, with 16-bit
                                         modes |
    | `low`         | CLAMP_STAGE      | smallest result |
    | `high`        | CLAMP_STAGE      | largest result |
    | `magnitude`   | 0                | the value's bits below the sign, inverted if it is
                                         negative, with training |
    | `sum`         | 0                | the sum of the VectorLane, with attention |
    | `table`       | TABLE_STAGE      | number of the table, with tables |
    | `on_curve`    | TABLE_STAGE      | the result is looked up on a curve, with attention |
    | `gathers`     | TABLE_STAGE      | a number of int32 is looked up, with attention |
    | `write`       |                  | writes into the tables, with tables |
    | `gate`        |                  | control of the GateLane, which takes the result at
                                         GATE_STAGE, with 16-bit modes |
    | `pick`        | PICK_STAGE       | choice of the byte, with tables or 16-bit modes |
    | `byte_out`    | PICK_STAGE       | the byte, from logic; the user puts it into a register |

    If the value is an element, the VectorLane took the byte of the element VALUE_STAGE cycles
    before cycle 0. The VectorLane later adds the scaled element to its sum.

    A machine that `reads_pairs` reads both lines of an int16 operand in one cycle.

    Throughput: one value a cycle. No back-pressure. Each lane has its own copy of the tables.
    With attention, a TableLane has the tables. The number on a curve takes the place of the result
    CURVE_LATENCY cycles later. A byte that looks up a number of int32 comes VALUE_STAGE cycles
    before `gathers`. The gates borrow a multiplier of the requantiser, in cycles in which the
    requantiser has no vector for it. The Requantiser's docstring has the ranges of its inputs.
    """

    TABLE_STAGE = Requantiser.LATENCY
    GATE_STAGE = Requantiser.LATENCY
    PICK_STAGE = Requantiser.LATENCY + TABLE_LATENCY
    _PASSED_ON = ("accumulator", "use_sum", "bias", "shift_right", "rounding", "low", "high")
    """Names of the inputs of the lane that go to the requantiser unchanged."""

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(lane_members(config))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.vector = vector = VectorLane(config=config)
        m.submodules.requantiser = requantiser = Requantiser(
            bits=lane_bits(config), lends=config.wide, dithers=config.training
        )
        for unit, names in ((vector, line_inputs(config)), (requantiser, self._PASSED_ON)):
            m.d.comb += [getattr(unit, name).eq(getattr(self, name)) for name in names]
        scaling, scale = self.scaling, self.scale
        m.d.comb += [
            requantiser.sum.eq(vector.sum),
            requantiser.scales.eq(scaling.scaled),
            requantiser.element.eq(vector.value),
            requantiser.shift_left.eq(
                Mux(scaling.scaled, Mux(scaling.wide, 0, BYTE_SHIFT), self.shift_left)
            ),
            requantiser.multiplier.eq(Mux(scale.scaled, scale.multiplier, self.multiplier)),
            vector.number.eq(requantiser.number),
            vector.carry.eq(requantiser.carry),
            requantiser.offset.eq(self.zero_point),
        ]
        if config.training:
            value = Mux(self.use_sum, vector.sum, self.accumulator)
            m.d.comb += [
                self.magnitude.eq(value[:-1] ^ value[-1].replicate(MAGNITUDE_BITS)),
                requantiser.dither.eq(self.dither),
            ]
        # the result, delayed by the time that a look-up in a table takes
        waiting_result = Signal(lane_bits(config), reset_less=True)
        plain_result = Signal(lane_bits(config), reset_less=True)
        m.d.sync += [waiting_result.eq(requantiser.result), plain_result.eq(waiting_result)]
        m.d.comb += self.byte_out.eq(plain_result[:8])
        if config.attention:
            m.submodules.table_lane = tables = TableLane(tables=config.tables)
            connect(m, flipped(self.write), tables.write)
            m.d.comb += [
                tables.argument.eq(requantiser.result),
                tables.table.eq(self.table),
                tables.on_curve.eq(self.on_curve),
                tables.plain.eq(waiting_result),
                tables.gathers.eq(self.gathers),
                tables.index.eq(vector.value[:8]),
                vector.gathered.eq(tables.gathered),
                self.sum.eq(vector.sum),
            ]
            m.d.sync += plain_result.eq(tables.number)
            with m.If(self.pick == Pick.TABLE):
                m.d.comb += self.byte_out.eq(tables.byte)
        elif config.tables:
            m.submodules.tables = tables = Sram(
                width=8, depth=config.tables * TABLE_BYTES, output_register=True
            )
            m.d.comb += [
                tables.write_enable.eq(self.write.enable),
                tables.write_address.eq(self.write.address),
                tables.write_data.eq(self.write.data),
                tables.read_enable.eq(1),
                tables.read_address.eq(Cat(requantiser.result[:8], self.table)),
            ]
            with m.If(self.pick == Pick.TABLE):
                m.d.comb += self.byte_out.eq(tables.read_data)
        if config.reads_pairs:
            m.d.comb += vector.waits_at.eq(self.waits_at)
        if config.wide:
            with m.If(self.accumulate):
                m.d.comb += requantiser.offset.eq(vector.addend)
            m.submodules.gate_lane = gate = GateLane(turns=config.columns_per_lane)
            # The high byte of each result waits: it is picked after the low byte, in the next turn
            # of its column.
            high = registers_in_turn(m, unsigned(8), turns=config.columns_per_lane, name="high")
            m.d.comb += [
                gate.control.eq(self.gate),
                gate.argument.eq(requantiser.result),
                requantiser.borrow.eq(self.gate.factors.multiply),
                requantiser.first.eq(gate.first),
                requantiser.second.eq(gate.second),
                gate.product.eq(requantiser.lent),
            ]
            m.d.sync += high[0].eq(plain_result[8:])
            with m.If(self.pick == Pick.GATE):
                m.d.comb += self.byte_out.eq(gate.result[:8])
                m.d.sync += high[0].eq(gate.result[8:])
            with m.If(self.pick == Pick.HIGH):
                m.d.comb += self.byte_out.eq(high[-1])
        return m
