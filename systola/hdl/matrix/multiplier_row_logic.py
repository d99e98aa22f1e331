# SPDX-License-Identifier: Apache-2.0
"""Products of a row of the array in look-up tables, where an FPGA has too few blocks for all
rows."""

from amaranth.hdl import Const, Module, Mux, Signal, Value

_HALF = 4
"""Bits of a weight that are multiplied in one step."""


def multiply(
    m: Module, *, activation: Value, weights: list[Value], enable: Value, load: Value, name: str
) -> list[Value]:
    """Return the products of one activation and several weights.

    In one cycle the halves of a weight are multiplied, in the next cycle their products are added.
    """
    operand = Signal.like(activation, name=f"operand{name}", reset_less=True)
    with m.If(enable):
        m.d.sync += operand.eq(activation)
    results: list[Value] = []
    for c, weight in enumerate(weights):
        factor = Signal.like(weight, name=f"factor{name}_{c}", reset_less=True)
        # The product is written as sums, so that synthesis does not take a block for it.
        terms = [Mux(bit, operand, Const(0)) << place for place, bit in enumerate(factor)]
        sums = sum(terms[:_HALF]), sum(terms[_HALF:-1]) - terms[-1]
        low, high = (
            Signal.like(half, name=f"{which}{name}_{c}", reset_less=True)
            for which, half in zip(("low", "high"), sums, strict=True)
        )
        product = Signal.like(operand * factor, name=f"product{name}_{c}", reset_less=True)
        with m.If(load):
            m.d.sync += factor.eq(weight)
        with m.If(enable):
            m.d.sync += [low.eq(sums[0]), high.eq(sums[1]), product.eq(low + high)]
        results.append(product)
    return results
