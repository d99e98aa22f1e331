# SPDX-License-Identifier: Apache-2.0
"""Cycles by which the lanes' results are late, and those between vectors that would meet."""

from systola.hdl.activation.activation_lane import ActivationLane
from systola.hdl.activation.gate_lane import slots
from systola.hdl.activation.gate_sequencer import gate_spacing, gates_alone
from systola.hdl.activation.requantiser import Requantiser
from systola.hdl.activation.vector_lane import VectorLane
from systola.hdl.memories.accumulators import READ_LATENCY as ROW_LATENCY
from systola.hdl.ports import BUFFER_LATENCY as LINE_LATENCY

OPERAND_LATENCY = LINE_LATENCY + 1
"""Cycles from the read of a buffer line to its bytes at the lanes, which are behind a register."""
SUM_LATENCY = OPERAND_LATENCY + VectorLane.LATENCY - ROW_LATENCY
"""Cycles by which the sum of lines comes later to the requantisers than an accumulator row."""
SCALED_LATENCY = SUM_LATENCY + VectorLane.SCALED_LATENCY - VectorLane.LATENCY
"""The same for a sum of elements that the requantisers have scaled before."""
SLOT_DISTANCE = VectorLane.SCALED_LATENCY - VectorLane.VALUE_STAGE
"""Cycles from the last line of such a sum to the one whose element would meet the sum."""
DRAIN_SPACING = SUM_LATENCY + 1
"""Cycles in which the front of the lanes empties, so that nothing overtakes it."""
LONG_SPACING = max(SCALED_LATENCY + 1, ActivationLane.PICK_STAGE - 1)
"""The same behind a sum of scaled elements, which covers what they are added to. Also behind the
last vector of a tile that is transposed, of random bytes or of a Measure, and behind a seed: until
the lines have been taken, and an exponent is known. Behind a stochastic rounding: until the
generators have made their steps."""
ADDEND_SPACING = VectorLane.LATENCY + Requantiser.OFFSET_STAGE - 2 - VectorLane.WAITING
"""Cycles between sums of lines that are added to what is there: the addend of a vector comes with
its second line at the earliest, and then that of the vector before has been taken on."""
ADDEND_LINES = 2 + ADDEND_SPACING
"""Lines of a vector, with those of its addend, for which that is so by itself: machines with
training leave no cycle out then."""
TAP_LATENCY = 2
"""Cycles from the number of a tap to its weights."""
TAP_SPACING = TAP_LATENCY
"""Cycles between the load of a tap and its use, at least."""
READ_SLACK = 2
"""Cycles that lanes wait for what is read, where columns take turns and a step may read in either
of its two cycles: so a bank that another unit has every other time does not hold it up."""
ANNOUNCED = 2
"""Cycles from the announcement of a line to its write. An `Interlock` lets nobody read it before
the cycle behind the write."""


def gate_pause(turns: int) -> int:
    """Return the steps that are left out behind a vector with SIGMOID or TANH. The next one with
    either may come `slots` sooner than it must then, with one step or two, and waits."""
    return gate_spacing(turns) - slots(turns)


def alone_after(turns: int, *, sums_lines: bool) -> int:
    """Return the steps from a vector with SIGMOID or TANH, which may be a sum of lines, to a step
    that must find nothing of it in the lanes."""
    drain = left_out(LONG_SPACING, turns) + 1 if sums_lines else 0
    return gates_alone(turns) + drain


def left_out(cycles: int, turns: int) -> int:
    """Steps that are left out for a pause of so many cycles, one or more, where each step takes
    `turns` cycles, one for each column of a lane, and each of up to two lines of its result, too.
    """
    return -(-(cycles + 1 + 2 * (turns - 1)) // turns) - 1
