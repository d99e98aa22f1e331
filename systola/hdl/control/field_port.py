# SPDX-License-Identifier: Apache-2.0
"""Fields of an instruction word, one a cycle."""

from collections.abc import Collection, Sequence

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.isa import PLACE_BITS
from systola.hdl.control.step_row import CELL_BITS

PART_BITS = 32
"""An instruction word is read in two neighbouring parts of this many bits."""


class FieldPort(wiring.Component):
    """The field that begins `offset` half bytes above the lower end of `pair`, as a number.

    `widths` are the widths that fields have, and signed fields have `signed_widths`. `width`
    is the place of a width among `widths`, or their number for no field, which is 0. `width` and
    `signed` belong to the pair of the cycle before, and `field` is the field in it,
    combinationally. Latency one cycle from `pair` and `offset`, none from the other inputs.
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
        shifted = Signal(CELL_BITS, reset_less=True)
        rest: Value = self.pair
        for level in reversed(range(len(self.offset))):
            # Only bits that a field may still reach go on.
            reach = CELL_BITS + PLACE_BITS * ((1 << level) - 1)
            rest = Mux(self.offset[level], rest[PLACE_BITS << level :], rest)[:reach]
        m.d.sync += shifted.eq(rest)
        sign = Signal()
        inside = Signal(CELL_BITS)
        with m.Switch(self.width):
            for number, width in enumerate(self._widths):
                with m.Case(number):
                    m.d.comb += inside.eq((1 << width) - 1)
                    if width in self._signed:
                        m.d.comb += sign.eq(self.signed & shifted[width - 1])
        m.d.comb += self.field.eq((shifted & inside) | (sign.replicate(CELL_BITS) & ~inside))
        return m
