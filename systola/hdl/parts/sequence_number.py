# SPDX-License-Identifier: Apache-2.0
"""Sequence numbers of the entries of a list, and the rules by which an instruction waits for them.

A list numbers its entries one after the other, modulo 2^NUMBER_BITS. An instruction that waits for
an entry keeps its number, which never changes. It compares this number with the number of the
oldest entry. So nothing has to clear a mask when an entry leaves its list.
"""

from amaranth.hdl import Value
from amaranth.lib import data

NUMBER_BITS = 7
PLACE_BITS = 3
"""Number of low bits of a sequence number that tell apart all entries in a list at one time."""
SPAN = 48
"""Number of instructions in a span, see Spans."""


class Numbered(data.StructLayout):
    """A mask that names one entry of a list by its number.

    | field  | meaning |
    |---|---|
    | `last` | number of the youngest entry that the instruction waits for |
    | `run`  | number of older entries in its run; each entry of a run but the oldest rises |

    A mask without an entry to wait for names one that left its list long ago.
    """

    def __init__(self) -> None:
        super().__init__({"last": NUMBER_BITS, "run": PLACE_BITS})


def distance(number: Value, oldest: Value) -> Value:
    """Return how many entries of a list are older than the entry with a number."""
    return (number - oldest)[:NUMBER_BITS]


def gone(number: Value, oldest: Value) -> Value:
    """Return whether an entry has left its list; `oldest` is the number of the oldest entry.

    The answer is right while at most 2^NUMBER_BITS - 2^PLACE_BITS entries have left the list from
    the named entry on. `Spans` ensures this.
    """
    return distance(number, oldest)[PLACE_BITS:].any()


def waits(mask: data.View, oldest: Value, below: Value) -> Value:
    """Return whether an instruction with a mask must not touch an address yet.

    It may touch the address if the named entry has left its list. It may also do so if the oldest
    entry belongs to the run of the named one, and has got past the address: `below` is true then.
    """
    ahead = distance(mask.last, oldest)
    return ~ahead[PLACE_BITS:].any() & ~(below & (ahead[:PLACE_BITS] <= mask.run))
