# SPDX-License-Identifier: Apache-2.0
"""A search for the instruction that is the last to write a certain byte of the host window."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from systola.arch.assembler import disassemble
from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import Opcode
from systola.golden.machine import Machine
from systola.golden.outcome import LimitReached

_LIMIT = 100_000
"""The largest number of instructions that the search executes."""


@dataclass(frozen=True)
class Writer:
    """A record of the instruction that wrote a byte, and of the byte's row and column.

    `number` counts the program's instructions from 0. The row and the column are in the matrix that
    the instruction writes.
    """

    number: int
    row: int
    column: int


def last_writer(config: Config, image: Image, place: int) -> Writer | None:
    """Return the last instruction that writes byte `place` of the host window on the golden model.

    The result is None if no instruction writes the byte. The result does not depend on the contents
    of the memories.
    """
    machine = _Watched(config, place)
    with suppress(LimitReached):
        machine.run(image.host.copy(), image.weights, image.program_offset, limit=_LIMIT)
    return machine.writer


def blame(config: Config, image: Image, place: int, cycle: int | None) -> str:
    """Describe which instruction should have written a wrong byte of the host window.

    `cycle` is the time of the machine's last write to the byte, in cycles after START.
    """
    writer = last_writer(config, image, place)
    if writer is None:
        text = f"no instruction writes byte 0x{place:x}"
    else:
        word = disassemble(image.program).splitlines()[writer.number]
        text = (
            f"byte 0x{place:x} is row {writer.row}, column {writer.column} of what instruction "
            f"{writer.number} writes: {word}"
        )
    when = f"wrote it in cycle {cycle} after START" if cycle is not None else "has not written it"
    return f"{text}\nthe machine {when}"


class _Watched(Machine):
    """A golden model that notes the last instruction that writes a certain byte of the host
    window.
    """

    def __init__(self, config: Config, place: int):
        super().__init__(config)
        self.writer: Writer | None = None
        for opcode in (Opcode.WRITE_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY_ALTERNATE):
            self._execute[opcode] = self._watch(opcode, self._execute[opcode], place)

    def _watch(self, opcode: Opcode, write: Callable[..., None], place: int) -> Callable[..., None]:
        rows_first = opcode == Opcode.WRITE_HOST_MEMORY_ALTERNATE

        def watched(**operands: int) -> None:
            write(**operands)
            found = self._places(place, **operands)
            if found:
                # One opcode copies block after block, the alternate opcode row after row.
                row, block, byte = max(found, key=lambda at: at[:2] if rows_first else at[1::-1])
                self.writer = Writer(self._next - 1, row, block * self.config.cols + byte)

        return watched

    def _places(
        self, place: int, *, host: int, rows: int, stride: int, blocks: int, tail: int, buffer: int
    ) -> list[tuple[int, int, int]]:
        """Return row, block and byte within the block of each element that a copy writes to
        `place`.

        If several rows of a block overlap at this byte, only the last row is returned.
        """
        found: list[tuple[int, int, int]] = []
        for block in range(blocks):
            count = tail if block == blocks - 1 else self.config.cols
            offset = place - host - block * self.config.output_pitch
            if offset < 0:
                continue
            row = min(rows - 1, offset // stride) if stride else rows - 1
            if offset - row * stride < count:
                found.append((row, block, offset - row * stride))
        return found
