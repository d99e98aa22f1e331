# SPDX-License-Identifier: Apache-2.0
"""Generated programs of loops that may not fit in the instruction buffer.

Their jumps then lead to instructions that must be fetched again.
"""

from __future__ import annotations

import random

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import INSTRUCTION_BYTES, LOOP_DEPTH, Opcode, encode
from systola.verif.kit.copies import lines_out
from systola.verif.kit.images import make_image, random_memory

_EXECUTED = 1200
"""The largest number of instructions that a program executes."""
_LINES = 256
_DATA, _OUTPUT, _PROGRAM = (HOST_PAGE_BYTES * page for page in (0, 1, 2))


def loop_program(config: Config, seed: str) -> Image:
    """Make a program of nested loops that count passes, copy lines in order, and leave tags."""
    rng = random.Random(f"{config.name} {seed}")
    data = np.random.default_rng(rng.getrandbits(64))
    writer = _Writer(config, rng)
    while (left := _EXECUTED - writer.executed) > 100:
        writer.loop(left, 1, LOOP_DEPTH)
    writer.end()
    size = len(writer.words) * INSTRUCTION_BYTES
    pages = 2 + -(-size // HOST_PAGE_BYTES)
    return make_image(writer.words, host=random_memory(data, pages + 1), program_offset=_PROGRAM)


class _Writer:
    def __init__(self, config: Config, rng: random.Random) -> None:
        self._config, self._rng = config, rng
        self._line = rng.choice((0, config.buffer_lines - _LINES))
        self.words: list[bytes] = []
        self.executed = 0
        self._copied = 0
        self._read(_LINES)

    def loop(self, most: int, times: int, depth: int) -> None:
        """Write a loop, perhaps with other loops in it, that executes at most `most` instructions.

        The surrounding loops execute the whole loop `times` times.
        """
        rng = self._rng
        count = rng.randint(2, min(5, max(2, most // 30)))
        most //= count
        self._emit(times, Opcode.LOOP, count=count)
        times *= count
        self._some(rng.choice((rng.randint(0, 8), rng.randint(0, most // 2))), times)
        if depth > 1 and most > 60 and rng.random() < 0.7:
            self.loop(most // 2, times, depth - 1)
            self._some(rng.choice((0, rng.randint(0, 8), rng.randint(0, most // 3))), times)
        self._emit(times, Opcode.END_LOOP)

    def _some(self, length: int, times: int) -> None:
        """Write `length` random steps in a row: NOPs, tags, and copies of one line."""
        rng, bus = self._rng, self._config.host_bus_bytes
        for _ in range(length):
            kind = rng.random()
            if kind < 0.6:
                self._emit(times, Opcode.NOP)
            elif kind < 0.8 or self._copied + times > _LINES:
                self._emit(times, Opcode.DEBUG_TAG, tag=rng.getrandbits(16))
            else:
                # Index register 1 counts bytes, register 2 lines.
                self._read(1, times, host_register=1, buffer_register=2)
                self._emit(times, Opcode.SET_REGISTER, register=1, value=bus, first=1)
                self._emit(times, Opcode.SET_REGISTER, register=2, value=1, first=2)
                self._copied += times

    def _read(self, rows: int, times: int = 1, **registers: int) -> None:
        self._emit(
            times,
            Opcode.READ_HOST_MEMORY,
            **{"host": _DATA, "buffer": self._line, "rows": rows, "blocks": 1},
            **{"stride": self._config.host_bus_bytes, "tail": self._config.rows},
            **registers,
        )

    def end(self) -> None:
        """Copy all lines to host memory at the end of the program."""
        self._emit(
            1,
            Opcode.WRITE_HOST_MEMORY,
            **lines_out(self._config, host=_OUTPUT, line=self._line, rows=_LINES),
        )
        self._emit(1, Opcode.HALT)

    def _emit(self, times: int, opcode: Opcode, **operands: int) -> None:
        self.words.append(encode(opcode, **operands))
        self.executed += times
