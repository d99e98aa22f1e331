# SPDX-License-Identifier: Apache-2.0
"""A list of instructions under way as the interlocks see it."""

from __future__ import annotations

from dataclasses import dataclass

SETTLED = 2
"""Cycles behind its push in which an `InFlight` does not know an entry."""


@dataclass(eq=False)
class Entry:
    """An instruction that uses addresses `base` to `end` - 1; below `reached` it does no longer."""

    number: int
    base: int
    end: int
    reached: int = 0
    rises: bool = False
    """It begins where the one before has ended, or behind."""

    def needs(self, address: int) -> bool:
        return max(self.base, self.reached) <= address < self.end


class Entries(list[Entry]):
    """Entries, oldest first, with what `InFlight` tells of them."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.bits = (depth - 1).bit_length()
        self.left = 0
        """Entries that have left."""
        self.reached = 0
        self.last_end = 0
        """Of the youngest, whether or not it is still there."""
        self.age = SETTLED
        """Cycles since the youngest came, as far as they matter."""

    @property
    def place(self) -> int:
        """Of the oldest in the ring."""
        return self.left % (1 << self.bits)

    def advance(self, address: int) -> None:
        """The oldest needs nothing below `address` any longer."""
        self[0].reached = self.reached = address

    def rises(self, entry: Entry) -> bool:
        """Whether an entry begins where the youngest has ended, or behind."""
        return self.last_end <= entry.base

    def take(self, entry: Entry) -> None:
        """Appends an entry."""
        entry.rises = self.rises(entry)
        self.last_end = entry.end
        self.append(entry)
        self.age = 0
        if len(self) == 1 and not entry.rises:
            self.reached = 0

    def retire(self) -> None:
        """The oldest leaves."""
        self.left += 1
        self.pop(0)
        if self and not self[0].rises:
            self.reached = 0

    def progress(self, *, retires: bool = False) -> dict[str, int]:
        """A `Progress`."""
        return {
            "retires": retires,
            "place": self.place,
            "reached": self.reached,
        }

    @property
    def fresh(self) -> Entry | None:
        """The youngest, if it is not SETTLED."""
        return self[-1] if self and self.age < SETTLED else None

    @property
    def under_way(self) -> bool:
        """Whether something may happen to the oldest entry: there is one, and it is not fresh."""
        return bool(self) and self[0] is not self.fresh

    def shown(self, *, retires: bool) -> dict[str, int]:
        """What an `InFlight` shows of `progress` in the next cycle; called in each of them. How far
        a fresh entry has got it does not know."""
        progress = self.progress(retires=retires)
        if self and not self.under_way:
            del progress["reached"]
        self.age = min(self.age + 1, SETTLED)
        return progress

    def mask(self, awaits: set[int]) -> dict[str, int]:
        """The `Awaited` of who waits for the entries with these numbers."""
        hits = [i for i, entry in enumerate(self) if entry.number in awaits]
        if not hits:
            return {"pending": 0, "place": self.place, "run": 0}
        last = first = hits[-1]
        while first > hits[0] and self[first].rises:
            first -= 1
        # An entry that nobody waits for may be in the middle of a run, but does not begin it.
        first = next(i for i in hits if i >= first)
        place = (self.left + last) % (1 << self.bits)
        return {"pending": 1, "place": place, "run": last - first}

    def holds(self, mask: dict[str, int], address: int | None) -> bool:
        """Whether a mask that belongs to the list as it is now holds an address back; without one,
        whether it names an entry at all."""
        if not mask["pending"]:
            return False
        ahead = (mask["place"] - self.place) % (1 << self.bits)
        return address is None or not (ahead <= mask["run"] and address < self.reached)

    def kept(self, mask: dict[str, int], retires: bool) -> dict[str, int]:
        """What a mask becomes with the end of a cycle."""
        leaves = retires and mask["place"] == self.place
        return {**mask, "pending": int(mask["pending"] and not leaves)}
