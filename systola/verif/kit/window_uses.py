# SPDX-License-Identifier: Apache-2.0
"""The instructions that use a window, for generated programs that test the places of taps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Opcode, Reduction, encode
from systola.golden.window import Window
from systola.verif.kit.images import random_memory, random_parameter_entry


def memory_with_entry(
    config: Config, data: np.random.Generator, pages: int, place: int
) -> NDArray[np.uint8]:
    """Return `pages` pages of random host memory, with a random parameter entry at byte `place`."""
    host = random_memory(data, pages)
    entry = random_parameter_entry(data, config)
    host[place:][: entry.size] = entry
    return host


def set_window(window: Window) -> list[bytes]:
    """Return a Set_Config_Window, and a Read_Weights with a tile for each tap of the window."""
    return [
        encode(Opcode.SET_CONFIG_WINDOW, **vars(window)),
        encode(Opcode.READ_WEIGHTS, tile=0, count=window.taps),
    ]


def window_uses(
    config: Config, window: Window, *, place: int, taps: int, results: int, fill: int = 0
) -> list[list[bytes]]:
    """Return a Convolve, a Pool and, if the machine has it, a Depthwise for a window.

    The map begins at line `place`. Each list also has the instructions that bring the results to
    the buffer, from line `results` on.
    """
    rows = {"rows": window.windows, "n_tiles": 1}
    common = {"buffer": place, "destination": results, "blocks": 1, "parameter": 0}
    uses = [
        [
            encode(
                Opcode.CONVOLVE,
                **{"buffer": place, "accumulator": 0, "plane": 0, "k_tiles": 1, "n_tiles": 1},
                fill=fill,
            ),
            encode(Opcode.ACTIVATE, accumulator=0, buffer=results, parameter=0, **rows),
        ],
        [encode(Opcode.POOL, reduction=Reduction.SUM, **common)],
    ]
    if config.depthwise:
        uses.append([encode(Opcode.DEPTHWISE, taps=taps, fill=fill, **common)])
    return uses
