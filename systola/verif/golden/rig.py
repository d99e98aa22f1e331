# SPDX-License-Identifier: Apache-2.0
"""A golden machine with memories around it, on which tests try instructions."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config, preset
from systola.arch.isa import Fault, Opcode, encode
from systola.golden.machine import Machine
from systola.golden.outcome import FaultReport, Outcome
from systola.verif.golden import scalar

PAGE = 4096
HALT = encode(Opcode.HALT)

# A machine with a 4x4 array, buses of 4 bytes, 1024 buffer lines, 256 accumulator rows, 32
# parameter entries and 2 tables. It has no depthwise lanes and no 16-bit modes.
TINY = preset("tiny")
SQUARE = dataclasses.replace(TINY, name="square", columns_per_lane=1, depthwise=True, wide=True)
TRAINING = dataclasses.replace(SQUARE, name="training", training=True)
# In TALL, input vectors are longer than output vectors; in BROAD, output vectors are longer.
TALL = dataclasses.replace(SQUARE, name="tall", rows=6, cols=3, columns_per_stage=3)
BROAD = dataclasses.replace(SQUARE, name="broad", rows=3, cols=5)
SHAPES = (SQUARE, TALL, BROAD)
# A machine with no more hardware than TINY. In host memory, input vectors have 6 elements at a
# pitch of 8 bytes, and output vectors have 3 at a pitch of 4. Buffer lines have 6 bytes.
PLAIN_TALL = dataclasses.replace(
    TINY, name="tall", rows=6, cols=3, columns_per_stage=3, columns_per_lane=1
)
# In host memory, input vectors of this machine have 3 elements at a pitch of 4 bytes, and output
# vectors have 5 at a pitch of 8. Buffer lines have 5 bytes.
PLAIN_WIDE = dataclasses.replace(TINY, name="wide", rows=3, cols=5, columns_per_lane=1)


class Rig:
    """A golden machine (golden model of a core) with a host window and a weight window.

    The program to run is placed at the end of the host window.
    """

    def __init__(self, config: Config, pages: int = 2, tiles: int = 0) -> None:
        self.config = config
        self.machine = Machine(config)
        self.host: NDArray[np.uint8] = np.zeros(pages * PAGE, np.uint8)
        self.weights: NDArray[np.uint8] = np.zeros(tiles * config.tile_bytes, np.uint8)

    def randomise(self, rng: random.Random) -> None:
        """Fill the memories on the chip and the weight window at random."""
        machine = self.machine

        def values(count: int) -> NDArray[np.uint8]:
            return np.frombuffer(rng.randbytes(count), np.uint8)

        machine.buffer[:] = values(machine.buffer.size).view(np.int8).reshape(machine.buffer.shape)
        machine.tables[:] = values(machine.tables.size).view(np.int8).reshape(machine.tables.shape)
        machine.accumulators[:] = [
            [
                scalar.wrap32(rng.getrandbits(32)) >> rng.randrange(28)
                for _ in range(self.config.cols)
            ]
            for _ in range(self.config.accumulator_rows)
        ]
        self.weights[:] = values(self.weights.size)
        for entry in range(self.config.parameter_entries):
            # One entry in five has arbitrary numbers. The factors of all others keep sums of some
            # thousands within int8.
            wild = rng.random() < 0.2
            for c in range(self.config.cols):
                bias = scalar.wrap32(rng.getrandbits(32)) >> (rng.randrange(32) if wild else 22)
                self.set_entry(
                    entry,
                    c,
                    scalar.Entry(
                        bias=bias,
                        multiplier=rng.getrandbits(31) | (0 if wild else 1 << 30),
                        left=rng.choice((0, 1, 7)) if wild else 0,
                        right=rng.randrange(32) if wild else rng.randrange(8),
                    ),
                )

    def set_entry(self, number: int, channel: int, entry: scalar.Entry) -> None:
        """Store one channel of parameter entry `number` in the machine."""
        planes = (
            *(entry.bias % 2**32).to_bytes(4, "little"),
            *entry.multiplier.to_bytes(4, "little"),
            entry.left * 32 + entry.right,
        )
        self.machine.parameters[number, :, channel] = planes

    def entry(self, number: int, channel: int) -> scalar.Entry:
        """Return one channel of the machine's parameter entry `number`."""
        planes = bytes(self.machine.parameters[number, :, channel].tolist())
        return scalar.Entry(
            bias=int.from_bytes(planes[0:4], "little", signed=True),
            multiplier=int.from_bytes(planes[4:8], "little") % 2**31,
            left=planes[8] // 32,
            right=planes[8] % 32,
        )

    def lines(self) -> list[list[int]]:
        """Return the unified buffer as lists of int8."""
        return self.machine.buffer.tolist()

    def weight(self, tile: int, row: int, column: int) -> int:
        """Return one int8 of a weight tile."""
        return scalar.signed8(int(self.tile(tile)[row, column]))

    def place(self, program: bytes) -> int:
        """Put a program at the end of the host window and return its offset."""
        offset = (self.host.size - len(program)) // 128 * 128
        self.host[offset : offset + len(program)] = np.frombuffer(program, np.uint8)
        return offset

    def run(self, *words: bytes) -> Outcome:
        """Run a program of the given instructions, and return its outcome."""
        return self.machine.run(self.host, self.weights, self.place(b"".join(words)))

    def complete(self, *words: bytes) -> Outcome:
        """Run a program of these instructions, which must end at Halt, and return its outcome."""
        outcome = self.run(*words)
        assert outcome.fault is None, outcome
        return outcome

    def fault(self, *words: bytes) -> tuple[Fault, int, int]:
        """Run a program that must fault, and return the fault's cause, pc and address."""
        report = self.run(*words).fault
        assert isinstance(report, FaultReport)
        return report.cause, report.pc, report.address

    def tile(self, number: int) -> NDArray[np.uint8]:
        """Return tile `number` of weight memory as a view, of shape (array rows, row pitch)."""
        size = self.config.tile_bytes
        return self.weights[number * size : (number + 1) * size].reshape(self.config.rows, -1)
