# SPDX-License-Identifier: Apache-2.0
"""The delays of the lanes' results, and the distances between vectors that keep them apart.

Nothing stops a vector in the lanes. So the user of ResultLanes keeps these distances. The value of
a "vector of lines" is a sum of buffer lines. ADD and SUBTRACT have "scaled" elements.

1. A vector with SIGMOID or TANH comes `gate_spacing` steps after the vector before with one of
   these functions, or later by a multiple of `slots`. Both are vectors of lines without scaled
   elements, or neither is a vector of lines.
2. A vector without these functions comes `gates_alone` steps after a vector with one of them, and
   so does a vector with 1/x. If the vector before is a vector of lines, LONG_SPACING cycles are
   added.
3. A cycle is left out after an int16 result.
4. ADDEND_SPACING cycles are left out after a sum that is added to the old content of its lines.
   With training this is only for sums of one step and their addend.
5. DRAIN_SPACING cycles are left out between a sum of lines and an accumulator row.
6. Where elements are scaled, LONG_SPACING takes the place of the pauses in lines 4 and 5.
7. No element is scaled SLOT_DISTANCE cycles after the issue of a sum of scaled elements.
8. TAP_SPACING cycles lie between the load of a tap and its use.
9. LONG_SPACING cycles are left out after the last vector of a tile, and of an instruction, with
   function OTHER. The same holds for the load of a seed, and for the last vector with stochastic
   rounding, which takes numbers from the generators.
10. LONG_SPACING cycles are left out after the last result on a curve, or `gate_pause` if elements
    are scaled.
11. GATHER_SPACING cycles are left out between a vector with TABLE and a line that is looked up.
"""

from systola.hdl.activation.activation_lane import ActivationLane
from systola.hdl.activation.gate_lane import slots
from systola.hdl.activation.gate_sequencer import gate_spacing, gates_alone
from systola.hdl.activation.requantiser import Requantiser
from systola.hdl.activation.vector_lane import VectorLane
from systola.hdl.memories.accumulators import READ_LATENCY as ROW_LATENCY
from systola.hdl.ports import BUFFER_LATENCY as LINE_LATENCY

OPERAND_LATENCY = LINE_LATENCY + 1
"""Cycles from the read of a buffer line to its bytes in the register before the lanes."""
SUM_LATENCY = OPERAND_LATENCY + VectorLane.LATENCY - ROW_LATENCY
"""Cycles by which a sum of buffer lines reaches the requantisers later than an accumulator row.

Both are counted from the read of the last line or the row."""
SCALED_LATENCY = SUM_LATENCY + VectorLane.SCALED_LATENCY - VectorLane.LATENCY
"""The SUM_LATENCY of a sum with elements that the requantisers have scaled before the addition."""
SLOT_DISTANCE = VectorLane.SCALED_LATENCY - VectorLane.VALUE_STAGE
"""Cycles from the last line of a sum of scaled elements to the line that collides with it.

An element of a line read so much later would reach the requantisers in the cycle of the sum."""
DRAIN_SPACING = SUM_LATENCY + 1
"""Cycles that are left out while the front of the lanes empties, so that no later vector overtakes
a vector in it.
"""
LONG_SPACING = max(SCALED_LATENCY + 1, ActivationLane.PICK_STAGE - 1)
"""Cycles after a sum of scaled elements in which the front of the lanes empties.

The pause is long enough for the addends of that sum, too. It also follows

- a seed, and the last vector of a transposed tile, of random bytes or of a Measure: until the lines
  have been taken and the exponent is known,
- a stochastic rounding, until the generators of random numbers have made their steps.
"""
ADDEND_SPACING = VectorLane.LATENCY + Requantiser.OFFSET_STAGE - 2 - VectorLane.WAITING
"""Cycles between sums of lines that are added to earlier results.

The addend of a vector arrives with its second line at the earliest. By then the addend of the
vector before must have been used. With training, these cycles are left out only after a copy that
takes one step for its element. All other vectors take as many cycles anyway."""
GATHER_SPACING = SCALED_LATENCY + ActivationLane.TABLE_STAGE
"""Cycles between a vector with TABLE or a curve and a line that is looked up.

The vector may be a sum of scaled elements, which looks up its result late. Both look-ups use the
same memory.
"""
TAP_LATENCY = 2
"""Cycles from the number of a tap to its weights."""
TAP_SPACING = TAP_LATENCY
"""Smallest number of cycles between the load of a tap's weights and their use."""
READ_SLACK = 2
"""Cycles that lanes wait for a line, where columns take turns and a step takes two cycles.

A step may read in the first or in the second cycle. So another unit that uses the bank in every
other cycle does not stop the step."""
ANNOUNCED = 2
"""Cycles from the announcement of a line to its write.

An `Interlock` allows reads of the line from the cycle after the write."""


def gate_pause(turns: int) -> int:
    """Return the steps that are left out after a vector with SIGMOID or TANH.

    The pause is `slots` steps shorter than `gate_spacing`. A next vector of one or two steps, with
    SIGMOID or TANH, may therefore come too early by as many steps. GateQueue then holds it.
    """
    return gate_spacing(turns) - slots(turns)


def alone_after(turns: int, *, sums_lines: bool) -> int:
    """Return the steps from a vector with SIGMOID or TANH until the lanes are empty again.

    `sums_lines`: the vector may be a sum of buffer lines.
    """
    drain = left_out(LONG_SPACING, turns) + 1 if sums_lines else 0
    return gates_alone(turns) + drain


def left_out(cycles: int, turns: int) -> int:
    """Return the steps to leave out for a pause of `cycles` cycles, one or more.

    A step takes `turns` cycles, one for each column of a lane. Each of the one or two lines of its
    result takes as many cycles, too.
    """
    return -(-(cycles + 1 + 2 * (turns - 1)) // turns) - 1
