# SPDX-License-Identifier: Apache-2.0
"""Results of Measure and Random, shifts by an exponent register, and dither for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import (
    DITHER_BITS,
    EXPONENT_REGISTERS,
    RANDOM_GROUP,
    RANDOM_LANES,
    RANDOM_WARM_UP,
)

Whole = int | NDArray[np.int64]


class Exponents:
    """The exponent registers of one program."""

    def __init__(self) -> None:
        self._registers = [0] * EXPONENT_REGISTERS

    def set(self, register: int, value: int) -> None:
        """Set a register, modulo 2^8."""
        self._registers[register] = held(value)

    def total(self, first: int, second: int, third: int, value: int) -> int:
        """Compute e, the new value of an exponent register, as Measure does."""
        registers = self._registers
        return held(registers[first] + registers[second] - registers[third] + value)

    def shifts(self, register: int) -> tuple[int, int]:
        """Return the left shift l and the right shift r that Activate takes from this register."""
        return shifts(self._registers[register])


def held(value: int) -> int:
    """Return `value` modulo 2^8, as an exponent register keeps it."""
    return (value + 128) % 256 - 128


def shifts(exponent: int) -> tuple[int, int]:
    """Return the left shift l and the right shift r of Activate for a register that holds
    `exponent`.
    """
    return min(max(-exponent, 0), 7), min(max(exponent, 0), 31)


def magnitude_bits(values: NDArray[np.integer[Any]]) -> int:
    """Return the smallest b >= 0 for which all values lie in [-2^b, 2^b - 1]."""
    return int(np.bitwise_or.reduce(values ^ (values >> 31), axis=None)).bit_length()


class Generators:
    """The generators of Random for `cols` columns; their states last from one instruction to the
    next.
    """

    def __init__(self, cols: int) -> None:
        self._cols = cols
        self._states = np.zeros(-(-cols // RANDOM_LANES), np.uint64)

    def lines(self, rows: int, seed: Whole, counter: Whole) -> NDArray[np.int8]:
        """Make the bytes of Random: (rows, cols).

        `seed` and `counter` may be arrays of int64 that broadcast to one shape. Each element of
        this shape is a Random of its own: (rows, ..., cols).
        """
        high = (np.asarray(seed, np.uint64) | np.uint64(1 << 31)) << np.uint64(32)
        start = high | np.asarray(counter, np.uint64)
        groups = np.arange(-(-self._cols // RANDOM_LANES), dtype=np.uint64)
        offsets = groups * np.uint64(RANDOM_GROUP) & np.uint64((1 << 63) - 1)
        self._states = start[..., np.newaxis] ^ offsets
        self._next(RANDOM_WARM_UP)
        x = self._next(rows)
        mixed = x ^ (np.roll(x, -1, axis=-1) & np.roll(x, -2, axis=-1))
        return self._columns(mixed).view(np.int8)

    def dither(self, vectors: int) -> NDArray[np.int64]:
        """Return the random numbers t that Activate adds with `stochastic`: (vectors, cols)."""
        return (self._columns(self._next(vectors)) % (1 << DITHER_BITS)).astype(np.int64)

    def _columns(self, x: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Remove the columns beyond `cols`: from (..., groups, RANDOM_LANES) to (..., cols)."""
        return np.ascontiguousarray(x.reshape(*x.shape[:-2], -1)[..., : self._cols])

    def _next(self, count: int) -> NDArray[np.uint8]:
        """Return the bytes of the generators' next `count` states, lowest first: (count, ...,
        RANDOM_LANES).
        """
        x = self._states
        states = np.empty((count, *x.shape), "<u8")
        for number in range(count):
            x ^= x << np.uint64(13)
            x ^= x >> np.uint64(7)
            x ^= x << np.uint64(17)
            states[number] = x
        return states.view(np.uint8).reshape(*states.shape, RANDOM_LANES)
