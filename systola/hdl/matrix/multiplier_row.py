# SPDX-License-Identifier: Apache-2.0
"""The multipliers of one row of the array, and the weights in use."""

from amaranth.hdl import Module, Shape, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.matrix import multiplier_row_ecp5 as ecp5
from systola.hdl.matrix import multiplier_row_gowin as gowin
from systola.hdl.matrix import multiplier_row_ice40 as ice40
from systola.hdl.matrix import multiplier_row_logic as logic
from systola.hdl.matrix import multiplier_row_nexus as nexus
from systola.hdl.matrix import multiplier_row_xilinx7 as xilinx7
from systola.hdl.parts.fabric import Fabric, fabric_of

PRODUCT_LATENCY = 3
"""Cycles from an activation to its products.

These are the registers of a DSP block: of the operands, inside the multiplier, and of the product.
"""


def operand_shape(*, wide: bool) -> Shape:
    """Return the shape of an operand: int8, or with 16-bit modes -128 to 255 for a byte of
    int16."""
    return signed(9 if wide else 8)


def product_shape(*, wide: bool) -> Shape:
    """Return the shape of a product of two operands.

    With 16-bit modes it is at least -128 * 255 and at most 255 * 255, else at most 128 * 128.
    """
    return signed(17 if wide else 16)


class MultiplierRow(wiring.Component):
    """A row of multipliers that keep their weights; each group of columns shares an activation.

    Group g has `columns_per_stage` columns. `products[c]` is the product of `activations[g]` and
    the weight of column c, PRODUCT_LATENCY cycles later. Throughput: a product a cycle in each
    column.

    | port          | meaning |
    |---|---|
    | `activations` | the activation of each group |
    | `weights`     | the weights of the columns, taken with `load` |
    | `enable`      | a bit for each group: the group works in this cycle |
    | `load`        | a bit for each group: takes `weights`, for the activation of this cycle and
                      all later ones |
    | `products`    | the products of the columns |

    Without `enable` nothing moves, and nothing is loaded. All bits of `enable` have the same value.
    Each group has a bit of its own, so that a bit has few users.

    `products_per_dsp`: products that share a DSP block, where the fabric leaves the choice. With 0,
    on an ECP5, no block is used.
    """

    def __init__(self, *, cols: int, columns_per_stage: int, wide: bool, products_per_dsp: int):
        self._cols = cols
        self._products_per_dsp = products_per_dsp
        self._columns_per_stage = columns_per_stage
        self._wide = wide
        stages = -(-cols // columns_per_stage)
        operand = operand_shape(wide=wide)
        super().__init__(
            {
                "activations": In(data.ArrayLayout(operand, stages)),
                "weights": In(data.ArrayLayout(operand, cols)),
                "enable": In(stages),
                "load": In(stages),
                "products": Out(data.ArrayLayout(product_shape(wide=wide), cols)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        match fabric_of(platform):
            case Fabric.ECP5 if self._products_per_dsp == 0:
                multiply = logic.multiply
            case Fabric.ECP5 if self._products_per_dsp == 2:
                multiply = ecp5.multiply_pairs
            case Fabric.ECP5:
                multiply = ecp5.multiply
            case Fabric.GOWIN:
                multiply = gowin.multiply
            case Fabric.ICE40:
                multiply = ice40.multiply
            case Fabric.NEXUS:
                multiply = nexus.multiply
            case Fabric.XILINX7:
                multiply = xilinx7.multiply
            case _:
                multiply = _multiply
        for stage, first in enumerate(range(0, self._cols, self._columns_per_stage)):
            columns = range(first, min(first + self._columns_per_stage, self._cols))
            products = multiply(
                m,
                activation=self.activations[stage],
                weights=[self.weights[c] for c in columns],
                enable=self.enable[stage],
                load=self.enable[stage] & self.load[stage],
                name=f"_{stage}",
            )
            m.d.comb += [self.products[c].eq(p) for c, p in zip(columns, products, strict=True)]
        return m


def _multiply(
    m: Module, *, activation: Value, weights: list[Value], enable: Value, load: Value, name: str
) -> list[Value]:
    """Return the products of one activation and several weights, in plain Amaranth."""
    operand = Signal.like(activation, name=f"activation{name}", reset_less=True)
    with m.If(enable):
        m.d.sync += operand.eq(activation)
    results: list[Value] = []
    for c, weight in enumerate(weights):
        factor = Signal.like(weight, name=f"factor{name}_{c}", reset_less=True)
        product = Signal.like(operand * factor, name=f"product{name}_{c}", reset_less=True)
        result = Signal.like(product, name=f"result{name}_{c}", reset_less=True)
        with m.If(load):
            m.d.sync += factor.eq(weight)
        with m.If(enable):
            m.d.sync += [product.eq(operand * factor), result.eq(product)]
        results.append(result)
    return results
