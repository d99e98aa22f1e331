# SPDX-License-Identifier: Apache-2.0
"""A function that makes walks, which are nests of loops, in the form of the walker's input."""

from typing import Any


def walk_of(*, count: dict[str, int], **others: Any) -> dict[str, Any]:
    """Return a walk with the `count` of each level, and with flags for counts of 1 and of 2."""
    return {
        "count": count,
        "single": {level: number == 1 for level, number in count.items()},
        "double": {level: number == 2 for level, number in count.items()},
        **others,
    }
