# SPDX-License-Identifier: Apache-2.0
"""An allocator that hands out the addresses of a memory in order, and begins again at the end."""

from __future__ import annotations


class Ring:
    """An allocator of ranges of addresses from `base` on, `size` addresses in all.

    Each range follows the range before. A range that would pass the end begins at `base` instead,
    and reuses the oldest addresses.
    """

    def __init__(self, base: int, size: int) -> None:
        self._base, self._size, self._next = base, size, 0

    def take(self, count: int) -> int:
        """Take the next `count` consecutive addresses; return the first of them."""
        if self._next + count > self._size:
            self._next = 0
        start = self._base + self._next
        self._next += count
        return start

    def skip_to(self, count: int) -> None:
        """Let the next range begin at `base` if fewer than `count` addresses are left before the
        end.
        """
        if self._next + count > self._size:
            self._next = 0
