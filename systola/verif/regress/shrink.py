# SPDX-License-Identifier: Apache-2.0
"""A reduction of a failing program to the shortest that still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from systola.arch.image import Image
from systola.arch.isa import INSTRUCTION_BYTES, Opcode, encode
from systola.verif.kit.images import make_image

_Item = TypeVar("_Item")


def words_of(image: Image) -> list[bytes]:
    """Return the instructions of a program."""
    code = image.program
    return [
        code[place : place + INSTRUCTION_BYTES] for place in range(0, len(code), INSTRUCTION_BYTES)
    ]


def with_words(image: Image, words: Sequence[bytes]) -> Image:
    """Return the same data with another program, no longer than the old, which ends at Halt."""
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
    """Return a smallest list of items with which `fails(items)` still holds.

    No single item and no half of them can be left out. `fails(items)` holds at first, and the order
    stays. It is delta debugging (Zeller and Hildebrandt, 2002): pieces are left out, and smaller
    pieces when no piece of a size can be.
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
