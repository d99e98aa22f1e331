# SPDX-License-Identifier: Apache-2.0
"""Walks as their users hand them to a walker."""

from typing import Any


def walk_of(*, count: dict[str, int], **others: Any) -> dict[str, Any]:
    """A walk with this `count` of each level, and what follows from that alone."""
    return {
        "count": count,
        "single": {level: number == 1 for level, number in count.items()},
        "double": {level: number == 2 for level, number in count.items()},
        **others,
    }
