# SPDX-License-Identifier: Apache-2.0
"""The reduction of a failing program to a shorter program that still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from systola.arch.image import Image
from systola.arch.isa import INSTRUCTION_BYTES, Opcode, encode
from systola.verif.kit.images import make_image

_Item = TypeVar("_Item")


def words_of(image: Image) -> list[bytes]:
    """Return the instruction words of an image's program."""
    code = image.program
    return [
        code[place : place + INSTRUCTION_BYTES] for place in range(0, len(code), INSTRUCTION_BYTES)
    ]


def with_words(image: Image, words: Sequence[bytes]) -> Image:
    """Return an image with the same data and the given instruction words as its program.

    Halt instructions fill the rest of the old program's space.
    """
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
    """Return a short list of items for which `fails` still returns True.

    `fails(items)` must be True. The list has the items in the same order, and no single item can be
    left out. The method is delta debugging (Zeller and Hildebrandt, 2002): pieces of the list are
    left out, and smaller pieces if no piece of a size can be left out.
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
