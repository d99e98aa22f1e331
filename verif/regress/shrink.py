# SPDX-License-Identifier: Apache-2.0
"""A failing program made as short as it can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from systola.arch.image import Image
from systola.arch.isa import INSTRUCTION_BYTES, Opcode, encode
from systola.verif.kit.images import make_image

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
