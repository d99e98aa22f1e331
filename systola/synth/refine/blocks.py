# SPDX-License-Identifier: Apache-2.0
"""The moves of block memories to better places.

Block memories and their places are few, so that all places are tried. A memory on a place changes
places with the memory that moves there.
"""

from __future__ import annotations

from systola.synth.refine.moves import Refinement
from systola.synth.refine.placement import Group


class Blocks:
    """A mover of the block memories of a placement."""

    def __init__(self, refinement: Refinement):
        self._refinement = refinement

    def go_over(self) -> int:
        """Try to move each block memory once, and return how many have moved."""
        blocks = [block for block in self._refinement.placement.blocks.values() if block]
        return sum(map(self._improve, blocks))

    def _improve(self, block: Group) -> bool:
        """Move a block memory to the best of all places, if it is better than its own."""
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
