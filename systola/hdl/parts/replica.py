# SPDX-License-Identifier: Apache-2.0
"""A register that is one of several equal ones."""

from amaranth.hdl import ClockSignal, Const, Instance, Module, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.fabric import Fabric, fabric_of


class Replica(wiring.Component):
    """A register of `width` bits without reset, one of several that share the users of a value.

    | port     | meaning |
    |---|---|
    | `input`  | the value |
    | `output` | the value one cycle later; all ones after power-up |

    Several replicas serve a value that has many users far apart. Synthesis merges equal registers,
    but leaves the flip-flops of a fabric alone, and on a chip the module `replica` (replica.v).
    """

    def __init__(self, *, width: int = 1):
        self._width = width
        super().__init__({"input": In(width), "output": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        match fabric_of(platform):
            case Fabric.ECP5:
                for n in range(self._width):
                    m.submodules[f"register_{n}"] = Instance(
                        "TRELLIS_FF",
                        p_GSR="DISABLED",
                        p_CEMUX="1",
                        p_CLKMUX="CLK",
                        p_LSRMUX="LSR",
                        p_REGSET="SET",
                        i_CLK=ClockSignal(),
                        i_LSR=Const(0),
                        i_DI=self.input[n],
                        o_Q=self.output[n],
                    )
            case Fabric.CHIP:
                m.submodules.register = Instance(
                    "replica",
                    p_WIDTH=self._width,
                    i_clk=ClockSignal(),
                    i_in=self.input,
                    o_out=self.output,
                )
            case _:
                output = Signal(self._width, init=-1, reset_less=True)
                m.d.sync += output.eq(self.input)
                m.d.comb += self.output.eq(output)
        return m


def replicas(m: Module, name: str, value: ValueLike, *, users: int, sharers: int) -> list[Signal]:
    """Return `value` one cycle later for each user; `sharers` users share a register."""
    bits = Value.cast(value)
    copies: list[Signal] = []
    for group in range(-(-users // sharers)):
        replica = Replica(width=len(bits))
        m.submodules[f"{name}_of_group_{group}"] = replica
        copy = Signal(len(bits), name=f"{name}_{group}")
        m.d.comb += [replica.input.eq(bits), copy.eq(replica.output)]
        copies += sharers * [copy]
    return copies
