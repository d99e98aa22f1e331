# SPDX-License-Identifier: Apache-2.0
"""The Olimex GateMate A1-EVB as an Amaranth platform: Amaranth does not have its family."""

from __future__ import annotations

from typing import ClassVar

from amaranth.build import Attrs, Clock, Pins, Resource, Subsignal
from amaranth.build.plat import TemplatedPlatform

from systola.hdl.parts.fabric import Fabric

_DESIGN = "{{emit_verilog()}}"
_SYNTHESIS = """
    read_verilog {{name}}.v
    synth_gatemate -luttree -nomx8 -nomx4 -top {{name}} -json {{name}}.syn.json
"""
_PINS = """
    {% for port, pin, attrs in platform.iter_port_constraints_bits() -%}
        Net "{{port}}" Loc = "{{pin}}"
        {%- for key, value in attrs.items() %} | {{key}}={{value}}{% endfor %};
    {% endfor %}
"""
_RUN_YOSYS = """
    {{invoke_tool("yosys")}}
        -l {{name}}.rpt
        {{name}}.ys
"""
_ROUTE = """
    {{invoke_tool("nextpnr-himbaechel-gatemate")}}
        {{get_override("nextpnr_opts")|options}}
        --device {{platform.device}}
        --vopt ccf={{name}}.ccf
        --vopt fpga_mode=2
        --vopt out={{name}}.txt
        --json {{name}}.syn.json
"""
_PACK = """
    {{invoke_tool("gmpack")}}
        {{name}}.txt
        {{name}}.bit
"""


class GateMateA1EvbPlatform(TemplatedPlatform):
    """A platform with the board's clock and the serial line of its USB port.

    Clock and line have the pins of LiteX' platform `olimex_gatemate_a1_evb`. The constraint files
    in the repository tgingold/vhdl4gatemate have the same. The microcontroller that loads the FPGA
    passes the line on to USB.
    """

    toolchain = "peppercorn"
    device = "CCGM1A1"
    fabric = Fabric.GATEMATE
    default_clk = "clk10"
    resources = (
        Resource("clk10", 0, Pins("IO_SB_A8", dir="i"), Clock(10e6), Attrs(SCHMITT_TRIGGER="true")),
        Resource(
            "uart",
            0,
            Subsignal("rx", Pins("IO_SA_A6", dir="i")),
            Subsignal("tx", Pins("IO_SA_B6", dir="o")),
        ),
    )
    connectors = ()
    required_tools = ("yosys", "nextpnr-himbaechel-gatemate", "gmpack")
    file_templates: ClassVar = {
        **TemplatedPlatform.build_script_templates,
        "{{name}}.v": _DESIGN,
        "{{name}}.ys": _SYNTHESIS,
        "{{name}}.ccf": _PINS,
    }
    command_templates = (_RUN_YOSYS, _ROUTE, _PACK)
