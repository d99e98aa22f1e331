# SPDX-License-Identifier: Apache-2.0
"""The memory of a board, shared by its ports."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from systola.boards.block_memory import BlockMemory
from systola.boards.memory_access import MemoryAccessSignature


class BoardMemory(wiring.Component):
    """A memory that several ports share.

    | port    | meaning |
    |---|---|
    | `ports` | an array of `ports` ports of MemoryAccessSignature |

    It has `size` bytes, a multiple of `data_bytes`, from address 0. It performs one access a cycle,
    from the ports in turn. An access outside the memory is answered, but has no other effect.
    """

    def __init__(self, *, size: int, ports: int, address_bits: int, data_bytes: int):
        self._size = size
        self._ports = ports
        self._data_bytes = data_bytes
        access = MemoryAccessSignature(address_bits=address_bits, data_bytes=data_bytes)
        super().__init__({"ports": In(access).array(ports)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = BlockMemory(
            data_bytes=self._data_bytes, depth=self._size // self._data_bytes
        )
        ports = [self.ports[number] for number in range(self._ports)]

        chosen = Signal(range(self._ports))
        previous = Signal.like(chosen)
        asked = Signal()
        m.d.comb += [chosen.eq(previous), asked.eq(Cat(port.valid for port in ports).any())]
        with m.Switch(previous):
            for before in range(self._ports):
                with m.Case(before):
                    # The next port in turn with a request is chosen: later assignments win.
                    for step in reversed(range(1, self._ports + 1)):
                        number = (before + step) % self._ports
                        with m.If(ports[number].valid):
                            m.d.comb += chosen.eq(number)
        with m.If(asked):
            m.d.sync += previous.eq(chosen)

        taken = Signal(self._ports)
        outside = Signal()
        enable = Signal()
        beat = exact_log2(self._data_bytes)
        with m.Switch(chosen):
            for number, port in enumerate(ports):
                with m.Case(number):
                    m.d.comb += port.ready.eq(1)
                    m.d.sync += [
                        taken.eq(Mux(port.valid, 1 << number, 0)),
                        outside.eq(port.address >= self._size),
                        enable.eq(port.valid),
                        memory.write.eq(port.write),
                        memory.address.eq(port.address[beat:]),
                        memory.data.eq(port.data),
                        memory.strobes.eq(port.strobes),
                    ]
        m.d.comb += memory.enable.eq(enable & ~outside)

        # The answer is due together with the data.
        answer = Cat(taken, outside)
        for _ in range(2):
            delayed = Signal(self._ports + 1)
            m.d.sync += delayed.eq(answer)
            answer = delayed
        for number, port in enumerate(ports):
            m.d.comb += [
                port.answer.eq(answer[number]),
                port.outside.eq(answer[-1]),
                port.read_data.eq(memory.read_data),
            ]
        return m
