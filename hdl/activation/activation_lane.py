# SPDX-License-Identifier: Apache-2.0
"""One lane of the activation unit: all that is done for one column."""

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
    """Which byte of a lane goes into the line that is written."""

    PLAIN = 0
    """The result, or its low byte."""
    TABLE = 1
    """What the table holds for the result."""
    GATE = 2
    """The low byte of the gate's result."""
    HIGH = 3
    """The high byte of the one picked before."""


class ScalingControl(data.StructLayout):
    """With an element at the requantiser: it is to be `scaled`, an int16 (`wide`)."""

    def __init__(self) -> None:
        super().__init__({"scaled": 1, "wide": 1})


class ScaleControl(data.StructLayout):
    """At MULTIPLIER_STAGE of the requantiser: what an element is `scaled` by."""

    def __init__(self) -> None:
        super().__init__({"scaled": 1, "multiplier": 31})


BYTE_SHIFT = 5
"""Bits by which int8 are shifted further than int16 before they are scaled."""


def lane_members(config: Config) -> dict[str, wiring.Member]:
    """The members of an ActivationLane."""
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
    """`requantiser` (see there), a look-up in `table`, and the choice of the byte to be written.

    The value is `accumulator` or, with `use_sum`, the `sum` of the lane's VectorLane, whose members
    are here, too; with `scaling` it is the element that the VectorLane took VALUE_STAGE cycles ago,
    on its way to that sum, with `scale` MULTIPLIER_STAGE cycles later, and the shift right,
    rounding and offsets are as the requantiser says. `byte_out` comes PICK_STAGE cycles after the
    value, with `pick`, out of logic: a register comes behind it. One value a cycle, no
    back-pressure. `table` comes TABLE_STAGE cycles after the value. Each lane has its own copy of
    the tables. Where there are curves, a TableLane has the tables. `on_curve` comes with `table`,
    and the number on the curve takes the place of the result CURVE_LATENCY cycles later. `gathers`
    comes with `table`, VALUE_STAGE cycles after a byte that looks up a number of int32.

    With training `magnitude` tells of the value that it has these bits, or its inverse where it is
    negative, and `dither` is the requantiser's.

    With 16-bit modes: `accumulate`, at OFFSET_STAGE of the requantiser, adds the addend that the
    VectorLane has then, instead of `zero_point`; the lane has a GateLane for its result, at
    GATE_STAGE, with `gate`. The gates borrow a multiplier of the requantiser, in cycles in
    which it has no vector for it.
    """

    TABLE_STAGE = Requantiser.LATENCY
    GATE_STAGE = Requantiser.LATENCY
    PICK_STAGE = Requantiser.LATENCY + TABLE_LATENCY
    _PASSED_ON = ("accumulator", "use_sum", "bias", "shift_right", "rounding", "low", "high")
    """Inputs of the requantiser that are those of the lane."""

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
        waiting = Signal(lane_bits(config), reset_less=True)  # as long as the tables take
        plain = Signal(lane_bits(config), reset_less=True)
        m.d.sync += [waiting.eq(requantiser.result), plain.eq(waiting)]
        m.d.comb += self.byte_out.eq(plain[:8])
        if config.attention:
            m.submodules.table_lane = tables = TableLane(tables=config.tables)
            connect(m, flipped(self.write), tables.write)
            m.d.comb += [
                tables.argument.eq(requantiser.result),
                tables.table.eq(self.table),
                tables.on_curve.eq(self.on_curve),
                tables.plain.eq(waiting),
                tables.gathers.eq(self.gathers),
                tables.index.eq(vector.value[:8]),
                vector.gathered.eq(tables.gathered),
            ]
            m.d.sync += plain.eq(tables.number)
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
            # The high bytes, as many turns as there are after the low ones.
            high = registers_in_turn(m, unsigned(8), turns=config.columns_per_lane, name="high")
            m.d.comb += [
                gate.control.eq(self.gate),
                gate.argument.eq(requantiser.result),
                requantiser.borrow.eq(self.gate.factors.multiply),
                requantiser.first.eq(gate.first),
                requantiser.second.eq(gate.second),
                gate.product.eq(requantiser.lent),
            ]
            m.d.sync += high[0].eq(plain[8:])
            with m.If(self.pick == Pick.GATE):
                m.d.comb += self.byte_out.eq(gate.result[:8])
                m.d.sync += high[0].eq(gate.result[8:])
            with m.If(self.pick == Pick.HIGH):
                m.d.comb += self.byte_out.eq(high[-1])
        return m
