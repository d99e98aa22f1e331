# SPDX-License-Identifier: Apache-2.0
"""The unit that extracts one field of an instruction word in each cycle."""

from collections.abc import Collection, Sequence

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.isa import PLACE_BITS
from systola.hdl.control.step_row import CELL_BITS

PART_BITS = 32
"""Bits of a part of an instruction word; two neighbouring parts are read at a time."""


class FieldPort(wiring.Component):
    """A unit that extracts a field from two parts of an instruction word, as a number.

    | port     | meaning |
    |---|---|
    | `pair`   | two neighbouring parts of the word |
    | `offset` | number of the half byte of `pair` with which the field begins |
    | `width`  | one cycle later: index of the field's width in `widths`; the length of `widths`
                 means that there is no field |
    | `signed` | with `width`: the field is signed |
    | `field`  | with `width`: the field, or 0 without a field; combinational |

    The parameter `widths` has all widths of fields, and `signed_widths` all widths of signed
    fields.
    """

    def __init__(self, *, widths: Sequence[int], signed_widths: Collection[int]):
        self._widths = tuple(widths)
        self._signed = signed_widths
        super().__init__(
            {
                "pair": In(2 * PART_BITS),
                "offset": In(ceil_log2(PART_BITS // PLACE_BITS)),
                "width": In(ceil_log2(len(widths) + 1)),
                "signed": In(1),
                "field": Out(CELL_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shifted_pair = Signal(CELL_BITS, reset_less=True)
        rest: Value = self.pair
        for level in reversed(range(len(self.offset))):
            # Keep only the bits that a field can still reach by the shifts of the remaining offset
            # bits.
            reach = CELL_BITS + PLACE_BITS * ((1 << level) - 1)
            rest = Mux(self.offset[level], rest[PLACE_BITS << level :], rest)[:reach]
        m.d.sync += shifted_pair.eq(rest)
        field_sign = Signal()
        field_mask = Signal(CELL_BITS)
        with m.Switch(self.width):
            for number, width in enumerate(self._widths):
                with m.Case(number):
                    m.d.comb += field_mask.eq((1 << width) - 1)
                    if width in self._signed:
                        m.d.comb += field_sign.eq(self.signed & shifted_pair[width - 1])
        m.d.comb += self.field.eq(
            (shifted_pair & field_mask) | (field_sign.replicate(CELL_BITS) & ~field_mask)
        )
        return m
