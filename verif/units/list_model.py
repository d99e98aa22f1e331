# SPDX-License-Identifier: Apache-2.0
"""A list of instructions under way as the interlocks see it."""

from __future__ import annotations

from dataclasses import dataclass

SETTLED = 2
"""Cycles after its push in which an `InFlight` does not know an entry."""


@dataclass(eq=False)
class Entry:
    """An instruction that uses addresses `base` to `end` - 1; those below `reached` are done."""

    number: int
    base: int
    end: int
    reached: int = 0
    rises: bool = False
    """Whether it begins at or after the end of the entry before."""

    def needs(self, address: int) -> bool:
        return max(self.base, self.reached) <= address < self.end


class Entries(list[Entry]):
    """A list of entries, oldest first, with the facts that `InFlight` shows of them."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.bits = (depth - 1).bit_length()
        self.left = 0
        """Number of entries that have left."""
        self.reached = 0
        self.last_end = 0
        """End of the youngest entry, even if it has left."""
        self.age = SETTLED
        """Cycles since the youngest came, as far as they matter."""

    @property
    def place(self) -> int:
        """Place of the oldest entry in the ring."""
        return self.left % (1 << self.bits)

    def advance(self, address: int) -> None:
        """Note that the oldest entry needs no address below `address` any longer."""
        self[0].reached = self.reached = address

    def rises(self, entry: Entry) -> bool:
        """Return whether an entry begins at or after the end of the youngest."""
        return self.last_end <= entry.base

    def take(self, entry: Entry) -> None:
        """Append an entry."""
        entry.rises = self.rises(entry)
        self.last_end = entry.end
        self.append(entry)
        self.age = 0
        if len(self) == 1 and not entry.rises:
            self.reached = 0

    def retire(self) -> None:
        """Remove the oldest entry."""
        self.left += 1
        self.pop(0)
        if self and not self[0].rises:
            self.reached = 0

    def progress(self, *, retires: bool = False) -> dict[str, int]:
        """Return the fields of a `Progress`."""
        return {
            "retires": retires,
            "place": self.place,
            "reached": self.reached,
        }

    @property
    def fresh(self) -> Entry | None:
        """Return the youngest entry, if it is not SETTLED."""
        return self[-1] if self and self.age < SETTLED else None

    @property
    def under_way(self) -> bool:
        """Return whether the oldest entry may change: it exists, and it is not fresh."""
        return bool(self) and self[0] is not self.fresh

    def shown(self, *, retires: bool) -> dict[str, int]:
        """Return the `progress` that an `InFlight` shows in the next cycle; call it in each cycle.

        It does not know how far a fresh entry has come.
        """
        progress = self.progress(retires=retires)
        if self and not self.under_way:
            del progress["reached"]
        self.age = min(self.age + 1, SETTLED)
        return progress

    def mask(self, awaits: set[int]) -> dict[str, int]:
        """Return the `Awaited` of an instruction that waits for the entries with these numbers."""
        hits = [i for i, entry in enumerate(self) if entry.number in awaits]
        if not hits:
            return {"pending": 0, "place": self.place, "run": 0}
        last = first = hits[-1]
        while first > hits[0] and self[first].rises:
            first -= 1
        # A run may have an entry in its middle that is not waited for, but does not begin with it.
        first = next(i for i in hits if i >= first)
        place = (self.left + last) % (1 << self.bits)
        return {"pending": 1, "place": place, "run": last - first}

    def holds(self, mask: dict[str, int], address: int | None) -> bool:
        """Return whether a mask for the present list holds an address back.

        Without an address, return whether the mask names an entry at all.
        """
        if not mask["pending"]:
            return False
        ahead = (mask["place"] - self.place) % (1 << self.bits)
        return address is None or not (ahead <= mask["run"] and address < self.reached)

    def kept(self, mask: dict[str, int], retires: bool) -> dict[str, int]:
        """Return a mask as it is after the end of a cycle."""
        leaves = retires and mask["place"] == self.place
        return {**mask, "pending": int(mask["pending"] and not leaves)}
