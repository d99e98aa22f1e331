# SPDX-License-Identifier: Apache-2.0
"""The numbers of the project that the C++ harnesses need, as a header."""

from systola.arch.config import HOST_PAGE_BYTES
from systola.arch.registers import FETCH_ID, TRACE_DEPTH, Control, Register, Status
from systola.sim.events import LEVELS

HEADER = "constants.h"


def constants() -> str:
    """Return the text of HEADER."""
    numbers = {
        "PAGE": HOST_PAGE_BYTES,  # no burst crosses a multiple of this
        "FETCH_ID": FETCH_ID,
        "CONTROL": Register.CONTROL,
        "CONTROL_START": Control.START,
        "CONTROL_SOFT_RESET": Control.SOFT_RESET,
        "STATUS": Register.STATUS,
        "STATUS_WAITING": Status.WAITING,
        "BUS_TIMEOUT": Register.BUS_TIMEOUT,
        "TAGS": Register.TAGS,
        "TRACE": Register.TRACE,
        "TRACE_DEPTH": TRACE_DEPTH,
        "LEVELS": LEVELS,
    }
    lines = (f"constexpr unsigned {name} = {number:d};\n" for name, number in numbers.items())
    return "#pragma once\n" + "".join(lines)
