# SPDX-License-Identifier: Apache-2.0
"""A synchronous memory with one read and one write port."""

from amaranth.hdl import Cat, ClockSignal, Const, Elaboratable, Instance, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from systola.hdl.parts.fabric import Fabric, fabric_of

MACRO_BITS = 1 << 18
"""Size in bits from which on a memory is an instance of `sram_1r1w` (sram_1r1w.v), except on FPGAs.

Chips replace this module by a macro. Without the module, most of the Verilog text would be the list
of initial values of such a memory.
"""

_GOWIN_LUT_RAM_WORDS = 16
_GOWIN_LUT_RAM_BITS = 289
"""Most words, and fewest bits a word, of a memory in the look-up tables of a Gowin FPGA.

Such a memory would take nine block RAMs or more, mostly unused, of the 46 in a GW2A-18. Look-up
tables are expensive, too: a tile of eight tables and six registers holds four bits of each word.
"""

_GOWIN_BLOCK_WORDS = 512
"""Words in a block RAM of a Gowin FPGA, with _GOWIN_BLOCK_BITS bits each.

Blocks with shorter words are inferred, as nextpnr knows of chips that lack their output registers.
"""
_GOWIN_BLOCK_BITS = 36

_ECP5_ADDRESS_BITS = 14
"""Address bits of a block RAM of the ECP5: it has 2^14 words of 1 bit, or fewer and wider words."""
_ECP5_WIDTHS = {5: 36, 4: 18, 3: 9, 2: 4, 1: 2, 0: 1}
"""Widths of words in a block RAM, by the number of its address bits that are then unused."""


def sram_ports(*, width: int, depth: int) -> dict[str, wiring.Member]:
    """Return the ports of an Sram of `depth` words of `width` bits."""
    return {
        "read_enable": In(1),
        "read_address": In(ceil_log2(depth)),
        "read_data": Out(width),
        "write_enable": In(1),
        "write_address": In(ceil_log2(depth)),
        "write_data": In(width),
    }


