# SPDX-License-Identifier: Apache-2.0
"""A failing program made as short as it can be, and the instruction that is to blame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from systola.arch.config import Config
from systola.arch.isa import INSTRUCTION_BYTES, Opcode, encode
from systola.golden.machine import Machine
from systola.golden.outcome import LimitReached
from systola.runtime.backend import Image
from systola.verif.kit.images import make_image
from systola.verif.regress.check import INSTRUCTION_LIMIT, filling

_Item = TypeVar("_Item")


def words_of(image: Image) -> list[bytes]:
    """The instructions of a program."""
    code = image.program
    return [
        code[place : place + INSTRUCTION_BYTES] for place in range(0, len(code), INSTRUCTION_BYTES)
    ]


def with_words(image: Image, words: Sequence[bytes]) -> Image:
    """The same data with another program, no longer than the old one, which ends at Halt."""
    host = image.host.copy()
    host[image.program_offset :][: len(image.program)] = 0
    ends = [] if words and words[-1][0] == Opcode.HALT else [encode(Opcode.HALT)]
    return make_image(
        [*words, *ends][: len(words_of(image))],
        host=host,
        weights=image.weights,
        program_offset=image.program_offset,
    )


def fewest(items: Sequence[_Item], fails: Callable[[Sequence[_Item]], bool]) -> list[_Item]:
    """Items without which it does not fail: none can be left out alone, nor half of them.

    `fails(items)` holds; the order stays. Delta debugging (Zeller and Hildebrandt, 2002): pieces
    are left out, smaller ones when none of a size can be.
    """
    kept = list(items)
    size = max(1, len(kept) // 2)
    while True:
        place = 0
        shorter = False
        while place < len(kept):
            rest = kept[:place] + kept[place + size :]
            if rest and fails(rest):
                kept, shorter = rest, True
            else:
                place += size
        if size == 1 and not shorter:
            return kept
        size = max(1, size // 2)


def last_writer(config: Config, image: Image, place: int) -> int | None:
    """Number of the instruction that is the last to write byte `place` of the host window on the
    golden model; None where none does."""
    machine = _Watched(config, place)
    for program in (filling(config), image):
        machine.writer = None
        try:
            machine.run(
                program.host.copy(),
                program.weights,
                program.program_offset,
                limit=INSTRUCTION_LIMIT,
            )
        except LimitReached:
            break
    return machine.writer


class _Watched(Machine):
    """The golden model with an eye on one byte of the host window."""

    def __init__(self, config: Config, place: int):
        super().__init__(config)
        self.writer: int | None = None
        for opcode in (Opcode.WRITE_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY_ALTERNATE):
            self._execute[opcode] = self._watch(self._execute[opcode], place)

    def _watch(self, write: Callable[..., None], place: int) -> Callable[..., None]:
        def watched(**operands: int) -> None:
            if place >= self._host.size:
                return write(**operands)
            before = self._host[place]
            self._host[place] = ~before
            write(**operands)
            touched = self._host[place] != ~before
            # Written with the complement of what was there: look again with the byte as it was.
            if not touched:
                self._host[place] = before
                write(**operands)
                touched = self._host[place] != before
            if touched:
                self.writer = self._next - 1

        return watched
