# SPDX-License-Identifier: Apache-2.0
"""A simulated FPGA board on a serial line, with the golden model as its machine.

Faults of the board, its memory or its bus can be chosen."""

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
    """The faults of a simulated board; with the default values the board has no fault."""

    identity: int = BOARD_IDENTITY
    version: int = VERSION
    register_bits: int = 0xFFFF_FFFF
    """Mask of the bits that exist in register BUS_TIMEOUT."""
    address_bits: int = 0xFFFF_FFFF
    """Mask of the address bits that are connected to the board's memory."""
    data_bits: int = 0xFFFF_FFFF
    """Mask of the bits of each memory word that the board's memory stores."""
    wrong_run: int = 0
    """Number, from 1, of the program that leaves wrong bytes in the host window; 0 for none."""


class PretendedBoard:
    """A serial line with a simulated board at its other end.

    The board has a golden model of configuration `config`, and `memory_bytes` of memory. A program
    runs to its end at the write of START.
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
        """Take whole frames, as SerialLink sends them, and store a reply to each request."""
        for request in filter(None, map(decode_frame, content.split(b"\xc0"))):
            self._replies += encode_frame(self._answer(request))

    def read(self, awaited: int) -> bytes:
        """Return the bytes of all replies of the board that have not been read yet."""
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
