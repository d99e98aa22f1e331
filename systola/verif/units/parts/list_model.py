# SPDX-License-Identifier: Apache-2.0
"""A model of a list of instructions under way, with the facts that interlocks see."""

from __future__ import annotations

from dataclasses import dataclass

SETTLED = 2
"""The number of cycles after an entry's push, until the unit `InFlight` shows its progress."""


@dataclass(eq=False)
class Entry:
    """An instruction under way that uses addresses `base` to `end` - 1.

    It no longer needs addresses below `reached`.
    """

    number: int
    base: int
    end: int
    reached: int = 0
    rises: bool = False
    """Whether the entry begins at or after the end of the entry before."""

    def needs(self, address: int) -> bool:
        return max(self.base, self.reached) <= address < self.end


class Entries(list[Entry]):
    """A list of entries, oldest first, with the facts that `InFlight` shows about them."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth
        self.bits = (depth - 1).bit_length()
        self.left = 0
        """The number of entries that have left the list since the start."""
        self.reached = 0
        self.last_end = 0
        """The end of the addresses of the last pushed entry, which may have left the list."""
        self.age = SETTLED
        """The number of cycles since the youngest entry came; SETTLED stands for all larger
        numbers.
        """

    @property
    def place(self) -> int:
        """The number of the oldest entry's place in the ring of places that `InFlight` has."""
        return self.left % (1 << self.bits)

    def advance(self, address: int) -> None:
        """Note that the oldest entry needs no address below `address` any longer."""
        self[0].reached = self.reached = address

    def rises(self, entry: Entry) -> bool:
        """Return whether `entry` begins at or after the end of the youngest entry."""
        return self.last_end <= entry.base

    def take(self, entry: Entry) -> None:
        """Append an entry to the list."""
        entry.rises = self.rises(entry)
        self.last_end = entry.end
        self.append(entry)
        self.age = 0
        if len(self) == 1 and not entry.rises:
            self.reached = 0

    def retire(self) -> None:
        """Remove the oldest entry from the list."""
        self.left += 1
        self.pop(0)
        if self and not self[0].rises:
            self.reached = 0

    def progress(self, *, retires: bool = False) -> dict[str, int]:
        """Return the fields of a `Progress` for the present list."""
        return {
            "retires": retires,
            "place": self.place,
            "reached": self.reached,
        }

    @property
    def fresh(self) -> Entry | None:
        """The youngest entry if it is not yet SETTLED, or else None."""
        return self[-1] if self and self.age < SETTLED else None

    @property
    def under_way(self) -> bool:
        """Whether the oldest entry may change: it must exist, and must not be fresh."""
        return bool(self) and self[0] is not self.fresh

    def shown(self, *, retires: bool) -> dict[str, int]:
        """Return the `progress` that `InFlight` must show; to be called once in each cycle.

        `reached` is missing while the oldest entry is fresh, as any value may then be shown.
        """
        progress = self.progress(retires=retires)
        if self and not self.under_way:
            del progress["reached"]
        self.age = min(self.age + 1, SETTLED)
        return progress

    def mask(self, awaits: set[int]) -> dict[str, int]:
        """Return the mask (an `Awaited`) of an instruction that waits for certain entries.

        `awaits` has the numbers of the entries to wait for.
        """
        hits = [i for i, entry in enumerate(self) if entry.number in awaits]
        if not hits:
            return {"pending": 0, "place": self.place, "run": 0}
        last = first = hits[-1]
        while first > hits[0] and self[first].rises:
            first -= 1
        # A run of rising entries begins with an entry to wait for, but others may be in its middle.
        first = next(i for i in hits if i >= first)
        place = (self.left + last) % (1 << self.bits)
        return {"pending": 1, "place": place, "run": last - first}

    def holds(self, mask: dict[str, int], address: int | None) -> bool:
        """Return whether `mask`, for the present list, holds back a use of `address`.

        Without an address, return whether the mask names an entry at all.
        """
        if not mask["pending"]:
            return False
        ahead = (mask["place"] - self.place) % (1 << self.bits)
        return address is None or not (ahead <= mask["run"] and address < self.reached)

    def kept(self, mask: dict[str, int], retires: bool) -> dict[str, int]:
        """Return `mask` as it is after the end of a cycle, in which the oldest entry may leave."""
        leaves = retires and mask["place"] == self.place
        return {**mask, "pending": int(mask["pending"] and not leaves)}
