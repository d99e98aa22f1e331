# SPDX-License-Identifier: Apache-2.0
"""The time that a tile of weights takes to arrive in the array."""

from __future__ import annotations

from math import ceil

from systola.arch.config import Config
from systola.compiler.plan import tile_cycles


def arrival(config: Config) -> int:
    """Return the number of cycles from the arrival of one tile of weights to the next one's.

    A tile comes from memory in `tile_cycles` and moves into the array row by row. The slower of the
    two counts.
    """
    return max(config.rows, ceil(tile_cycles(config)))
