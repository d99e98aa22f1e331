# SPDX-License-Identifier: Apache-2.0
"""How the netlists of synth/simulation_netlist.py are told from what Amaranth writes."""

MARK = "// netlist\n"
"""What their text begins with."""


def is_netlist(verilog: str) -> bool:
    """Whether it is a netlist: so long that compiling takes longer than simulating."""
    return verilog.startswith(MARK)