class Sram(wiring.Component):
    """A memory of `depth` words of `width` bits.

    | port            | meaning |
    |---|---|
    | `read_enable`   | reads the word at `read_address` |
    | `read_data`     | the word, one cycle later, until the next read; with `output_register` see
                        below |
    | `output_enable` | loads the output register; only with `output_register` |
    | `write_enable`  | writes `write_data` to the word at `write_address` |

    Throughput: one read and one write a cycle. With `output_register` the word moves on to a second
    register in each cycle with `output_enable`, and `read_data` is this register. The register
    saves time: without it, the data of most FPGAs' block RAM come late in the cycle.

    With `transparent`, a read of the word that is being written gives the new value, else an
    undefined value. This costs multiplexers, and time after the memory. Contents are undefined
    until they are written.
    """

    def __init__(
        self,
        *,
        width: int,
        depth: int,
        transparent: bool = False,
        output_register: bool = False,
    ):
        self._width = width
        self._depth = depth
        self._transparent = transparent
        self._output_register = output_register
        enable = {"output_enable": In(1, init=1)} if output_register else {}
        super().__init__({**sram_ports(width=width, depth=depth), **enable})

    @property
    def is_macro(self) -> bool:
        """Return whether the memory becomes an instance of `sram_1r1w` in plain Verilog."""
        return self._width * self._depth >= MACRO_BITS

    def elaborate(self, platform: object) -> Elaboratable:
        m = Module()
        fabric = fabric_of(platform)
        short = self._depth <= _GOWIN_LUT_RAM_WORDS and self._width >= _GOWIN_LUT_RAM_BITS
        in_luts = fabric is Fabric.GOWIN and short
        if self._output_register and not self._transparent:
            if fabric is Fabric.ECP5 and len(self.read_address) <= _ECP5_ADDRESS_BITS:
                self._ecp5(m)
                return m
            if fabric is Fabric.GOWIN and self._depth <= _GOWIN_BLOCK_WORDS and not in_luts:
                self._gowin(m)
                return m

        read_data = Signal(self._width)
        shown = read_data
        if self._output_register:
            shown = Signal(self._width, name="output", reset_less=True)
            with m.If(self.output_enable):
                m.d.sync += shown.eq(read_data)
        m.d.comb += self.read_data.eq(shown)
        if fabric is Fabric.CHIP or (fabric is Fabric.GENERIC and self.is_macro):
            self._macro(m, read_data)
        else:
            self._inferred(m, read_data, "distributed" if in_luts else "block")
        return m

    def _macro(self, m: Module, read_data: Signal) -> None:
        m.submodules.macro = Instance(
            "sram_1r1w",
            p_WIDTH=self._width,
            p_DEPTH=self._depth,
            p_ADDRESS_BITS=len(self.read_address),
            p_TRANSPARENT=int(self._transparent),
            i_clk=ClockSignal(),
            i_read_enable=self.read_enable,
            i_read_address=self.read_address,
            o_read_data=read_data,
            i_write_enable=self.write_enable,
            i_write_address=self.write_address,
            i_write_data=self.write_data,
        )

    def _inferred(self, m: Module, read_data: Signal, style: str) -> None:
        # Without a style Yosys may take LUTs for any memory. Without `no_rw_check`, it adds logic
        # for collisions.
        attributes = {"ram_style": style} | ({} if self._transparent else {"no_rw_check": 1})
        m.submodules.memory = memory = Memory(
            shape=self._width, depth=self._depth, init=[], attrs=attributes
        )
        write = memory.write_port()
        read = memory.read_port(transparent_for=[write] if self._transparent else [])
        m.d.comb += [
            read.en.eq(self.read_enable),
            read.addr.eq(self.read_address),
            read_data.eq(read.data),
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
        ]

    def _ecp5(self, m: Module) -> None:
        """Place block RAMs side by side, each with an equal part of the words.

        The parts are as large as may be, so that the bits of a column lie in few blocks. Lattice
        FPGA-TN-02204, "ECP5 and ECP5-5G Memory Usage Guide". Port A writes, port B reads. With
        words of 36 bits, port A writes their upper half through the data pins of B. Port B reads
        their lower half through the data pins of A.
        """
        low = min(_ECP5_ADDRESS_BITS - len(self.read_address), max(_ECP5_WIDTHS))
        part = _ECP5_WIDTHS[low]
        whole = part == max(_ECP5_WIDTHS.values())
        write_bytes = Const(0, low)
        if part >= 18:
            write_bytes = Cat(Const(-1, part // 9), Const(0, 5))[:low]
        blocks = -(-self._width // part)
        each = -(-self._width // blocks)
        for first in range(0, self._width, each):
            bits = min(each, self._width - first)
            written = Cat(self.write_data[first : first + bits], Const(0, 36 - bits))
            read = [Signal(18, name=f"read_{port}_{first}") for port in "ab"]
            ports = {
                **_pins("i_ADA", _padded(Cat(write_bytes, self.write_address), 14)),
                **_pins("i_ADB", _padded(Cat(Const(0, low), self.read_address), 14)),
                **_pins("i_DIA", written[:18]),
                **_pins("i_DIB", written[18:] if whole else Const(0, 18)),
                **_pins("o_DOA", read[0]),
                **_pins("o_DOB", read[1]),
            }
            for port in "AB":
                ports |= {f"i_CLK{port}": ClockSignal(), f"i_OCE{port}": self.output_enable}
                ports |= {f"i_RST{port}": Const(0)} | _pins(f"i_CS{port}", Const(0, 3))
            m.submodules[f"block_{first}"] = Instance(
                "DP16KD",
                p_DATA_WIDTH_A=part,
                p_DATA_WIDTH_B=part,
                p_REGMODE_A="OUTREG",
                p_REGMODE_B="OUTREG",
                p_GSR="DISABLED",
                i_CEA=self.write_enable,
                i_WEA=Const(1),
                i_CEB=self.read_enable,
                i_WEB=Const(0),
                **ports,
            )
            data = Cat(*read) if whole else read[1]
            m.d.comb += self.read_data[first : first + bits].eq(data[:bits])

    def _gowin(self, m: Module) -> None:
        """Place block RAMs side by side: port A writes, port B reads.

        Gowin UG285, "BSRAM & SSRAM User Guide". The lowest bits of an address for writing enable
        the bytes of the word.
        """
        for first in range(0, self._width, _GOWIN_BLOCK_BITS):
            bits = min(_GOWIN_BLOCK_BITS, self._width - first)
            read = Signal(_GOWIN_BLOCK_BITS, name=f"read_{first}")
            m.submodules[f"block_{first}"] = Instance(
                "SDPX9B",
                p_BIT_WIDTH_0=_GOWIN_BLOCK_BITS,
                p_BIT_WIDTH_1=_GOWIN_BLOCK_BITS,
                p_READ_MODE=Const(1, 1),
                **{f"i_CLK{port}": ClockSignal() for port in "AB"},
                **{f"i_RESET{port}": Const(0) for port in "AB"},
                **{f"i_BLKSEL{port}": Const(0, 3) for port in "AB"},
                i_CEA=self.write_enable,
                i_ADA=_padded(Cat(Const(-1, 4), Const(0, 1), self.write_address), 14),
                i_DI=_padded(self.write_data[first : first + bits], _GOWIN_BLOCK_BITS),
                i_CEB=self.read_enable,
                i_OCE=self.output_enable,
                i_ADB=_padded(Cat(Const(0, 5), self.read_address), 14),
                o_DO=read,
            )
            m.d.comb += self.read_data[first : first + bits].eq(read[:bits])


def _padded(value: Value, width: int) -> Value:
    return Cat(value, Const(0, width - len(value)))


def _pins(prefix: str, value: Value) -> dict[str, Value]:
    """Return the bits of a value, each by the name of its pin, for a block with one-bit pins."""
    return {f"{prefix}{k}": value[k] for k in range(len(value))}
