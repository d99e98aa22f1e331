# SPDX-License-Identifier: Apache-2.0
"""Products of a row of the array in the DSP blocks of the ECP5: one or two in a block.

Lattice FPGA-TN-02205, "sysDSP Usage Guide for ECP5".
"""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Mux, Signal, Value

_BITS = 18
_FIELD = 9
"""Number of low bits of an operand that hold the first of two weights."""


def multiply(
    m: Module, *, activation: Value, weights: list[Value], enable: Value, load: Value, name: str
) -> list[Value]:
    """Return the products of one activation and several weights, with a MULT18X18D for each."""
    results: list[Value] = []
    for c, weight in enumerate(weights):
        where = f"{name}_{c}"
        product = _block(m, activation, _upper(weight), enable, load, pipeline=True, name=where)
        results.append(product[_BITS - len(weight) :].as_signed())
    return results


def multiply_pairs(
    m: Module, *, activation: Value, weights: list[Value], enable: Value, load: Value, name: str
) -> list[Value]:
    """Return the products of one activation and several weights; two weights share a MULT18X18D."""
    even = len(weights) // 2 * 2
    results: list[Value] = []
    for c in range(0, even, 2):
        results += _pair(m, activation, weights[c], weights[c + 1], enable, load, f"{name}_{c}")
    rest = multiply(
        m,
        activation=activation,
        weights=weights[even:],
        enable=enable,
        load=load,
        name=f"{name}_{even}",
    )
    return results + rest


def _pair(
    m: Module, a: Value, lower: Value, upper: Value, enable: Value, load: Value, name: str
) -> list[Value]:
    """Return the products p1 = a * lower and p2 = a * upper, made of p = a * (upper * 2^9 + lower).

    The low 9 bits of p are the low bits of p1. The upper bits are p2 + (p1 >> 9). A small
    multiplier beside the block gives the low bits of p2. The signs of the operands give the sign of
    p1. The upper bits of p, less the low bits of p2, give the rest of p1 and p2.
    """
    # p1 >> 9 is -32 to 32, or with operands from -128 to 255 it is -64 to 127.
    small = 6 if len(a) == 8 else 7
    low_a = Signal(small, name=f"low_a{name}", reset_less=True)
    low_upper = Signal(small, name=f"low_upper{name}", reset_less=True)
    sign_a = Signal(name=f"sign_a{name}", reset_less=True)
    sign_lower = Signal(name=f"sign_lower{name}", reset_less=True)
    some_a = Signal(name=f"some_a{name}", reset_less=True)
    some_lower = Signal(name=f"some_lower{name}", reset_less=True)
    low = Signal(small, name=f"low{name}", reset_less=True)
    negative = Signal(name=f"negative{name}", reset_less=True)

    # The product is written as sums, so that synthesis does not take a second block for it.
    low_product = Signal(small, name=f"low_product{name}")
    rows = [Mux(low_upper[k], low_a[: small - k] << k, 0) for k in range(small)]
    m.d.comb += low_product.eq(sum(rows))

    # The operand is upper * 2^9 + lower: a negative `lower` borrows from `upper`.
    field = Cat(lower, lower[-1].replicate(_FIELD - len(lower)))
    borrowed = Signal(_FIELD, name=f"borrowed{name}")
    m.d.comb += borrowed.eq(upper - lower[-1])
    product = _block(m, a, Cat(field, borrowed), enable, load, pipeline=False, name=name)
    rest = Signal(2 * _BITS, name=f"rest{name}")
    m.d.comb += rest.eq(product[_FIELD:].as_signed() - Cat(low, negative).as_signed())

    first = Signal(len(a) + 8, name=f"first{name}", reset_less=True)
    second = Signal.like(first, name=f"second{name}", reset_less=True)
    with m.If(load):
        m.d.sync += [
            low_upper.eq(upper),
            sign_lower.eq(lower[-1]),
            some_lower.eq(lower.any()),
        ]
    with m.If(enable):
        m.d.sync += [
            low_a.eq(a),
            sign_a.eq(a[-1]),
            some_a.eq(a.any()),
            low.eq(low_product),
            negative.eq((sign_a ^ sign_lower) & some_a & some_lower),
            first.eq(Cat(product[:_FIELD], rest[:small], negative)),
            second.eq(Cat(low, rest[small:])),
        ]
    return [first.as_signed(), second.as_signed()]


def _block(
    m: Module, a: Value, b: Value, enable: Value, load: Value, *, pipeline: bool, name: str
) -> Value:
    """Return a * b, where b has 18 bits and is the value that was loaded last.

    `a` goes to the upper bits of its operand, so that its sign need not drive more than one pin.
    """
    product = Signal(2 * _BITS, name=f"product{name}")
    ports: dict[str, object] = {"i_CLK0": ClockSignal(), "i_RST0": Const(0)}
    # Four neighbouring multipliers share four enables, and the multipliers may belong to two
    # stages. So this multiplier must not connect the enables that it does not use, not even to a
    # constant.
    ports |= {"i_CE0": enable, "i_CE1": load, "i_CE2": enable, "i_CE3": enable}
    for letter, operand in (("A", _upper(a)), ("B", b)):
        ports |= _pins(f"i_{letter}", operand)
        ports |= {f"i_SIGNED{letter}": Const(1), f"i_SOURCE{letter}": Const(0)}
    ports |= _pins("i_C", Const(0, _BITS))
    ports |= _pins("o_P", product)
    for k in range(1, 4):
        ports |= {f"i_CLK{k}": Const(0), f"i_RST{k}": Const(0)}
    m.submodules[f"dsp{name}"] = Instance(
        "MULT18X18D",
        p_REG_INPUTA_CLK="CLK0",
        p_REG_INPUTB_CLK="CLK0",
        p_REG_INPUTB_CE="CE1",
        p_REG_PIPELINE_CLK="CLK0" if pipeline else "NONE",
        p_REG_OUTPUT_CLK="CLK0",
        p_GSR="DISABLED",
        **ports,
    )
    return product[_BITS - len(a) :]


def _upper(operand: Value) -> Value:
    return Cat(Const(0, _BITS - len(operand)), operand)


def _pins(prefix: str, value: Value) -> dict[str, Value]:
    """Return the bits of a value, each by the name of its pin, for a block with one-bit pins."""
    return {f"{prefix}{k}": value[k] for k in range(len(value))}
