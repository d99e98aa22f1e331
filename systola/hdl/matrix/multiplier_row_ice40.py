# SPDX-License-Identifier: Apache-2.0
"""Products of a row of the array in the DSP blocks of the iCE40: two of int8 in each.

Lattice FPGA-TN-02007, "DSP Function Usage Guide for iCE40 Devices".
"""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, Value

_REGISTERED_SUM, _WHOLE_PRODUCT = Const(1, 2), Const(3, 2)
"""Settings for the output of each half of a block: a registered sum, or the whole product."""


def multiply(
    m: Module, *, activation: Value, weights: list[Value], enable: Value, load: Value, name: str
) -> list[Value]:
    """Return the products of one activation and several weights.

    A SB_MAC16 makes two products of int8, or one product of wider operands.
    """
    results: list[Value] = []
    if len(activation) > 8:
        for c, weight in enumerate(weights):
            a, b = (Cat(x, x[-1].replicate(16 - len(x))) for x in (activation, weight))
            product = _block(m, a, b, enable, load, pair=False, name=f"{name}_{c}")
            results.append(product[: len(activation) + 8].as_signed())
        return results
    for c in range(0, len(weights), 2):
        upper = weights[c + 1] if c + 1 < len(weights) else Const(0, 8)
        a, b = Cat(activation, activation), Cat(weights[c], upper)
        product = _block(m, a, b, enable, load, pair=True, name=f"{name}_{c}")
        results += [product[:16].as_signed(), product[16:].as_signed()]
    return results[: len(weights)]


def _block(
    m: Module, a: Value, b: Value, enable: Value, load: Value, *, pair: bool, name: str
) -> Value:
    """Return the products of the halves of a and b, if `pair`, or the product of a and b.

    A pair uses the output registers of the adders after the multipliers, and the adders add 0.
    """
    product = Signal(32, name=f"product{name}")
    output = _REGISTERED_SUM if pair else _WHOLE_PRODUCT
    halves: dict[str, Value] = {}
    for half in ("TOP", "BOT"):
        halves |= {
            f"p_{half}_8x8_MULT_REG": Const(1, 1),
            f"p_{half}OUTPUT_SELECT": output,
            f"p_{half}ADDSUB_LOWERINPUT": Const(pair, 2),  # selects the products of the halves
            f"p_{half}ADDSUB_UPPERINPUT": Const(pair, 1),  # selects the inputs C and D, which are 0
        }
    unused = (
        *("AHOLD", "CHOLD", "DHOLD", "IRSTTOP", "IRSTBOT", "ORSTTOP", "ORSTBOT"),
        *("OLOADTOP", "OLOADBOT", "ADDSUBTOP", "ADDSUBBOT", "OHOLDTOP", "OHOLDBOT"),
        *("CI", "ACCUMCI", "SIGNEXTIN"),
    )
    m.submodules[f"dsp{name}"] = Instance(
        "SB_MAC16",
        **halves,
        p_A_REG=Const(1, 1),
        p_B_REG=Const(1, 1),
        p_PIPELINE_16x16_MULT_REG1=Const(not pair, 1),
        p_PIPELINE_16x16_MULT_REG2=Const(not pair, 1),
        p_MODE_8x8=Const(pair, 1),
        p_A_SIGNED=Const(1, 1),
        p_B_SIGNED=Const(1, 1),
        i_CLK=ClockSignal(),
        i_CE=enable,
        i_BHOLD=~load,
        i_A=a,
        i_B=b,
        i_C=Const(0, 16),
        i_D=Const(0, 16),
        **{f"i_{port}": Const(0) for port in unused},
        o_O=product,
    )
    return product
