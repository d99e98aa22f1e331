# SPDX-License-Identifier: Apache-2.0
"""Times relative to the present cycle, limited to times that still make a difference.

An instruction that is issued now can only wait for a later cycle. A delay is added to some times,
so times a few cycles ago count, too. All times older than FORGOTTEN cycles are taken as equal.
"""

from __future__ import annotations

FORGOTTEN = 64.0
"""Cycles before the present one: more than any delay that is added to a time."""


def recent(time: float, now: float) -> float:
    """Return `time` relative to cycle `now`; times that make no difference are all the same."""
    return max(time - now, -FORGOTTEN)
