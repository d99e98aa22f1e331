# SPDX-License-Identifier: Apache-2.0
"""The timing constraints of the delivered modules, as SDC."""

from __future__ import annotations

DEFAULT_MHZ = 100.0
"""Clock of the constraints where nobody asks for another: a common clock of AXI on FPGAs."""


def timing_constraints(top: str, wrapper: str, mhz: float) -> str:
    """Return the text of systola.sdc without its first comment, for a clock of `mhz`.

    It has one clock and a synchronous reset. There are no false paths and no multicycle paths.
    """
    return (
        f"# Port clk of module {top}, aclk of module {wrapper}. The reset is synchronous to it:\n"
        "# no path is false, and none takes several cycles.\n"
        f"create_clock -name clk -period {1000 / mhz:.3f} [get_ports *clk]\n"
    )
