# SPDX-License-Identifier: Apache-2.0
"""Brings maps of inputs and of the gradient of a Conv2D for its update."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


class Loads(Protocol):
    """A source of maps in the buffer, of one turn after the other."""

    def all(self) -> Iterator[tuple[range, range]]:
        """Bring inputs and gradient of all channels."""
        ...

    def block(self, block: int) -> Iterator[tuple[range, range]]:
        """Bring inputs and gradient of a block of channels of a DepthwiseConv2D."""
        ...

    def gradient(self, block: int) -> Iterator[range]:
        """Bring the gradient of a block of channels."""
        ...


@dataclass(frozen=True)
class InBuffer:
    """Maps of all samples, which are in the buffer."""

    x: range
    lines: range
    """Lines of the gradient."""
    blocks: int
    """Number of blocks of channels of a DepthwiseConv2D."""

    def all(self) -> Iterator[tuple[range, range]]:
        """Return inputs and gradient of all channels."""
        yield self.x, self.lines

    def block(self, block: int) -> Iterator[tuple[range, range]]:
        """Return inputs and gradient of a block of channels of a DepthwiseConv2D."""
        yield self._of(self.x, block), self._of(self.lines, block)

    def gradient(self, block: int) -> Iterator[range]:
        """Return the gradient of a block of channels."""
        yield self._of(self.lines, block)

    def _of(self, lines: range, block: int) -> range:
        each = len(lines) // self.blocks
        return lines[block * each : (block + 1) * each]
