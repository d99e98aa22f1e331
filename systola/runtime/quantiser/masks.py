# SPDX-License-Identifier: Apache-2.0
"""Masks in float networks: constants far below 0 that keep scores out of a softmax.

A mask of -10000 makes the codes of the scores beside it equal. A constant of -30 is as good, since
exp(-30) is 1e-13, and leaves codes for the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLIPPED = -30.0
"""The value that takes the place of a mask."""
_SMALLEST = -1000.0
"""Largest value of a constant that counts as a mask."""
_MASKING = frozenset(("add", "sub", "mul", "select", "selectv2", "where", "maximum", "max"))
"""Kinds of operators that put a mask on scores, or make a mask of zeros and ones."""
_PASSING = _MASKING | {
    *("reshape", "transpose", "expanddims", "squeeze", "unsqueeze", "slice", "stridedslice"),
    *("broadcastto", "expand", "tile", "cast", "minimum", "min", "div", "identity"),
}
"""Kinds of operators that give scores if they take scores."""
_SOFTMAX = frozenset(("softmax", "logsoftmax"))


@dataclass(frozen=True)
class Step:
    """An operator of a network, in the order of execution."""

    kind: str
    """Name that the format has for this kind of operator. Capitals and underscores do not count."""
    inputs: Sequence[Hashable]
    outputs: Sequence[Hashable]

    @property
    def plain(self) -> str:
        """The kind in small letters, without underscores."""
        return self.kind.replace("_", "").lower()


def masks(
    steps: Sequence[Step],
    constants: Iterable[Hashable],
    content: Callable[[Hashable], NDArray[Any]],
) -> dict[Hashable, NDArray[np.float32]]:
    """Return the constants that are masks, by name, with CLIPPED for values far below 0.

    All operators that take such a constant lead to a softmax. On the way there are only operators
    of kinds in _PASSING.
    """
    takers: dict[Hashable, list[int]] = {}
    for number, step in enumerate(steps):
        for name in step.inputs:
            takers.setdefault(name, []).append(number)
    leading: set[int] = set()
    """Numbers of the operators with results that all go into a softmax."""
    for number, step in reversed([*enumerate(steps)]):
        after = [each for name in step.outputs for each in takers.get(name, [])]
        scores = step.plain in _PASSING and after and leading.issuperset(after)
        if scores or step.plain in _SOFTMAX:
            leading.add(number)
    found: dict[Hashable, NDArray[np.float32]] = {}
    for name in constants:
        here = takers.get(name, [])
        if not all(each in leading and steps[each].plain in _MASKING for each in here):
            continue
        values = content(name)
        far = values <= _SMALLEST
        if here and values.dtype == np.float32 and bool(far.any()):
            found[name] = np.where(far, np.float32(CLIPPED), values).astype(np.float32)
    return found
