# SPDX-License-Identifier: Apache-2.0
"""What Measure and Random compute, and how an exponent register shifts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import EXPONENT_REGISTERS, RANDOM_GROUP, RANDOM_LANES, RANDOM_WARM_UP


class Exponents:
    """The exponent registers of one program."""

    def __init__(self) -> None:
        self._registers = [0] * EXPONENT_REGISTERS

    def set(self, register: int, value: int) -> None:
        """Sets a register, modulo 2^8."""
        self._registers[register] = (value + 128) % 256 - 128

    def total(self, first: int, second: int, third: int, value: int) -> int:
        """The e of Measure."""
        held = self._registers
        return (held[first] + held[second] - held[third] + value + 128) % 256 - 128

    def shifts(self, register: int) -> tuple[int, int]:
        """The l and r of Activate with this register."""
        held = self._registers[register]
        return min(max(-held, 0), 7), min(max(held, 0), 31)


def magnitude_bits(values: NDArray[np.integer[Any]]) -> int:
    """The smallest b >= 0 for which all values lie in [-2^b, 2^b - 1]."""
    return int(np.bitwise_or.reduce(values ^ (values >> 31), axis=None)).bit_length()


def random_lines(rows: int, cols: int, seed: int, counter: int) -> NDArray[np.int8]:
    """The bytes of Random: (rows, cols)."""
    groups = -(-cols // RANDOM_LANES)
    start = (1 << 63) | (seed << 32) | counter
    state = np.array([start ^ (g * RANDOM_GROUP % (1 << 63)) for g in range(groups)], np.uint64)
    left, right, last = np.uint64(13), np.uint64(7), np.uint64(17)
    steps = np.empty((rows, groups), np.uint64)
    for number in range(-RANDOM_WARM_UP, rows):
        state ^= state << left
        state ^= state >> right
        state ^= state << last
        if number >= 0:
            steps[number] = state
    x = steps.astype("<u8").view(np.uint8).reshape(rows, groups, RANDOM_LANES)
    mixed = x ^ (np.roll(x, -1, axis=2) & np.roll(x, -2, axis=2))
    return mixed.reshape(rows, -1)[:, :cols].view(np.int8)
