# SPDX-License-Identifier: Apache-2.0
"""Commands of the sequencer to the link unit, and the addresses that its interlocks compare."""

from amaranth.hdl import Cat, Value
from amaranth.lib import data
from amaranth.utils import bits_for

from systola.arch.config import Config

ROW_COUNT_BITS = 16
"""Width in bits of the number of lines or rows of an instruction of the links."""


def place_bits(config: Config) -> int:
    """Return the width in bits of a line's or row's number, and of the end of a region."""
    return bits_for(max(config.buffer_lines, config.accumulator_rows))


def link_address_bits(config: Config) -> int:
    """Return the width in bits of a `link_address`."""
    return place_bits(config) + 1


def link_address(place: Value, sums: Value, config: Config) -> Value:
    """Return the address of a line or row in the address space of the links' interlocks.

    The low bits are the number of the line or row. The highest bit is set for a row.
    """
    return Cat(place[: place_bits(config)], sums)


class LinkCommand(data.StructLayout):
    """A command that names `rows` lines or, with `sums`, accumulator rows from `place` on.

    With `adds`, the rows that arrive are added to the rows in the accumulators.
    """

    def __init__(self, *, config: Config):
        super().__init__(
            {"sums": 1, "adds": 1, "place": place_bits(config), "rows": ROW_COUNT_BITS}
        )


class LinkRow(data.StructLayout):
    """A line or row of a LinkCommand. `last`: no line or row of the instruction follows."""

    def __init__(self, *, config: Config):
        super().__init__({"sums": 1, "adds": 1, "last": 1, "place": place_bits(config)})
