# SPDX-License-Identifier: Apache-2.0
"""A multiplier with the registers of a DSP block."""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Shape, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.fabric import Fabric, fabric_of

LATENCY = 3
"""Cycles from the operands to their product: input, pipeline and output registers."""

WIDTH_LIMIT = 18
"""Longest operand in bits that one DSP block takes. Longer ones need sums of partial products."""

_ECP5_BITS = 18
_GOWIN_BITS = 18
_ICE40_BITS = 16


class Multiplier(wiring.Component):
    """An exact multiplier with the registers of a DSP block.

    | port      | meaning |
    |---|---|
    | `a`, `b`  | operands of up to 18 bits, signed or not |
    | `enable`  | the cycle counts; without it nothing moves |
    | `product` | `a` * `b` |

    Latency: LATENCY cycles. The register in the middle is left out without `pipeline`, which makes
    loops through the multiplier one cycle shorter. Throughput: one product a cycle. The multiplier
    is one DSP block, except on fabrics with smaller blocks.
    """

    def __init__(self, *, a: Shape, b: Shape, pipeline: bool = True):
        self._pipeline = pipeline
        for name, shape in (("a", a), ("b", b)):
            if not 1 <= shape.width <= WIDTH_LIMIT:
                raise ValueError(f"operand {name} must have 1 to {WIDTH_LIMIT} bits, not {shape}")
        product = (Const(0, a) * Const(0, b)).shape()
        super().__init__({"a": In(a), "b": In(b), "enable": In(1), "product": Out(product)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        match fabric_of(platform):
            case Fabric.ECP5:
                self._ecp5(m)
            case Fabric.ICE40 if max(len(self.a), len(self.b)) <= _ICE40_BITS:
                self._ice40(m)
            case Fabric.GOWIN:
                self._gowin(m)
            case _:
                self._inferred(m)
        return m

    def _inferred(self, m: Module) -> None:
        a = Signal.like(self.a, name="a_registered", reset_less=True)
        b = Signal.like(self.b, name="b_registered", reset_less=True)
        product = Signal.like(self.product, name="output", reset_less=True)
        multiplied = a * b
        if self._pipeline:
            multiplied = Signal.like(self.product, name="pipeline", reset_less=True)
        with m.If(self.enable):
            m.d.sync += [a.eq(self.a), b.eq(self.b), product.eq(multiplied)]
            if self._pipeline:
                m.d.sync += multiplied.eq(a * b)
        m.d.comb += self.product.eq(product)

    def _ecp5(self, m: Module) -> None:
        """Place the block of an ECP5: Lattice FPGA-TN-02205, "sysDSP Usage Guide for ECP5"."""
        ports: dict[str, object] = {}
        for name, operand in (("A", self.a), ("B", self.b)):
            ports |= _pins(f"i_{name}", _extended(operand, _ECP5_BITS))
            ports[f"i_SIGNED{name}"] = Const(operand.shape().signed)
            # the block takes the operand, not the output of the block beside it
            ports[f"i_SOURCE{name}"] = Const(0)
        ports |= _pins("i_C", Const(0, _ECP5_BITS))
        product = Signal(2 * _ECP5_BITS)
        ports |= _pins("o_P", product)
        for k in range(4):
            ports |= {f"i_CLK{k}": Const(0), f"i_CE{k}": Const(0), f"i_RST{k}": Const(0)}
        ports |= {"i_CLK0": ClockSignal(), "i_CE0": self.enable}
        registers = ["INPUTA", "INPUTB", "OUTPUT"] + ["PIPELINE"] * self._pipeline
        m.submodules.dsp = Instance(
            "MULT18X18D",
            **{f"p_REG_{register}_CLK": "CLK0" for register in registers},
            p_GSR="DISABLED",
            **ports,
        )
        m.d.comb += self.product.eq(product)

    def _gowin(self, m: Module) -> None:
        """Place the block of a Gowin FPGA: Gowin UG287, "DSP User Guide"."""
        product = Signal(2 * _GOWIN_BITS)
        registers = ["A", "B", "OUT_"] + ["PIPE_"] * self._pipeline
        m.submodules.dsp = Instance(
            "MULT18X18",
            **{f"p_{register}REG": Const(1, 1) for register in registers},
            i_CLK=ClockSignal(),
            i_CE=self.enable,
            i_RESET=Const(0),
            i_A=_extended(self.a, _GOWIN_BITS),
            i_B=_extended(self.b, _GOWIN_BITS),
            i_ASIGN=Const(self.a.shape().signed),
            i_BSIGN=Const(self.b.shape().signed),
            **{f"i_{operand}SEL": Const(0) for operand in "AB"},
            **{f"i_SI{operand}": Const(0, _GOWIN_BITS) for operand in "AB"},
            o_DOUT=product,
        )
        m.d.comb += self.product.eq(product)

    def _ice40(self, m: Module) -> None:
        """Place the block of an iCE40: Lattice FPGA-TN-02007, "DSP Function Usage Guide for iCE40
        Devices"."""
        product = Signal(2 * _ICE40_BITS)
        unused = {
            f"i_{name}": Const(0)
            for name in (
                *("AHOLD", "BHOLD", "CHOLD", "DHOLD", "IRSTTOP", "IRSTBOT", "ORSTTOP", "ORSTBOT"),
                *("OLOADTOP", "OLOADBOT", "ADDSUBTOP", "ADDSUBBOT", "OHOLDTOP", "OHOLDBOT"),
                *("CI", "ACCUMCI", "SIGNEXTIN"),
            )
        }
        whole_product = Const(3, 2)
        pipeline = Const(self._pipeline, 1)
        m.submodules.dsp = Instance(
            "SB_MAC16",
            p_A_REG=Const(1, 1),
            p_B_REG=Const(1, 1),
            p_TOP_8x8_MULT_REG=pipeline,
            p_BOT_8x8_MULT_REG=pipeline,
            p_PIPELINE_16x16_MULT_REG1=pipeline,
            p_PIPELINE_16x16_MULT_REG2=Const(1, 1),
            p_TOPOUTPUT_SELECT=whole_product,
            p_BOTOUTPUT_SELECT=whole_product,
            p_A_SIGNED=Const(self.a.shape().signed, 1),
            p_B_SIGNED=Const(self.b.shape().signed, 1),
            i_CLK=ClockSignal(),
            i_CE=self.enable,
            i_A=_extended(self.a, _ICE40_BITS),
            i_B=_extended(self.b, _ICE40_BITS),
            i_C=Const(0, 16),
            i_D=Const(0, 16),
            o_O=product,
            **unused,
        )
        m.d.comb += self.product.eq(product)


def _extended(operand: Value, width: int) -> Value:
    """Return the operand with further upper bits: copies of its sign, or zeros."""
    sign = operand[-1] if operand.shape().signed else Const(0)
    return Cat(operand, sign.replicate(width - len(operand)))


def _pins(prefix: str, value: Value) -> dict[str, Value]:
    """Return the bits of a value, each by the name of its pin, for a block with one-bit pins."""
    return {f"{prefix}{k}": value[k] for k in range(len(value))}
