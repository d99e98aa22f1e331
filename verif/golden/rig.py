# SPDX-License-Identifier: Apache-2.0
"""A golden machine with memories around it, to try instructions on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Fault
from systola.golden.machine import Machine
from systola.golden.outcome import FaultReport, Outcome

PAGE = 4096


class Rig:
    """Machine, host window and weight window. The program goes to the end of the host window."""

    def __init__(self, config: Config, pages: int = 2, tiles: int = 0) -> None:
        self.config = config
        self.machine = Machine(config)
        self.host: NDArray[np.uint8] = np.zeros(pages * PAGE, np.uint8)
        self.weights: NDArray[np.uint8] = np.zeros(tiles * config.tile_bytes, np.uint8)

    def place(self, program: bytes) -> int:
        """Puts a program at the end of the host window; its offset."""
        offset = (self.host.size - len(program)) // 128 * 128
        self.host[offset : offset + len(program)] = np.frombuffer(program, np.uint8)
        return offset

    def run(self, *words: bytes) -> Outcome:
        """Runs the instructions as they stand."""
        return self.machine.run(self.host, self.weights, self.place(b"".join(words)))

    def complete(self, *words: bytes) -> Outcome:
        """Runs the instructions, which must end at Halt."""
        outcome = self.run(*words)
        assert outcome.fault is None, outcome
        return outcome

    def fault(self, *words: bytes) -> tuple[Fault, int, int]:
        """Runs the instructions, which must fault: cause, pc, address."""
        report = self.run(*words).fault
        assert isinstance(report, FaultReport)
        return report.cause, report.pc, report.address

    def tile(self, number: int) -> NDArray[np.uint8]:
        """Tile `number` of weight memory as a view: (R, row pitch)."""
        size = self.config.tile_bytes
        return self.weights[number * size : (number + 1) * size].reshape(self.config.rows, -1)
