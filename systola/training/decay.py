# SPDX-License-Identifier: Apache-2.0
"""Weight decay, which does not go through gradients: in each step weights lose a fixed fraction.

In int16 the loss of one step would be rounded to nothing. So the losses of DECAY_STEPS steps are
taken off at once. Before the rounding an offset is added, which is the same for all weights. Each
time the offset is the next number of the van der Corput sequence. So a weight that loses a tenth of
a unit each time loses a whole unit once in ten times. A code of zero stays zero.
"""

from __future__ import annotations

from systola.training.numbers import multiplier
from systola.training.writer import Entry, shifted

DECAY_STEPS = 16
"""Number of steps between two updates with decay; such an update has the decay of all of them."""
MOST_DECAY = 0.1
_BITS = 16
"""Number of bits of an offset in the van der Corput sequence."""
_MOST_RIGHT = 31


def decay_entry(weight_decay: float, rate: float, steps: int) -> Entry | None:
    """Return the parameter entry that makes the amount that a master loses after `steps` steps.

    The result is None if masters lose nothing, which is so after most steps: losses are taken off
    only after each DECAY_STEPS-th step. The result is also None if no master would ever lose a
    unit.
    """
    if not weight_decay or steps % DECAY_STEPS:
        return None
    part = 1 - max(0.0, 1 - rate * weight_decay) ** DECAY_STEPS
    q, right = multiplier(part) if part else (0, _MOST_RIGHT + 1)
    if right > _MOST_RIGHT:
        return None
    place = steps // DECAY_STEPS % (1 << _BITS)
    offset = int(f"{place:0{_BITS}b}"[::-1], 2) / 2.0**_BITS - 0.5
    return shifted(right, multiplier=q, bias=round(offset / part))
