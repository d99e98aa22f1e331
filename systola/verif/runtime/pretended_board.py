# SPDX-License-Identifier: Apache-2.0
"""A simulated board on a serial line, with the golden model as its machine and optional faults."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.registers import IDENTITY, VERSION, Control, Register, Status
from systola.arch.serial_protocol import IDENTITY as BOARD_IDENTITY
from systola.arch.serial_protocol import (
    BoardWord,
    Operation,
    configuration_word,
    decode_frame,
    encode_frame,
)
from systola.golden.machine import Machine


@dataclass(frozen=True, kw_only=True)
class Faults:
    """The faults of a simulated board; with the default values it has none."""

    identity: int = BOARD_IDENTITY
    version: int = VERSION
    register_bits: int = 0xFFFF_FFFF
    """Mask of the bits that exist in register BUS_TIMEOUT."""
    address_bits: int = 0xFFFF_FFFF
    """Mask of the bits that are connected in memory addresses."""
    data_bits: int = 0xFFFF_FFFF
    """Mask of the bits that memory keeps of each word."""
    wrong_run: int = 0
    """Number of the program, from 1, after which the host window is wrong; 0 for no such fault."""


class PretendedBoard:
    """A serial line to a simulated board, which runs programs at once on a machine `config`.

    The board has `memory_bytes` of memory.
    """

    name = "a pretended board"

    def __init__(
        self, config: Config, *, memory_bytes: int = 1 << 16, faults: Faults | None = None
    ) -> None:
        self._config = config
        self._faults = faults or Faults()
        self._machine = Machine(config)
        self._memory = np.zeros(memory_bytes, np.uint8)
        self._registers: dict[int, int] = {
            Register.ID: IDENTITY,
            Register.VERSION: self._faults.version,
            Register.GEOMETRY: config.rows | config.cols << 16,
        }
        self._replies = b""
        self._runs = 0

    def write(self, content: bytes) -> None:
        """Take whole frames, as SerialLink sends them, and answer each request."""
        for request in filter(None, map(decode_frame, content.split(b"\xc0"))):
            self._replies += encode_frame(self._answer(request))

    def read(self, awaited: int) -> bytes:
        """Return all replies of the board that have not been read."""
        replies, self._replies = self._replies, b""
        return replies

    def _answer(self, request: bytes) -> bytes:
        operation, sequence, count, address = struct.unpack_from("<BBHI", request)
        sent = struct.unpack_from(f"<{(len(request) - 8) // 4}I", request, 8)
        words: list[int] = []
        match operation:
            case Operation.READ_BOARD:
                words = [
                    {
                        BoardWord.IDENTITY: self._faults.identity,
                        BoardWord.MEMORY_BYTES: len(self._memory),
                        BoardWord.CLOCK_HZ: 50_000_000,
                        BoardWord.CONFIGURATION: configuration_word(self._config),
                    }[BoardWord(address)]
                ]
            case Operation.READ_REGISTERS:
                words = [self._registers.get(address + 4 * n, 0) for n in range(count)]
            case Operation.WRITE_REGISTERS:
                self._write_register(address, sent[0])
            case Operation.READ_MEMORY:
                words = [int(self._word(address + 4 * n)[0]) for n in range(count)]
            case _:
                for n, word in enumerate(sent):
                    self._word(address + 4 * n)[0] = word & self._faults.data_bits
        return struct.pack(f"<BBH{len(words)}I", 0, sequence, len(words), *words)

    def _word(self, address: int) -> np.ndarray:
        place = address & self._faults.address_bits
        return self._memory[place : place + 4].view("<u4")

    def _write_register(self, register: int, value: int) -> None:
        if register == Register.BUS_TIMEOUT:
            value &= self._faults.register_bits
        self._registers[register] = value
        if register == Register.CONTROL and value == Control.START:
            self._run()

    def _run(self) -> None:
        registers = self._registers
        host = self._memory[: registers[Register.HOST_PAGES] * HOST_PAGE_BYTES]
        first = registers[Register.WEIGHT_BASE_LO]
        size = registers[Register.WEIGHT_TILES] * self._config.tile_bytes
        weights = self._memory[first : first + size]
        outcome = self._machine.run(host, weights, registers[Register.PROGRAM])
        assert outcome.fault is None
        self._runs += 1
        if self._runs == self._faults.wrong_run:
            host[:] ^= 1
        registers[Register.STATUS] = Status.DONE
