# SPDX-License-Identifier: Apache-2.0
"""One lane of the activation unit: requantiser and activation tables of one column."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.isa import TABLE_BYTES
from systola.hdl.requantiser import Requantiser
from systola.hdl.sram import Sram

TABLE_LATENCY = 1


class TableWriteSignature(wiring.Signature):
    """Write port of the tables: one byte of one table, for all lanes."""

    def __init__(self, *, tables: int):
        super().__init__(
            {
                "enable": Out(1),
                "address": Out(ceil_log2(tables * TABLE_BYTES)),
                "data": Out(8),
            }
        )


class ActivationLane(wiring.Component):
    """`requantiser` (see there), and then a look-up in `table` where `use_table`.

    Latency LATENCY cycles, one value a cycle, no back-pressure. `table` and `use_table` come
    TABLE_STAGE cycles after the value. Each lane has its own copy of the tables.
    """

    LATENCY = Requantiser.LATENCY + TABLE_LATENCY
    TABLE_STAGE = Requantiser.LATENCY

    def __init__(self, *, tables: int):
        self._tables = tables
        super().__init__(
            {
                "accumulator": In(signed(32)),
                "bias": In(signed(32)),
                "multiplier": In(unsigned(31)),
                "shift_right": In(5),
                "shift_left": In(3),
                "rounding": In(1),
                "zero_point": In(signed(8)),
                "low": In(signed(8)),
                "high": In(signed(8)),
                "table": In(ceil_log2(tables)),
                "use_table": In(1),
                "write": In(TableWriteSignature(tables=tables)),
                "result": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.requantiser = requantiser = Requantiser()
        for name, member in requantiser.signature.members.items():
            if member.flow is In:
                m.d.comb += getattr(requantiser, name).eq(getattr(self, name))

        m.submodules.tables = tables = Sram(width=8, depth=self._tables * TABLE_BYTES)
        plain = Signal(8, reset_less=True)
        looked_up = Signal()
        m.d.sync += [plain.eq(requantiser.result), looked_up.eq(self.use_table)]
        m.d.comb += [
            tables.write_enable.eq(self.write.enable),
            tables.write_address.eq(self.write.address),
            tables.write_data.eq(self.write.data),
            tables.read_enable.eq(1),
            tables.read_address.eq(Cat(requantiser.result, self.table)),
            self.result.eq(Mux(looked_up, tables.read_data, plain)),
        ]
        return m
