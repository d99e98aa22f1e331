# SPDX-License-Identifier: Apache-2.0
"""An allocator that takes the addresses of a memory one after another, over and over."""

from __future__ import annotations


class Ring:
    """A ring that hands out consecutive addresses of a memory, and begins again after its end."""

    def __init__(self, base: int, size: int) -> None:
        self._base, self._size, self._next = base, size, 0

    def take(self, count: int) -> int:
        """Return the first of `count` consecutive addresses, which are now taken."""
        if self._next + count > self._size:
            self._next = 0
        start = self._base + self._next
        self._next += count
        return start

    def skip_to(self, count: int) -> None:
        """Continue at the start of the memory if fewer than `count` addresses are left before its
        end.
        """
        if self._next + count > self._size:
            self._next = 0
