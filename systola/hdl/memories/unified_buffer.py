# SPDX-License-Identifier: Apache-2.0
"""The unified buffer: activations in banks, read and written by five units at a time."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from systola.arch.config import Config
from systola.hdl.memories.parity_sram import ParitySram
from systola.hdl.memories.sram import Sram
from systola.hdl.parts.promise import promised
from systola.hdl.ports import BUFFER_LATENCY, BufferReadSignature, BufferWriteSignature


class UnifiedBuffer(wiring.Component):
    """A memory of `buffer_lines` lines in `buffer_banks` banks of one read and one write port each.

    | port, by rank | meaning |
    |---|---|
    | `mxu`         | reads of the MXU; always win, so `mxu.ready` is 1 |
    | `operands`    | reads of the activation unit |
    | `tiles`       | reads of weights from the buffer; only with training |
    | `dma_out`     | reads of the DMA, on the port of `tiles` |
    | `link_out`    | reads of the links, on the port of the DMA; only with links |
    | `activate`    | writes of the activation unit; always win, so `activate.ready` is 1 |
    | `dma_in`      | writes of the DMA |
    | `link_in`     | writes of the links, on the port of the DMA; only with links |
    | `flawed`      | a line that was read had changed since it was written; only with parity |

    Reads yield to the reads above them in the table, and writes yield to the writes above them.
    Line a lies in bank a mod banks. So two sequential streams that meet in a bank collide once, and
    then run side by side. Throughput: one line a cycle on each port of `mxu`, `operands`,
    `activate`, and the two of the DMA. `operands` reads two lines a cycle from two banks with
    `pair`, where the machine `reads_pairs`. The banks have output registers, so that only a
    multiplexer lies between them and the reader's register. A line is never read in the cycle in
    which it is written: the interlocks prevent it.
    """

    def __init__(self, *, config: Config):
        self._config = config
        self._pairs = config.reads_pairs
        tiles = {"tiles": In(BufferReadSignature(config=config))}
        links = {
            "link_out": In(BufferReadSignature(config=config)),
            "link_in": In(BufferWriteSignature(config=config)),
        }
        super().__init__(
            {
                **(tiles if config.training else {}),
                **(links if config.links else {}),
                "mxu": In(BufferReadSignature(config=config)),
                "operands": In(BufferReadSignature(config=config, pairs=self._pairs)),
                "dma_out": In(BufferReadSignature(config=config)),
                "activate": In(BufferWriteSignature(config=config)),
                "dma_in": In(BufferWriteSignature(config=config)),
                "flawed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        banks = self._config.buffer_banks
        bits = exact_log2(banks)

        def bank_of(port: wiring.PureInterface) -> Value:
            return port.address[:bits]

        def banks_meet(port: wiring.PureInterface, other: wiring.PureInterface | int) -> Value:
            """Return whether a port addresses the bank `other`, or the bank of the port `other`.

            A port that reads a pair addresses two banks. Their numbers differ in the lowest bit.
            """
            mine, its = bank_of(port), other if isinstance(other, int) else bank_of(other)
            if self._pairs and (port is self.operands or other is self.operands):
                differ = mine ^ its
                return ~differ[1:].any() & (~differ[0] | self.operands.pair)
            return mine == its

        # Ports are in the order of their rank.
        shared = BufferReadSignature(config=self._config).flip().create(path=("shared",))
        readers = (self.mxu, self.operands, shared)
        incoming = self._incoming(m) if self._config.links else self.dma_in
        writers = (self.activate, incoming)
        for ports in (readers, writers):
            for rank, port in enumerate(ports):
                m.d.comb += port.ready.eq(
                    ~Cat(winner.enable & banks_meet(port, winner) for winner in ports[:rank]).any()
                )

        for ports, message in (
            (readers, "two reads are granted in one bank"),
            (writers, "two writes are granted in one bank"),
        ):
            for rank, port in enumerate(ports):
                for other in ports[:rank]:
                    both = port.enable & port.ready & other.enable & other.ready
                    promised(m, platform, ~(both & banks_meet(port, other)), message)
        promised(m, platform, self.mxu.ready, "a read of the array has to wait")
        promised(m, platform, self.activate.ready, "a write of Activate has to wait")

        if self._config.links:
            self._share(m, shared)
        elif self._config.training:
            takes = self.tiles.enable
            m.d.comb += [
                shared.enable.eq(takes | self.dma_out.enable),
                shared.address.eq(Mux(takes, self.tiles.address, self.dma_out.address)),
                self.tiles.ready.eq(shared.ready),
                self.tiles.data.eq(shared.data),
                self.dma_out.ready.eq(shared.ready & ~takes),
                self.dma_out.data.eq(shared.data),
            ]
        else:
            connect(m, shared, flipped(self.dma_out))

        outputs: list[Value] = []
        flaws: list[Value] = []
        width, depth = 8 * self._config.line_bytes, self._config.buffer_lines // banks
        for index in range(banks):
            if self._config.parity:
                bank = ParitySram(width=width, depth=depth)
                enabled = Signal(BUFFER_LATENCY, name=f"enabled_{index}")
                m.d.sync += enabled.eq(Cat(bank.read_enable, enabled))
                m.d.comb += bank.counts.eq(enabled[-1])
                flaws.append(bank.flawed)
            else:
                bank = Sram(width=width, depth=depth, output_register=True)
            m.submodules[f"bank_{index}"] = bank
            # The last assignment wins, so the port of the highest rank is assigned last. The lowest
            # rank needs no condition.
            for rank, port in reversed(list(enumerate(readers))):
                here = port.enable & banks_meet(port, index)
                with m.If(here):
                    m.d.comb += bank.read_enable.eq(1)
                with m.If(here | (rank == len(readers) - 1)):
                    m.d.comb += bank.read_address.eq(port.address >> bits)
            for rank, port in reversed(list(enumerate(writers))):
                here = port.enable & banks_meet(port, index)
                with m.If(here):
                    m.d.comb += bank.write_enable.eq(1)
                with m.If(here | (rank == len(writers) - 1)):
                    m.d.comb += [
                        bank.write_address.eq(port.address >> bits),
                        bank.write_data.eq(port.data),
                    ]
            outputs.append(bank.read_data)

        m.d.comb += self.flawed.eq(Cat(flaws).any())
        for reader in readers:
            source = [Signal(bits, name=f"source_{stage}") for stage in range(BUFFER_LATENCY)]
            m.d.sync += [source[0].eq(bank_of(reader)), source[1].eq(source[0])]
            m.d.comb += reader.data.eq(Cat(outputs).word_select(source[-1], len(reader.data)))
            if reader is self.operands and self._pairs:
                even = Cat(outputs[::2])
                line = even.word_select(source[-1] >> 1, len(reader.before)) if bits > 1 else even
                m.d.comb += reader.before.eq(line)
        return m

    def _share(self, m: Module, shared: wiring.PureInterface) -> None:
        """Share one read port among users that seldom read lines, in the order of their rank."""
        users = (*((self.tiles,) if self._config.training else ()), self.dma_out, self.link_out)
        free: Value = shared.ready
        for user in users:
            m.d.comb += [user.ready.eq(free), user.data.eq(shared.data)]
            free &= ~user.enable
        for user in reversed(users):
            with m.If(user.enable):
                m.d.comb += [shared.enable.eq(1), shared.address.eq(user.address)]

    def _incoming(self, m: Module) -> wiring.PureInterface:
        """Share one write port between the DMA and, while the DMA does not use it, the links."""
        incoming = BufferWriteSignature(config=self._config).flip().create(path=("incoming",))
        first, second = self.dma_in, self.link_in
        m.d.comb += [
            incoming.enable.eq(first.enable | second.enable),
            incoming.address.eq(Mux(first.enable, first.address, second.address)),
            incoming.data.eq(Mux(first.enable, first.data, second.data)),
            first.ready.eq(incoming.ready),
            second.ready.eq(incoming.ready & ~first.enable),
        ]
        return incoming
