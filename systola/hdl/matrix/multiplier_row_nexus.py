# SPDX-License-Identifier: Apache-2.0
"""Products of a row of the array in the DSP blocks of Lattice Nexus: two of 9x9 bits in each.

Lattice FPGA-TN-02096, "sysDSP Usage Guide for Nexus Platform".
"""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, Value

_OPERAND_BITS = 9


def multiply(
    m: Module, *, activation: Value, weights: list[Value], enable: Value, load: Value, name: str
) -> list[Value]:
    """Return the products of one activation and several weights, with half a block for each.

    Half a block is a MULT9X9. It has registers for its operands and its product, so a third
    register follows it.
    """
    results: list[Value] = []
    for c, weight in enumerate(weights):
        a, b = (Cat(x, x[-1].replicate(_OPERAND_BITS - len(x))) for x in (activation, weight))
        product = Signal(2 * _OPERAND_BITS, name=f"product{name}_{c}")
        m.submodules[f"dsp{name}_{c}"] = Instance(
            "MULT9X9",
            p_REGINPUTA="REGISTER",
            p_REGINPUTB="REGISTER",
            p_REGOUTPUT="REGISTER",
            p_GSR="DISABLED",
            i_CLK=ClockSignal(),
            i_CEA=enable,
            i_CEB=load,
            i_CEOUT=enable,
            **{f"i_RST{register}": Const(0) for register in ("A", "B", "OUT")},
            i_SIGNEDA=Const(1),
            i_SIGNEDB=Const(1),
            i_A=a,
            i_B=b,
            o_Z=product,
        )
        result = Signal(len(activation) + 8, name=f"result{name}_{c}", reset_less=True)
        with m.If(enable):
            m.d.sync += result.eq(product)
        results.append(result.as_signed())
    return results
