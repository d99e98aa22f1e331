# SPDX-License-Identifier: Apache-2.0
"""The mark that distinguishes netlists of synth/simulation_netlist.py from Amaranth's Verilog."""

MARK = "// netlist\n"
"""First line of a netlist."""


def is_netlist(verilog: str) -> bool:
    """Return whether the Verilog is a netlist. A netlist is long, so compiling it takes longer than
    simulating it.
    """
    return verilog.startswith(MARK)
