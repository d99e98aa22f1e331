# SPDX-License-Identifier: Apache-2.0
"""The accumulators: 32-bit sums below the array."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.hdl.sram import Sram

BANKS = 2


class Accumulators(wiring.Component):
    """`accumulator_rows` rows of `cols` x 32 bits, in two banks by the parity of the row.

    Update (from the MXU), one a cycle: `update_read` with `update_address` in the cycle before
    `write_enable` with `write_address` (the same row), `sums` and `shift`; with `accumulate` the
    row becomes old + sums * 2^(8 * shift) modulo 2^32 per column, else without old; `shift` is 0
    where there are no 16-bit modes. `update_read` is only for rows that accumulate.
    Back-to-back updates of one row work.

    Read (to Activate): `data` comes one cycle after `enable` & `ready`. The MXU's reads win; two
    sequential streams collide once and then alternate between the banks.
    """

    def __init__(self, *, config: Config):
        self._config = config
        address = ceil_log2(config.accumulator_rows)
        super().__init__(
            {
                "update_read": In(1),
                "update_address": In(address),
                "write_enable": In(1),
                "write_address": In(address),
                "accumulate": In(1),
                "shift": In(2),
                "sums": In(32 * config.cols),
                "enable": In(1),
                "ready": Out(1),
                "address": In(address),
                "data": Out(32 * config.cols),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cols = self._config.cols
        m.d.comb += self.ready.eq(~(self.update_read & (self.update_address[0] == self.address[0])))

        outputs = []
        for index in range(BANKS):
            bank = Sram(
                width=32 * cols, depth=self._config.accumulator_rows // BANKS, transparent=True
            )
            m.submodules[f"bank_{index}"] = bank
            by_update = self.update_read & (self.update_address[0] == index)
            address = Mux(by_update, self.update_address, self.address)
            m.d.comb += [
                bank.read_enable.eq(by_update | (self.enable & (self.address[0] == index))),
                bank.read_address.eq(address[1:]),
                bank.write_enable.eq(self.write_enable & (self.write_address[0] == index)),
                bank.write_address.eq(self.write_address[1:]),
            ]
            outputs.append(bank)

        sums = Signal(32 * cols)
        m.d.comb += sums.eq(self.sums)
        if self._config.wide:
            for shift in (1, 2):
                with m.If(self.shift == shift):
                    m.d.comb += sums.eq(
                        Cat(
                            Cat(Const(0, 8 * shift), self.sums.word_select(c, 32))[:32]
                            for c in range(cols)
                        )
                    )
        old = Signal(32 * cols)
        new = Signal(32 * cols)
        m.d.comb += [
            old.eq(Mux(self.write_address[0], outputs[1].read_data, outputs[0].read_data)),
            new.eq(
                Cat(
                    (sums.word_select(c, 32) + Mux(self.accumulate, old.word_select(c, 32), 0))[:32]
                    for c in range(cols)
                )
            ),
        ]
        m.d.comb += [bank.write_data.eq(new) for bank in outputs]

        source = Signal()
        m.d.sync += source.eq(self.address[0])
        m.d.comb += self.data.eq(Mux(source, outputs[1].read_data, outputs[0].read_data))
        return m
