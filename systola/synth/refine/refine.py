# SPDX-License-Identifier: Apache-2.0
"""The order of refining: single groups first, then neighbourhoods and groups.

Block memories come before each pass. In the first passes a group may also go to places where its
paths are a little worse. This moves chains that no single move would shorten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from systola.synth.refine.blocks import Blocks
from systola.synth.refine.moves import Refinement
from systola.synth.refine.neighbourhoods import Neighbourhoods

GOAL = 0.875
"""Longest good path as a fraction of the cycle that nextpnr is asked for. A longer path costs the
square of its excess: routing takes some ways that are longer than they need be."""
PASSES = 24
"""Number of passes over all groups on slow paths."""
WORSE = 0.5
"""Excess in cost, in nanoseconds squared, that a place may have in the first pass, on average."""
COOLING = 0.7
"""Part of the passes, from the first one on, in which the excess WORSE falls to zero."""
ROUNDS = 12
"""Number of rounds of neighbourhoods, each followed by passes over single groups."""
SHIFTS, PASSES_BEHIND = 500, 2


def refine(design: Mapping[str, Any], *, seed: int, frequency: float, what: str) -> None:
    """Move cells of a design that nextpnr has placed on an ECP5, for a clock of `frequency` MHz.

    The same seed gives the same places. `what` is shown on stderr, with the progress.
    """
    refinement = Refinement(design, seed=seed, goal=GOAL * 1000 / frequency)
    neighbourhoods = Neighbourhoods(refinement, seed=seed)
    blocks = Blocks(refinement)
    for number in tqdm(range(PASSES + ROUNDS), desc=what, unit="pass", leave=False, disable=None):
        blocks.go_over()
        if number < PASSES:
            refinement.go_over(WORSE * max(0.0, 1 - number / (PASSES * COOLING)))
        else:
            neighbourhoods.go_over(SHIFTS)
            for _ in range(PASSES_BEHIND):
                refinement.go_over(0.0)
    refinement.placement.write()
