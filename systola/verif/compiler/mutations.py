# SPDX-License-Identifier: Apache-2.0
"""Random damage to the bytes of a file, independent of the file's format."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

EDGE = 2500
"""Distance in bytes from the ends of a model file within which most of its structure lies.

The rest of a model file is mostly weights.
"""
WORDS = (0, 1, 2, 4, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 1 << 20, (1 << 31) - 1, 1 << 31)
"""Numbers of 32 bits, put into a file as they are or with all bits inverted.

These numbers are likely to show faults, as most are at the limits of number formats.
"""
MOST_CHANGES = 4


def mutated_bytes(rng: Random, content: bytes, other: bytes) -> tuple[bytes, str]:
    """Return `content` after a few random changes, and a description of the changes.

    Some of the changes put in pieces of the file `other`.
    """
    mutant = bytearray(content)
    done: list[str] = []
    for _ in range(rng.randint(1, MOST_CHANGES)):
        change = rng.choice(_CHANGES)
        at = _place(rng, mutant)
        change(rng, mutant, at, other)
        done.append(f"{change.__name__[1:]} at {at}")
    if rng.random() < 0.1:
        at = _place(rng, mutant)
        del mutant[at:]
        done.append(f"cut at {at}")
    return bytes(mutant), ", ".join(done)


def _place(rng: Random, content: bytearray) -> int:
    """Return a random byte offset in `content`, mostly near to the beginning or the end."""
    size = len(content)
    if size == 0 or rng.random() < 0.2:
        return rng.randrange(size + 1)
    edge = rng.randrange(min(EDGE, size))
    return rng.choice((edge, size - 1 - edge))


def _flip(rng: Random, content: bytearray, at: int, other: bytes) -> None:
    if at < len(content):
        content[at] ^= 1 << rng.randrange(8)


def _byte(rng: Random, content: bytearray, at: int, other: bytes) -> None:
    content[at : at + 1] = rng.randbytes(1)


def _word(rng: Random, content: bytearray, at: int, other: bytes) -> None:
    number = rng.choice(WORDS) ^ rng.choice((0, (1 << 32) - 1))
    at -= at % 4
    content[at : at + 4] = number.to_bytes(4, "little")


def _insertion(rng: Random, content: bytearray, at: int, other: bytes) -> None:
    content[at:at] = rng.randbytes(rng.choice((1, 4, 16, 100)))


def _deletion(rng: Random, content: bytearray, at: int, other: bytes) -> None:
    del content[at : at + rng.choice((1, 4, 16, 100))]


def _copy(rng: Random, content: bytearray, at: int, other: bytes) -> None:
    """Overwrite a block of the file with a block from another place in the file."""
    size = rng.choice((4, 16, 100))
    source = _place(rng, content)
    content[at : at + size] = content[source : source + size]


def _splice(rng: Random, content: bytearray, at: int, other: bytes) -> None:
    """Overwrite some or all bytes up to the end with bytes from a place in the file `other`."""
    source = rng.choice((at, _place(rng, bytearray(other))))
    size = rng.choice((4, 16, 100, len(content)))
    content[at : at + size] = other[source : source + size]


_CHANGES: tuple[Callable[[Random, bytearray, int, bytes], None], ...] = (
    _flip,
    _byte,
    _word,
    _insertion,
    _deletion,
    _copy,
    _splice,
)
