# SPDX-License-Identifier: Apache-2.0
"""The walks as their users hand them to a walker."""

from typing import Any


def walk_of(*, count: dict[str, int], **others: Any) -> dict[str, Any]:
    """Return a walk with this `count` of each level, and the fields that follow from it alone."""
    return {
        "count": count,
        "single": {level: number == 1 for level, number in count.items()},
        "double": {level: number == 2 for level, number in count.items()},
        **others,
    }
