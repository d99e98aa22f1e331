# SPDX-License-Identifier: Apache-2.0
"""A thin Verilog module around `tpu`, or `pod`, with ports that vendor tools group into AXI
interfaces.

The attributes are for Vivado's IP packager and block designs (AMD UG1118, "Creating and Packaging
Custom IP"). Other tools ignore them and use the names.
"""

from __future__ import annotations

import re

from systola.arch.config import Config

INTERFACES = {
    "s_axil": "PROTOCOL AXI4LITE, DATA_WIDTH 32",
    "m_axi_host": "PROTOCOL AXI4, READ_WRITE_MODE READ_WRITE",
    "m_axi_weight": "PROTOCOL AXI4, READ_WRITE_MODE READ_ONLY",
    "m_axi_memory": "PROTOCOL AXI4, READ_WRITE_MODE READ_WRITE",
}
"""Parameters of each interface for a vendor tool.

The key is the interface's name without the number of a core.
"""


def wrapper_of(top: str) -> str:
    """Return the name of the wrapper of a module."""
    return f"{top}_axi"


def port_list(verilog: str, top: str) -> list[tuple[str, bool, int]]:
    """Return name, direction (True for an input) and width of each port of module `top`.

    clk and rst are left out.
    """
    body = verilog[verilog.index(f"\nmodule {top}(") :]
    body = body[: body.index("\nendmodule")]
    ports = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", body, re.MULTILINE)
    return [
        (name, direction == "input", int(high or 0) + 1)
        for direction, high, name in ports
        if name not in ("clk", "rst")
    ]


def axi_wrapper(config: Config, verilog: str, top: str) -> str:
    """Return a wrapper around the machine or pod `top`, a module in `verilog`.

    The wrapper has the ports of the module, with `aclk` and `aresetn` for clock and reset.
    """
    listed = port_list(verilog, top)
    # The slave comes first, as in every listing of the machine's ports.
    interfaces = sorted({name.rpartition("_")[0] for name, *_ in listed if name != "irq"})
    interfaces.sort(key=lambda name: name.startswith("m_"))
    associated = f"ASSOCIATED_BUSIF {':'.join(interfaces)}, ASSOCIATED_RESET aresetn"
    ports = [
        _port("aclk", True, 1, "xilinx.com:signal:clock:1.0 aclk CLK", associated),
        _port("aresetn", True, 1, "xilinx.com:signal:reset:1.0 aresetn RST", "POLARITY ACTIVE_LOW"),
    ]
    told: set[str] = set()
    names = ["clk", "rst"]
    for name, is_input, width in listed:
        names.append(name)
        if name == "irq":
            what, parameters = (
                "xilinx.com:signal:interrupt:1.0 irq INTERRUPT",
                "SENSITIVITY LEVEL_HIGH",
            )
        else:
            interface, _, signal = name.rpartition("_")
            what = f"xilinx.com:interface:aximm:1.0 {interface} {signal.upper()}"
            parameters = "" if interface in told else INTERFACES[interface.rstrip("0123456789")]
            told.add(interface)
        ports.append(_port(name, is_input, width, what, parameters))
    inside = {"clk": "aclk", "rst": "~aresetn"}
    connections = ",\n".join(f"      .{name}({inside.get(name, name)})" for name in names)
    return (
        "// SPDX-License-Identifier: Apache-2.0\n"
        f"// Machine '{config.name}' with AXI ports for block designs. aresetn is synchronous.\n"
        f"module {wrapper_of(top)} (\n"
        + ",\n".join(ports)
        + f"\n);\n  {top} machine (\n{connections}\n  );\n"
        "endmodule\n"
    )


def _port(name: str, is_input: bool, width: int, what: str, parameters: str) -> str:
    lines = [f'    (* X_INTERFACE_INFO = "{what}" *)']
    if parameters:
        lines.append(f'    (* X_INTERFACE_PARAMETER = "{parameters}" *)')
    size = f"[{width - 1}:0] " if width > 1 else ""
    lines.append(f"    {'input' if is_input else 'output'} wire {size}{name}")
    return "\n".join(lines)
