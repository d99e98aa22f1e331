# SPDX-License-Identifier: Apache-2.0
"""The timing constraints of the delivered modules, as SDC."""

from __future__ import annotations

DEFAULT_MHZ = 100.0
"""Clock of the constraints where nobody asks for another: a common clock of AXI on FPGAs."""


def timing_constraints(top: str, wrapper: str, mhz: float) -> str:
    """Return systola.sdc but for the comment at its top, for a clock of `mhz`.

    One clock and a synchronous reset: nothing is a false path, nothing takes several cycles.
    """
    return (
        f"# Port clk of module {top}, aclk of module {wrapper}. The reset is synchronous to it:\n"
        "# no path is false, and none takes several cycles.\n"
        f"create_clock -name clk -period {1000 / mhz:.3f} [get_ports *clk]\n"
    )
