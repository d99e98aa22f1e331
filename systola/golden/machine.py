# SPDX-License-Identifier: Apache-2.0
"""The machine as the text of the instruction set describes it: one instruction at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.isa import (
    INSTRUCTION_BYTES,
    INSTRUCTIONS,
    LINK_OPCODES,
    Fault,
    Instruction,
    Opcode,
    decode,
)
from systola.arch.registers import PROGRAM_ALIGNMENT
from systola.golden.activation import ActivationUnit
from systola.golden.checks import Checks
from systola.golden.control import Control
from systola.golden.legality import fields_legal
from systola.golden.links import link_part
from systola.golden.matrix import MatrixUnit
from systola.golden.outcome import FaultReport, LimitReached, Outcome
from systola.golden.transfers import Transfers


class Machine(Control, Transfers, MatrixUnit, ActivationUnit, Checks):
    """Golden model of a machine of configuration `config`.

    `run` executes a program. The memories (State) start at zero, persist from one run to the next
    and may be read and written between runs. Each instruction is a method of its name, which checks
    nothing and takes effective operands. `run` makes the checks and adds index registers to the
    operands before it calls the method.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._execute: dict[Opcode, Callable[..., None]] = {
            entry.opcode: getattr(self, entry.mnemonic) for entry in INSTRUCTIONS
        }

    def run(
        self,
        host: NDArray[np.uint8],
        weights: NDArray[np.uint8],
        program_offset: int,
        *,
        limit: int | None = None,
    ) -> Outcome:
        """Execute the program at byte `program_offset` of `host` up to Halt or a fault.

        `host` is the host window: 1-D, contiguous, whole pages of 4096 bytes, modified in place.
        `weights` is the weight window: 1-D, whole tiles of `config.tile_bytes`, may be empty.
        `program_offset` is a multiple of 128. Raises ValueError if an argument breaks these rules,
        and LimitReached before the program executes more than `limit` instructions. The outcome
        reports an error of the program itself. Each instruction is fetched when all earlier ones
        have completed. A machine by itself has no neighbours: instructions of the links end in
        LINK_TIMEOUT here, and run in a pod (golden/pod.py).
        """
        self.start(host, weights, program_offset)
        while True:
            found = self.next_instruction()
            if isinstance(found, Outcome):
                return found
            entry, operands = found
            if self.executed == limit:
                raise LimitReached(
                    f"the program still runs after {limit} instructions, at {self._next}"
                )
            if entry.opcode in LINK_OPCODES:
                return self.stopped(Fault.LINK_TIMEOUT, 0, link_part(entry.opcode, operands))
            self.execute(entry, operands)
            if entry.opcode == Opcode.HALT:
                return self.outcome(None)

    def start(
        self, host: NDArray[np.uint8], weights: NDArray[np.uint8], program_offset: int
    ) -> None:
        """Reset the state and check the windows, as `run` does before the first instruction."""
        config = self.config
        if host.ndim != 1 or host.size % HOST_PAGE_BYTES or not host.flags.c_contiguous:
            raise ValueError(
                f"host window must be 1-D, contiguous, a multiple of {HOST_PAGE_BYTES} bytes"
            )
        if weights.ndim != 1 or weights.size % config.tile_bytes:
            raise ValueError(
                f"weight window must be 1-D, a multiple of {config.tile_bytes} bytes (one tile)"
            )
        if program_offset < 0 or program_offset % PROGRAM_ALIGNMENT:
            raise ValueError(f"program_offset must be a multiple of {PROGRAM_ALIGNMENT}")
        self._host = host
        self._tiles = weights.reshape(
            weights.size // config.tile_bytes, config.rows, config.weight_row_pitch
        )
        self._program = program_offset
        self._reset()

    def next_instruction(self) -> tuple[Instruction, Mapping[str, int]] | Outcome:
        """Return the next instruction and its effective operands, or the program's end if the
        instruction has a fault.
        """
        config, host, pc = self.config, self._host, self._next
        offset = self._program + pc * INSTRUCTION_BYTES
        if offset + INSTRUCTION_BYTES > host.size:
            return self.stopped(Fault.FETCH_WINDOW, pc, offset)
        word = host[offset : offset + INSTRUCTION_BYTES].tobytes()
        decoded = _decoded(word)
        if decoded is None:
            return self.stopped(Fault.ILLEGAL_OPCODE, pc, word[0])
        entry, fields = decoded
        if entry.opcode in LINK_OPCODES and not config.links:
            return self.stopped(Fault.UNAVAILABLE, pc, entry.opcode)
        operands = self._scalar.effective(entry, fields)
        if not fields_legal(config, entry, operands, word):
            return self.stopped(Fault.ILLEGAL_FIELD, pc, 0)
        for cause in entry.checks:
            address = self._failed(cause, entry.opcode, operands)
            if address is not None:
                return self.stopped(cause, pc, address)
        return entry, operands

    def skip(self) -> None:
        """Pass over the next instruction, and continue with the instruction after it."""
        self._next += 1

    def execute(self, entry: Instruction, operands: Mapping[str, int]) -> None:
        """Execute the next instruction, which is not one of the links."""
        self.skip()
        self._execute[entry.opcode](**operands)
        self.executed += 1

    def stopped(self, cause: Fault, pc: int, address: int) -> Outcome:
        """Return the end of the program by a fault."""
        return self.outcome(FaultReport(cause, pc, address & 0xFFFF_FFFF))

    def outcome(self, fault: FaultReport | None) -> Outcome:
        """Return the outcome of a program that ends now, by `fault` or, if it is None, at Halt."""
        return Outcome(fault, tuple(self._interrupts), tuple(self._tags), self.executed)


@lru_cache(maxsize=4096)
def _decoded(word: bytes) -> tuple[Instruction, Mapping[str, int]] | None:
    """Return the result of `decode`, and keep it for further iterations of a loop."""
    return decode(word)
