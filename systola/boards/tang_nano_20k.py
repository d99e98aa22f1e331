# SPDX-License-Identifier: Apache-2.0
"""The Tang Nano 20K as an Amaranth platform: amaranth-boards does not have this board."""

from __future__ import annotations

from amaranth.build import Attrs, Clock, Pins, Resource, Subsignal
from amaranth.vendor import GowinPlatform

_DESIGN = "{{emit_verilog()}}"
_SYNTHESIS = """
    read_verilog {{name}}.v
    synth_gowin -family gw2a -nowidelut -top {{name}} -json {{name}}.syn.json
"""
_ROUTE = """
    {{invoke_tool("nextpnr-himbaechel-gowin")}}
        {{get_override("nextpnr_opts")|options}}
        --device {{platform.part}}
        --vopt family=GW2A-18C
        --vopt cst={{name}}.cst
        --placer-heap-cell-placement-timeout 65536
        --json {{name}}.syn.json
        --write {{name}}.pnr.json
"""
_PACK = """
    {{invoke_tool("gowin_pack")}}
        -d GW2A-18C
        -o {{name}}.fs
        {{name}}.pnr.json
"""


class TangNano20kPlatform(GowinPlatform):
    """A platform with the board's clock and the serial line of its USB port.

    The pins come from Sipeed's schematic of the board. Amaranth's own build script runs a nextpnr
    that is no longer published, so this one runs its successor. Its placer gives up soon, where it
    would by itself try for hours.
    """

    part = "GW2AR-LV18QN88C8/I7"
    family = "GW2AR-18C"
    default_clk = "clk27"
    resources = (
        Resource("clk27", 0, Pins("4", dir="i"), Clock(27e6), Attrs(IO_TYPE="LVCMOS33")),
        Resource(
            "uart",
            0,
            Subsignal("rx", Pins("70", dir="i")),
            Subsignal("tx", Pins("69", dir="o")),
            Attrs(IO_TYPE="LVCMOS33", PULL_MODE="UP"),
        ),
    )
    connectors = ()
    required_tools = ("yosys", "nextpnr-himbaechel-gowin", "gowin_pack")

    @property
    def command_templates(self) -> list[str]:
        """The commands of the build script: synthesis as Amaranth has it, and two of our own."""
        return [super().command_templates[0], _ROUTE, _PACK]

    @property
    def file_templates(self) -> dict[str, str]:
        """The files of the build script."""
        files = {**super().file_templates, "{{name}}.v": _DESIGN, "{{name}}.ys": _SYNTHESIS}
        del files["{{name}}.il"]
        return files
