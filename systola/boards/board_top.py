# SPDX-License-Identifier: Apache-2.0
"""The design on a board: the machine, a memory, and a serial bridge to both."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from systola.arch.config import HOST_PAGE_BYTES, Config, ConfigError
from systola.arch.serial_protocol import IDENTITY, BoardWord, configuration_word
from systola.boards.board_memory import BoardMemory
from systola.boards.burst_read_port import BurstReadPort
from systola.boards.burst_write_port import BurstWritePort
from systola.boards.lite_memory_port import LiteMemoryPort
from systola.boards.serial_bridge import SerialBridge
from systola.hdl.tpu import TPU


def check_board(config: Config, memory_bytes: int) -> None:
    """Raise ConfigError for a configuration or memory size that cannot be on a board."""
    if config.host_bus_bytes != config.weight_bus_bytes:
        raise ConfigError(
            f"configuration '{config.name}': on a board the host and the weight bus share a "
            f"memory and must be equally wide"
        )
    if memory_bytes < 2 * HOST_PAGE_BYTES or memory_bytes % HOST_PAGE_BYTES:
        raise ConfigError(
            f"a board's memory must be a multiple of {HOST_PAGE_BYTES} bytes, at least "
            f"{2 * HOST_PAGE_BYTES}, not {memory_bytes}"
        )


class BoardTop(wiring.Component):
    """A machine, with `memory_bytes` for its host and weight windows, and a serial line to the
    host.

    The memory begins at bus address 0; both windows lie in it, at places that the host chooses. The
    interrupt of the machine is not connected: the host reads STATUS instead.

    Members
    -------
    rx, tx : the serial line, a bit of which lasts `divisor` cycles of a clock of `clock_hz`
    """

    def __init__(self, *, config: Config, memory_bytes: int, divisor: int, clock_hz: int):
        check_board(config, memory_bytes)
        self._config = config
        self._memory_bytes = memory_bytes
        self._divisor = divisor
        self._clock_hz = clock_hz
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        sizes = {"address_bits": config.address_bits, "data_bytes": config.host_bus_bytes}
        m.submodules.tpu = tpu = TPU(config=config)
        m.submodules.bridge = bridge = SerialBridge(
            divisor=self._divisor,
            address_bits=config.address_bits,
            board_words={
                BoardWord.IDENTITY: IDENTITY,
                BoardWord.MEMORY_BYTES: self._memory_bytes,
                BoardWord.CLOCK_HZ: self._clock_hz,
                BoardWord.CONFIGURATION: configuration_word(config),
            },
        )
        m.submodules.host_read = host_read = BurstReadPort(**sizes)
        m.submodules.host_write = host_write = BurstWritePort(**sizes)
        m.submodules.weight_read = weight_read = BurstReadPort(**sizes)
        m.submodules.bridge_port = bridge_port = LiteMemoryPort(**sizes)
        ports = [host_read.access, host_write.access, weight_read.access, bridge_port.access]
        m.submodules.memory = memory = BoardMemory(
            size=self._memory_bytes, ports=len(ports), **sizes
        )
        connect(m, bridge.control, tpu.control)
        connect(m, bridge.memory, bridge_port.bus)
        connect(m, tpu.host_read, host_read.bus)
        connect(m, tpu.host_write, host_write.bus)
        connect(m, tpu.weight_read, weight_read.bus)
        for number, port in enumerate(ports):
            connect(m, port, memory.ports[number])
        m.d.comb += [bridge.rx.eq(self.rx), self.tx.eq(bridge.tx)]
        return m
