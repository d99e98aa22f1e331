# SPDX-License-Identifier: Apache-2.0
"""How long a tile of weights takes."""

from __future__ import annotations

from math import ceil

from systola.arch.config import Config
from systola.compiler.plan import tile_cycles


def arrival(config: Config) -> int:
    """Cycles from one tile to the next: it has to come from memory and to move into the array."""
    return max(config.rows, ceil(tile_cycles(config)))
