# SPDX-License-Identifier: Apache-2.0
"""The mark that distinguishes netlists of synth/simulation_netlist.py from Amaranth's Verilog."""

MARK = "// netlist\n"
"""First line of a netlist."""


def is_netlist(verilog: str) -> bool:
    """Return whether it is a netlist: so long that compiling takes longer than simulating."""
    return verilog.startswith(MARK)
