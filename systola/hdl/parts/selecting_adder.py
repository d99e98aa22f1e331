# SPDX-License-Identifier: Apache-2.0
"""An adder that chooses one of its operands, in the same look-up tables that add."""

from amaranth.hdl import Cat, Const, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.fabric import Fabric, fabric_of

_INIT = 0x665A
"""Contents of the look-up table of a cell: A ^ (D ? B : C).

The carry of a cell must be A where both bits of the operands are equal. With C and D at 0 the table
gives A. The inverse table has ~A in place of A.
"""


class SelectingAdder(wiring.Component):
    """An adder with a choice between two operands, combinational.

    | port       | meaning |
    |---|---|
    | `a`        | first operand; `subtracted` replaces it by -1 - `a` |
    | `b`, `c`   | the two choices for the second operand |
    | `choose_b` | a bit for each bit of the operand: `b` is chosen, else `c` |
    | `carry`    | adds one |
    | `total`    | the sum, modulo 2^width |

    On an ECP5 the adder takes one look-up table a bit, but synthesis would take two. The cell of
    the carry chains has two inputs more than an adder needs: Lattice FPGA-TN-02032, "CCU2C".
    """

    def __init__(self, *, width: int, subtracted: bool = False):
        self._subtracted = subtracted
        super().__init__(
            {
                "a": In(width),
                "b": In(width),
                "c": In(width),
                "choose_b": In(width),
                "carry": In(1),
                "total": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if fabric_of(platform) is not Fabric.ECP5:
            chosen = (self.choose_b & self.b) | (~self.choose_b & self.c)
            a = ~self.a if self._subtracted else self.a
            # `carry` enters through a further bit below the operands. So one adder adds both
            # operands and `carry`.
            m.d.comb += self.total.eq((Cat(1, a) + Cat(self.carry, chosen))[1:])
            return m
        width = len(self.total)
        operands = {
            letter: Cat(operand, Const(0, width % 2))
            for letter, operand in zip("ABCD", (self.a, self.b, self.c, self.choose_b), strict=True)
        }
        init = Const(~_INIT if self._subtracted else _INIT, 16)
        totals = Signal(width + width % 2)
        carry = Signal(width // 2 + width % 2 + 1)
        m.d.comb += carry[0].eq(self.carry)
        for cell in range(len(carry) - 1):
            ports: dict[str, object] = {"i_CIN": carry[cell], "o_COUT": carry[cell + 1]}
            for half in range(2):
                bit = 2 * cell + half
                ports |= {f"i_{letter}{half}": operand[bit] for letter, operand in operands.items()}
                ports[f"o_S{half}"] = totals[bit]
            m.submodules[f"cell_{cell}"] = Instance(
                "CCU2C",
                p_INIT0=init,
                p_INIT1=init,
                p_INJECT1_0="NO",
                p_INJECT1_1="NO",
                **ports,
            )
        m.d.comb += self.total.eq(totals)
        return m
