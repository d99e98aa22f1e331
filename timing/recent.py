# SPDX-License-Identifier: Apache-2.0
"""Times seen from the present cycle.

An instruction that is issued now waits for times that are later than now. Where a delay is added,
it waits for times a few cycles before. Older times make no difference: all of them are alike.
"""

from __future__ import annotations

FORGOTTEN = 64.0
"""Cycles before the present one: more than any delay that is added to a time."""


def recent(time: float, now: float) -> float:
    """Return `time` relative to cycle `now`; times that make no difference are all the same."""
    return max(time - now, -FORGOTTEN)
