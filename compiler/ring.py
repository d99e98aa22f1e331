# SPDX-License-Identifier: Apache-2.0
"""Places of a memory that are used one after the other, over and over."""

from __future__ import annotations


class Ring:
    """Hands out consecutive places of a memory, from the start again at its end."""

    def __init__(self, base: int, size: int) -> None:
        self._base, self._size, self._next = base, size, 0

    def take(self, count: int) -> int:
        """Address of `count` places in a row."""
        if self._next + count > self._size:
            self._next = 0
        start = self._base + self._next
        self._next += count
        return start
