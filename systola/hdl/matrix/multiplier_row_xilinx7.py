# SPDX-License-Identifier: Apache-2.0
"""Products of a row of the array in the DSP blocks of Xilinx' 7 series, two in each.

UG479, "7 Series DSP48E1 Slice".
"""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, Value

_FIELD = 16
"""Number of low bits of an operand that hold the first of two weights."""


def multiply(
    m: Module, *, activation: Value, weights: list[Value], enable: Value, load: Value, name: str
) -> list[Value]:
    """Return the products of one activation and several weights; two weights share a DSP48E1."""
    results: list[Value] = []
    for c in range(0, len(weights), 2):
        upper = weights[c + 1] if c + 1 < len(weights) else Const(0, weights[c].shape())
        results += _pair(m, activation, weights[c], upper, enable, load, f"{name}_{c}")
    return results[: len(weights)]


def _pair(
    m: Module, a: Value, lower: Value, upper: Value, enable: Value, load: Value, name: str
) -> list[Value]:
    """Return the products p1 = a * lower and p2 = a * upper, made of p = a * (upper * 2^16 +
    lower).

    The low 16 bits of p are the low bits of p1. The upper bits are p2, less 1 where p1 is negative.
    The sign of p1 follows from its operands, and the block's adder adds the 1 again.
    """
    sign_a = Signal(name=f"sign_a{name}", reset_less=True)
    sign_lower = Signal(name=f"sign_lower{name}", reset_less=True)
    some_a = Signal(name=f"some_a{name}", reset_less=True)
    some_lower = Signal(name=f"some_lower{name}", reset_less=True)
    negative = Signal(name=f"negative{name}")
    negatives = Signal(2, name=f"negatives{name}", reset_less=True)
    m.d.comb += negative.eq((sign_a ^ sign_lower) & some_a & some_lower)
    with m.If(enable):
        m.d.sync += [
            sign_a.eq(a[-1]),
            some_a.eq(a.any()),
            negatives.eq(Cat(negative, negatives)),
        ]
    with m.If(load):
        m.d.sync += [sign_lower.eq(lower[-1]), some_lower.eq(lower.any())]

    # The operand is upper * 2^16 + lower: a negative `lower` borrows from `upper`.
    borrowed = Signal(9, name=f"borrowed{name}")
    product = Signal(48, name=f"product{name}")
    m.d.comb += borrowed.eq(upper - lower[-1])
    weights = Cat(_extended(lower, _FIELD), borrowed)
    registers = ("AREG", "ACASCREG", "BREG", "BCASCREG", "CREG", "MREG", "PREG")
    bypassed = ("ADREG", "DREG", "INMODEREG", "OPMODEREG", "ALUMODEREG")
    bypassed += ("CARRYINREG", "CARRYINSELREG")
    resets = ("A", "ALLCARRYIN", "ALUMODE", "B", "C", "CTRL", "D", "INMODE", "M", "P")
    idle = ("A1", "AD", "ALUMODE", "B1", "CARRYIN", "CTRL", "D", "INMODE")
    m.submodules[f"dsp{name}"] = Instance(
        "DSP48E1",
        **{f"p_{register}": 1 for register in registers},
        **{f"p_{register}": 0 for register in bypassed},
        p_USE_DPORT="FALSE",
        i_CLK=ClockSignal(),
        **{f"i_CE{which}": enable for which in ("B2", "C", "M", "P")},
        i_CEA2=load,
        **{f"i_CE{which}": Const(0) for which in idle},
        **{f"i_RST{which}": Const(0) for which in resets},
        i_A=_extended(weights, 30),
        i_B=_extended(a, 18),
        i_C=Cat(Const(0, _FIELD), negative, Const(0, 47 - _FIELD)),
        i_D=Const(0, 25),
        i_ACIN=Const(0, 30),
        i_BCIN=Const(0, 18),
        i_PCIN=Const(0, 48),
        i_CARRYIN=Const(0),
        i_CARRYCASCIN=Const(0),
        i_MULTSIGNIN=Const(0),
        i_CARRYINSEL=Const(0, 3),
        i_INMODE=Const(0, 5),
        i_ALUMODE=Const(0, 4),
        i_OPMODE=Const(0b0110101, 7),  # adds C to the product
        o_P=product,
    )
    bits = len(a) + 8
    first = Cat(product[:_FIELD], negatives[-1])[:bits]
    return [first.as_signed(), product[_FIELD : _FIELD + bits].as_signed()]


def _extended(operand: Value, width: int) -> Value:
    return Cat(operand, operand[-1].replicate(width - len(operand)))
