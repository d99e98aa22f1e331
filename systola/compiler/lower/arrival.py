# SPDX-License-Identifier: Apache-2.0
"""The time that a tile of weights takes from weight memory to the array."""

from __future__ import annotations

from math import ceil

from systola.arch.config import Config
from systola.compiler.plan import tile_cycles


def arrival(config: Config) -> int:
    """Return the least number of cycles between the arrivals of two weight tiles in the array.

    A tile takes `tile_cycles` cycles through the weight port, and then a cycle for each row to move
    into the array. The two overlap for consecutive tiles, so the larger number counts.
    """
    return max(config.rows, ceil(tile_cycles(config)))
