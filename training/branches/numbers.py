# SPDX-License-Identifier: Apache-2.0
"""The exponents of sums of tensors, and the range in which exponents are kept.

Tensors of int8 with f_i fraction bits are added as int16: each is shifted left by up to 6 bits, a
tensor with the fewest fraction bits m by all of these. So a sum has m + 6 fraction bits, and of up
to four tensors it cannot leave int16. It has eight bits again after it has been measured.

Halves are rounded away from zero then, in place of upwards: sums of a few codes are halves often,
and the error of a gradient adds up over all samples and pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from systola.training.stages import Stage, takes

LEAST_KEPT, KEPT_LINES, KEPT_STEP = -60, 5, 15
"""The negative of fraction bits: the least that is kept, and how many int16 tell it, each of them
up to so many bits."""
_LEFT = 6
_FULL = 2
"""The bits of the number of tensors that fit without a smaller shift."""


def kept(bits: int) -> int:
    """Return fraction bits as they are kept: -15 to 60, which no number that matters leaves."""
    return min(max(bits, -LEAST_KEPT - KEPT_LINES * KEPT_STEP), -LEAST_KEPT)


def sum_left(count: int) -> int:
    """Return how many fraction bits a sum of so many tensors has beyond the least of theirs."""
    return _LEFT - max(0, (count - 1).bit_length() - _FULL)


def alone(stages: Sequence[Stage], at: int) -> bool:
    """Return whether a result goes into one stage with weights, and nowhere else."""
    users = [stages[number] for number in range(len(stages)) if at in takes(stages, number)]
    return len(users) == 1 and not users[0].join


def width_of(stages: Sequence[Stage], at: int, *, flat: bool) -> int:
    """Return the channels of a result, or all numbers of a sample where it is `flat`."""
    if not at:
        return stages[0].channels
    stage = stages[at - 1]
    return stage.units * (prod(stage.map) if flat else 1)
