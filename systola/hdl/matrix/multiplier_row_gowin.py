# SPDX-License-Identifier: Apache-2.0
"""Products of a row of the array in the DSP blocks of a Gowin FPGA: two of 9x9 bits in each.

Gowin UG287, "DSP User Guide".
"""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, Value

_OPERAND_BITS = 9


def multiply(
    m: Module, *, activation: Value, weights: list[Value], enable: Value, load: Value, name: str
) -> list[Value]:
    """Return the products of one activation and several weights, with half a block for each.

    Half a block is a MULT9X9. All its registers have one enable, so the weight, which moves with
    `load`, is in a register outside.
    """
    results: list[Value] = []
    for c, weight in enumerate(weights):
        factor = Signal.like(weight, name=f"factor{name}_{c}", reset_less=True)
        with m.If(load):
            m.d.sync += factor.eq(weight)
        a, b = (Cat(x, x[-1].replicate(_OPERAND_BITS - len(x))) for x in (activation, factor))
        product = Signal(2 * _OPERAND_BITS, name=f"product{name}_{c}")
        m.submodules[f"dsp{name}_{c}"] = Instance(
            "MULT9X9",
            **{f"p_{register}REG": Const(1, 1) for register in ("A", "PIPE_", "OUT_")},
            i_CLK=ClockSignal(),
            i_CE=enable,
            i_RESET=Const(0),
            i_A=a,
            i_B=b,
            **{f"i_{operand}SIGN": Const(1) for operand in "AB"},
            **{f"i_{operand}SEL": Const(0) for operand in "AB"},
            **{f"i_SI{operand}": Const(0, _OPERAND_BITS) for operand in "AB"},
            o_DOUT=product,
        )
        results.append(product[: len(activation) + 8].as_signed())
    return results
