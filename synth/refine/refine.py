# SPDX-License-Identifier: Apache-2.0
"""What is done to a placement, in order: single groups first, then neighbourhoods and groups; block
memories before each of them.

At first a group may also go where the paths through it are a little worse, which gets chains along
that no single move would shorten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tqdm import tqdm

from systola.synth.refine.blocks import Blocks
from systola.synth.refine.moves import Refinement
from systola.synth.refine.neighbourhoods import Neighbourhoods

GOAL = 0.875
"""Of the cycle that nextpnr is asked for. What a path is longer than that costs its square: routing
takes some ways that are longer than they need be."""
PASSES = 24
"""Over all groups on slow paths."""
WORSE = 0.5
"""Nanoseconds squared: by how much a place may be worse in the first pass, on average."""
COOLING = 0.7
"""The part of the passes in which that falls to nothing."""
ROUNDS = 12
"""Of neighbourhoods, each with passes behind it that bring single groups to rest."""
SHIFTS, PASSES_BEHIND = 500, 2


def refine(design: Mapping[str, Any], *, seed: int, frequency: float, what: str) -> None:
    """Moves cells of a design that nextpnr has placed on an ECP5, for a clock of `frequency` MHz.

    The same seed gives the same places. `what` is shown on stderr, with how far it is.
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
