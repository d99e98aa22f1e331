# SPDX-License-Identifier: Apache-2.0
"""A frame around a design, so that it can be placed alone: few pins, and registers at every port.

A machine has more ports than an FPGA has pins. The inputs of the design come from one long shift
register, which is fed by a pin. Exclusive ors with a register each fold its outputs into one bit,
which ends at another pin. So nothing of the design is optimised away, and every path from and to a
port is timed from and to a register. Reports leave the frame's own cells out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TOP = "harness"

# A port is indented by at most two blanks. Inputs of functions in a module are indented more.
_PORT = re.compile(
    r"^ {0,2}(input|output)\s+(?:wire|reg)?\s*(?:\[(\d+):0\])?\s*(\\\S+|\w+)\s*;", re.M
)
_CLOCK_AND_RESET = ("clk", "rst")
_FOLDED = 4
"""Bits of one exclusive or: one look-up table of any family."""


@dataclass(frozen=True)
class Port:
    """A port of a module: its name in Verilog, and its width in bits."""

    name: str
    width: int
    is_input: bool


def ports_of(verilog: str, module: str) -> list[Port]:
    """Return the ports of one module of a Verilog text, clock and reset included."""
    begin = re.search(rf"^module {re.escape(module)}\b", verilog, re.M)
    if begin is None:
        raise ValueError(f"no module '{module}'")
    body = verilog[begin.start() : verilog.index("endmodule", begin.start())]
    return [
        Port(name, int(high or 0) + 1, direction == "input")
        for direction, high, name in _PORT.findall(body)
    ]


def harness(verilog: str, module: str) -> str:
    """Return Verilog of the module `harness`, with `module` of the text as an instance in it.

    The instance has the name of its module. The ports are clk, rst, `pin_in` and `pin_out`.
    """
    ports = ports_of(verilog, module)
    inputs = [port for port in ports if port.is_input and port.name not in _CLOCK_AND_RESET]
    outputs = [port for port in ports if not port.is_input]
    connections = [f".{name}({name})" for name in _CLOCK_AND_RESET if name in _names(ports)]
    lines: list[str] = []
    for direction, group in (("in", inputs), ("out", outputs)):
        first = 0
        for port in group:
            bits = f"{direction}[{first + port.width - 1}:{first}]"
            connections.append(f".{port.name} ({bits})")
            first += port.width
    width_in = sum(port.width for port in inputs)
    width_out = sum(port.width for port in outputs)
    lines += [
        f"module {TOP}(input clk, input rst, input pin_in, output pin_out);",
        f"  reg [{width_in}:0] in;",
        "  always @(posedge clk) in <= {in, pin_in};",
        f"  wire [{width_out - 1}:0] out;",
        f"  {module} {module} (" + ", ".join(connections) + ");",
    ]
    name, width, level = "out", width_out, 0
    while True:
        # Even a single output bit passes one fold, so that it ends at a register.
        parts = -(-width // _FOLDED)
        lines.append(f"  reg [{parts - 1}:0] fold_{level};")
        for part in range(parts):
            first, last = part * _FOLDED, min((part + 1) * _FOLDED, width) - 1
            lines.append(
                f"  always @(posedge clk) fold_{level}[{part}] <= ^{name}[{last}:{first}];"
            )
        name, width, level = f"fold_{level}", parts, level + 1
        if width == 1:
            break
    lines += [f"  assign pin_out = {name};", "endmodule", ""]
    return "\n".join(lines)


def _names(ports: list[Port]) -> set[str]:
    return {port.name for port in ports}
