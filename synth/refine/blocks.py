# SPDX-License-Identifier: Apache-2.0
"""Brings block memories to better places.

There are few of them and of their places, so that all places are looked at: free ones, and those of
others, which change places with them.
"""

from __future__ import annotations

from systola.synth.refine.moves import Refinement
from systola.synth.refine.placement import Group


class Blocks:
    """Of a placement on its way to shorter paths."""

    def __init__(self, refinement: Refinement):
        self._refinement = refinement

    def go_over(self) -> int:
        """Goes over all block memories once; how many have moved."""
        blocks = [block for block in self._refinement.placement.blocks.values() if block]
        return sum(map(self._improve, blocks))

    def _improve(self, block: Group) -> bool:
        """Moves one to the best of all places, if that is better than its own."""
        placement, cost = self._refinement.placement, self._refinement.cost
        own = block.x, block.y
        before = cost(block, *own)
        best, found = 0.0, own
        for place, other in placement.blocks.items():
            gain = before - cost(block, *place)
            if gain > best and other is not None:
                gain -= cost(other, *own) - cost(other, *place)
            if gain > best:
                best, found = gain, place
        if found == own:
            return False
        other = placement.blocks[found]
        placement.blocks[own] = None
        placement.put_block(block, *found)
        if other is not None:
            placement.put_block(other, *own)
        self._refinement.delays.moved((*block.cells, *(other.cells if other else ())))
        return True
