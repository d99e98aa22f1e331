# SPDX-License-Identifier: Apache-2.0
"""The first reset of a simulation, set before its clock starts."""

from typing import Any

import cocotb
from cocotb.handle import Immediate


def begin_reset(signal: Any, value: int = 1) -> None:
    """Set a reset signal before the clock is started.

    Verilator gives ports random values and then reads the clock. A clock of 1 counts as an edge, so
    the reset must have its value by then. Icarus begins with unknown ports, and must see the reset
    change.
    """
    at_once = cocotb.SIM_NAME == "Verilator"
    signal.value = Immediate(value) if at_once else value
