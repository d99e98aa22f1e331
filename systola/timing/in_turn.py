# SPDX-License-Identifier: Apache-2.0
"""The order in which operands and sums of a scaled addition share the requantisers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.hdl.activation.spacings import SLOT_DISTANCE


def in_turn(vectors: int, halved: tuple[bool, bool], turns: int) -> NDArray[np.float64]:
    """Return the step, counted from 0, in which each sum of two operands is issued.

    Operands and older sums share the requantisers, for `turns` cycles each. So an operand waits for
    a free step, unless it is `halved` and needs no requantiser.
    """
    meets = range((SLOT_DISTANCE - turns) // turns + 1, -(-(SLOT_DISTANCE + turns) // turns))
    now, sums = -1, set[int]()
    issued: list[int] = []
    for _ in range(vectors):
        for half in halved:
            now += 1
            while now in sums and not half:
                now += 1
        sums.update(now + distance for distance in meets)
        issued.append(now)
    return np.array(issued, dtype=np.float64)
