# SPDX-License-Identifier: Apache-2.0
"""The time that a tile of weights takes to arrive in the array."""

from __future__ import annotations

from math import ceil

from systola.arch.config import Config
from systola.compiler.plan import tile_cycles


def arrival(config: Config) -> int:
    """Return the least number of cycles from the arrival of one weight tile to the next tile's.

    A tile takes `tile_cycles` to come from memory, and a cycle for each row to move into the array.
    The larger of the two numbers counts.
    """
    return max(config.rows, ceil(tile_cycles(config)))
