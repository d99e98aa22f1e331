# SPDX-License-Identifier: Apache-2.0
"""The pauses between steps of the activation unit, which follow from the reservation table.

Two steps of an instruction that could meet have other steps of it between them, or one of these
pauses. After the last step of an instruction a step of any kind may come. The user of ResultLanes
keeps three more rules, for parts that steps do not use in their order:

1. A vector with SIGMOID or TANH comes `gate_spacing` steps after the vector before with one of
   these functions, or later by a multiple of `slots`. Both are vectors of lines without scaled
   elements, or neither is a vector of lines.
2. A vector without these functions comes `gates_alone` steps after a vector with one of them, and
   so does a vector with 1/x. If the vector before is a vector of lines, LONG_SPACING cycles are
   added.
3. No element is scaled SLOT_DISTANCE cycles after the issue of a sum of scaled elements.
"""

from systola.hdl.activation.gate_lane import slots
from systola.hdl.activation.gate_sequencer import gate_spacing, gates_alone
from systola.hdl.activation.reservations import (
    ELEMENT_ENTRY,
    SCALED_ENTRY,
    SUM_ENTRY,
    Kind,
    cycles_left_out,
)
from systola.hdl.memories.accumulators import READ_LATENCY as ROW_LATENCY

SUM_LATENCY = SUM_ENTRY - ROW_LATENCY
"""Cycles by which a sum of buffer lines reaches the requantisers later than an accumulator row.

Both are counted from the read of the last line or the row."""
SCALED_LATENCY = SCALED_ENTRY - ROW_LATENCY
"""Cycles by which a sum of scaled elements reaches the requantisers later than an accumulator row.

Both are counted from the read of the last line or the row.
"""
SLOT_DISTANCE = SCALED_ENTRY - ELEMENT_ENTRY
"""Cycles from the last line of a sum of scaled elements to the line that collides with it.

An element of a line read so much later would reach the requantisers in the cycle of the sum."""
WIDE_SPACING = cycles_left_out(Kind.ROW, Kind.ROW)
"""Cycles that are left out after a vector of one step with an int16 result."""
TAP_SPACING = cycles_left_out(Kind.LOADS_TAP, Kind.TAKES_TAP)
"""Cycles that are left out between the load of a tap's weights and their use."""
ADDEND_SPACING = cycles_left_out(Kind.SUM, Kind.FIRST_OF_TWO)
"""Cycles that are left out between sums of lines that are added to earlier results.

With training, these cycles are left out only after a copy that takes one step for its element. All
other vectors are far enough apart anyway."""
DRAIN_SPACING = cycles_left_out(Kind.SUM, Kind.ROW)
"""Cycles that are left out after the last sum of lines of an instruction."""
LONG_SPACING = max(
    *(cycles_left_out(Kind.SCALED_SUM, later) for later in (Kind.ROW, Kind.FIRST_OF_TWO)),
    *(cycles_left_out(Kind.OTHER, later) for later in (Kind.ROW, Kind.LOADS_TILE)),
    *(cycles_left_out(Kind.MEASURE, later) for later in (Kind.ROW, Kind.MEASURE)),
    *(cycles_left_out(Kind.ROW, later) for later in (Kind.MEASURE, Kind.LOADS_TILE)),
    cycles_left_out(Kind.SUM_CURVE, Kind.ROW),
)
"""Cycles that are left out after the vectors that use parts of the lanes for longest.

The pause follows

- a sum of scaled elements, when its addend or the instruction ends,
- the last vector of a tile, of random bytes or of a Measure, and the load of a seed,
- the last vector of an instruction with stochastic rounding, or on a curve.
"""
GATHER_SPACING = cycles_left_out(Kind.SCALED_CURVE, Kind.GATHERS)
"""Cycles that are left out between a vector with TABLE and a line that is looked up."""
READ_SLACK = 2
"""Cycles that lanes wait for a line, where columns take turns and a step takes two cycles.

A step may read in the first or in the second cycle. So another unit that uses the bank in every
other cycle does not stop the step."""
ANNOUNCED = 2
"""Cycles from the announcement of a line to its write.

An `Interlock` allows reads of the line from the cycle after the write."""


def gate_pause(turns: int) -> int:
    """Return the steps that are left out after a vector with SIGMOID or TANH.

    The pause is `slots` steps shorter than `gate_spacing`, as the steps of the next vector come on
    top. If that vector has only one or two steps, it may come too early, and GateQueue holds it.
    The pause also follows a sum of scaled elements on a curve.
    """
    pause = gate_spacing(turns) - slots(turns)
    assert pause >= left_out(cycles_left_out(Kind.SCALED_CURVE, Kind.ROW), turns)
    return pause


def alone_after(turns: int, *, sums_lines: bool) -> int:
    """Return the steps from a vector with SIGMOID or TANH until the lanes are empty again.

    With `sums_lines` the vector may be a sum of buffer lines; else it is an accumulator row.
    """
    drain = left_out(LONG_SPACING, turns) + 1 if sums_lines else 0
    return gates_alone(turns) + drain


def left_out(cycles: int, turns: int) -> int:
    """Return the steps to leave out for a pause of `cycles` cycles, one or more.

    A step takes `turns` cycles, one for each column of a lane, and so does each of the one or two
    lines of its result.
    """
    return -(-(cycles + 1 + 2 * (turns - 1)) // turns) - 1
