# SPDX-License-Identifier: Apache-2.0
"""Times relative to the present cycle, limited to times that still make a difference.

An instruction that is issued now can only wait for a later cycle. A delay is added to some times,
so times a few cycles ago count, too. All times older than FORGOTTEN cycles are taken as equal.
"""

from __future__ import annotations

FORGOTTEN = 64.0
"""Age in cycles from which a time makes no difference: more than any delay added to a time."""


def recent(time: float, now: float) -> float:
    """Return `time` relative to cycle `now`, or -FORGOTTEN if it is older than FORGOTTEN cycles."""
    return max(time - now, -FORGOTTEN)
