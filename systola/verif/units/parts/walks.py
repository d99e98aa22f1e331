# SPDX-License-Identifier: Apache-2.0
"""A function that makes walks in the form in which a walker takes them."""

from typing import Any


def walk_of(*, count: dict[str, int], **others: Any) -> dict[str, Any]:
    """Return a walk with this `count` of each level, and the flags `single` and `double` of the
    counts.
    """
    return {
        "count": count,
        "single": {level: number == 1 for level, number in count.items()},
        "double": {level: number == 2 for level, number in count.items()},
        **others,
    }
