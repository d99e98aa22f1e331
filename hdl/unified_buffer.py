# SPDX-License-Identifier: Apache-2.0
"""The unified buffer: activations in banks, read and written by four units at a time."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from systola.arch.config import Config
from systola.hdl.sram import Sram


class BufferReadSignature(wiring.Signature):
    """Read port seen from the reader: data comes one cycle after `enable` & `ready`."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "enable": Out(1),
                "ready": In(1),
                "address": Out(ceil_log2(config.buffer_lines)),
                "data": In(8 * config.line_bytes),
            }
        )


class BufferWriteSignature(wiring.Signature):
    """Write port seen from the writer: done in the cycle of `enable` & `ready`."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                "enable": Out(1),
                "ready": In(1),
                "address": Out(ceil_log2(config.buffer_lines)),
                "data": Out(8 * config.line_bytes),
            }
        )


class UnifiedBuffer(wiring.Component):
    """`buffer_lines` lines in `buffer_banks` banks of one read and one write port each.

    Line a lives in bank a mod banks, so two sequential streams that meet in a bank collide once
    and then run side by side. The MXU's read and Activate's write always win (`ready` is 1 for
    them); the DMA's yield for a cycle. Throughput: one line a cycle on each of the four ports.
    Nobody reads a line in the cycle in which it is written: the interlocks see to it.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "mxu": In(BufferReadSignature(config=config)),
                "dma_out": In(BufferReadSignature(config=config)),
                "activate": In(BufferWriteSignature(config=config)),
                "dma_in": In(BufferWriteSignature(config=config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks = self._config.buffer_banks
        bits = exact_log2(banks)

        def bank_of(port: wiring.PureInterface) -> object:
            return port.address[:bits]

        m.d.comb += [self.mxu.ready.eq(1), self.activate.ready.eq(1)]
        for loser, winner in ((self.dma_out, self.mxu), (self.dma_in, self.activate)):
            m.d.comb += loser.ready.eq(~(winner.enable & (bank_of(winner) == bank_of(loser))))

        outputs = []
        for index in range(banks):
            bank = Sram(width=8 * self._config.line_bytes, depth=self._config.buffer_lines // banks)
            m.submodules[f"bank_{index}"] = bank
            by_mxu = self.mxu.enable & (bank_of(self.mxu) == index)
            by_activate = self.activate.enable & (bank_of(self.activate) == index)
            read = Mux(by_mxu, self.mxu.address, self.dma_out.address)
            written = Mux(by_activate, self.activate.address, self.dma_in.address)
            m.d.comb += [
                bank.read_enable.eq(
                    by_mxu | (self.dma_out.enable & (bank_of(self.dma_out) == index))
                ),
                bank.read_address.eq(read >> bits),
                bank.write_enable.eq(
                    by_activate | (self.dma_in.enable & (bank_of(self.dma_in) == index))
                ),
                bank.write_address.eq(written >> bits),
                bank.write_data.eq(Mux(by_activate, self.activate.data, self.dma_in.data)),
            ]
            outputs.append(bank.read_data)

        for reader in (self.mxu, self.dma_out):
            source = Signal(bits)
            m.d.sync += source.eq(bank_of(reader))
            with m.Switch(source):
                for index, data in enumerate(outputs):
                    with m.Case(index):
                        m.d.comb += reader.data.eq(data)
        return m
