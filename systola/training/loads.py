# SPDX-License-Identifier: Apache-2.0
"""Sources of the maps for the update of a Conv2D: its inputs, and the gradient of its sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


class Loads(Protocol):
    """A source of the maps for an update, which brings them into the buffer turn by turn."""

    def all(self) -> Iterator[tuple[range, range]]:
        """Yield the lines of inputs and gradient of all channels, for each turn."""
        ...

    def block(self, block: int) -> Iterator[tuple[range, range]]:
        """Yield the lines of inputs and gradient of one block of channels, for each turn."""
        ...

    def gradient(self, block: int) -> Iterator[range]:
        """Yield the lines of the gradient of one block of channels, for each turn."""
        ...


@dataclass(frozen=True)
class InBuffer:
    """A source of maps that are in the buffer already, for a batch of one turn."""

    x: range
    lines: range
    """Lines with the gradient of the sums."""
    blocks: int
    """Number of blocks of channels, in which a DepthwiseConv2D takes the maps."""

    def all(self) -> Iterator[tuple[range, range]]:
        """Yield the lines of inputs and gradient of all channels."""
        yield self.x, self.lines

    def block(self, block: int) -> Iterator[tuple[range, range]]:
        """Yield the lines of inputs and gradient of one block of channels."""
        yield self._of(self.x, block), self._of(self.lines, block)

    def gradient(self, block: int) -> Iterator[range]:
        """Yield the lines of the gradient of one block of channels."""
        yield self._of(self.lines, block)

    def _of(self, lines: range, block: int) -> range:
        each = len(lines) // self.blocks
        return lines[block * each : (block + 1) * each]
