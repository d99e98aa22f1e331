# SPDX-License-Identifier: Apache-2.0
"""The multipliers that the decoder's instructions share."""

from amaranth.hdl import Cat, Module, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.arch.config import Config
from systola.hdl.parts.multiplier import WIDTH_LIMIT, Multiplier


def operand_bits(config: Config) -> dict[str, tuple[int, int]]:
    """Widths of the operands of each product: lines that are read or copied, rows or lines that
    result, weight tiles, and the distance of the last row or block from the first."""
    places = max(16, place_bits(config))
    return {"lines": (places, 12), "results": (places, 12), "tiles": (24, 16), "spread": (24, 16)}


def place_bits(config: Config) -> int:
    """Bits that tell a number of lines or rows that is too large from one that is not."""
    return ceil_log2(max(config.buffer_lines, config.accumulator_rows) + 1)


class Operands(data.StructLayout):
    """Two operands for each product."""

    def __init__(self, *, config: Config):
        super().__init__(
            {
                name: data.StructLayout({"a": wide, "b": narrow})
                for name, (wide, narrow) in operand_bits(config).items()
            }
        )


class Products(data.StructLayout):
    """The products."""

    def __init__(self, *, config: Config):
        super().__init__({name: sum(bits) for name, bits in operand_bits(config).items()})


class ProductUnit(wiring.Component):
    """`products` of `operands`, one of each a cycle while `enable`, with the latency of a
    Multiplier.

    Operands beyond WIDTH_LIMIT bits are cut in two, so that their product comes out of an adder.
    """

    def __init__(self, *, config: Config):
        self._config = config
        super().__init__(
            {
                "operands": In(Operands(config=config)),
                "enable": In(1),
                "products": Out(Products(config=config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name, (wide, narrow) in operand_bits(self._config).items():
            operands, product = self.operands[name], self.products[name]
            low_bits = min(wide, WIDTH_LIMIT)
            low = m.submodules[name] = Multiplier(a=unsigned(low_bits), b=unsigned(narrow))
            m.d.comb += [
                low.a.eq(operands.a[:low_bits]),
                low.b.eq(operands.b),
                low.enable.eq(self.enable),
                product.eq(low.product),
            ]
            if wide > low_bits:
                high = m.submodules[f"{name}_high"] = Multiplier(
                    a=unsigned(wide - low_bits), b=unsigned(narrow)
                )
                m.d.comb += [
                    high.a.eq(operands.a[low_bits:]),
                    high.b.eq(operands.b),
                    high.enable.eq(self.enable),
                    product.eq(Cat(low.product[:low_bits], low.product[low_bits:] + high.product)),
                ]
        return m
