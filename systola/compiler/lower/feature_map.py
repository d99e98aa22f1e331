# SPDX-License-Identifier: Apache-2.0
"""Feature maps in the unified buffer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import CompileError
from systola.compiler.lower.channels import Channels


@dataclass(eq=False)
class Lines:
    """A range of consecutive lines of the buffer, to which the compiler gives a place later.

    Two objects with equal fields still stand for different lines.
    """

    name: str
    count: int
    content: NDArray[np.int8] | None = None
    """Constants that the lines always hold, as `count` x bytes of a line; None for lines that steps
    write.
    """


@dataclass(frozen=True, kw_only=True)
class FeatureMap:
    """A feature map in the unified buffer, or a part of such a map.

    Pixel p of block b of the channels is line `offset` + b * `plane` + p of `lines`.
    """

    lines: Lines
    offset: int = 0
    height: int
    width: int
    plane: int
    """Number of lines from one block of channels to the next."""
    channels: Channels
    packed: bool = False
    """True if the pixels of a row are packed: they follow each other without gaps in whole lines.

    Convolve has a mode for such a source.
    """
    beside: int = 1
    """Number of neighbouring pixels that share a line; more than 1 only in outputs to host memory.
    """

    @property
    def pixels(self) -> int:
        """Number of pixels of the map."""
        return self.height * self.width

    def grid(self, height: int, width: int) -> FeatureMap:
        """Return the same pixels in the same lines as a map of another height and width."""
        assert height * width == self.pixels and not self.packed
        return replace(self, height=height, width=width)

    def part(self, start: int, pixels: int) -> FeatureMap:
        """Return `pixels` pixels of the map, from pixel `start` on, as a map of one row."""
        assert start + pixels <= self.pixels and not self.packed
        return replace(self, offset=self.offset + start, height=1, width=pixels)

    def band(self, first: int, count: int) -> FeatureMap:
        """Return `count` rows of pixels, from row `first` on, as a map."""
        assert first + count <= self.height and not self.packed
        return replace(self, offset=self.offset + first * self.width, height=count)

    def cut(self, start: int, count: int) -> FeatureMap:
        """Return `count` channels of the map, from channel `start` on, as a map.

        Raises CompileError if these channels are not whole blocks.
        """
        block, channels = self.channels.cut(start, count)
        return replace(self, offset=self.offset + block * self.plane, channels=channels)

    def one_block(self, number: int) -> FeatureMap:
        """Return the channels of block `number` as a map."""
        slots = self.channels.slots // self.channels.block
        here = np.flatnonzero(slots == number)
        return self.cut(int(here[0]), len(here))

    def block(self, number: int) -> int:
        """Return the number of the first line, among `lines`, of block `number` of the channels."""
        return self.offset + number * self.plane


def new_map(name: str, height: int, width: int, channels: Channels) -> FeatureMap:
    """Return a new map in the buffer with lines of its own."""
    pixels = height * width
    return FeatureMap(
        lines=Lines(name, pixels * channels.blocks),
        height=height,
        width=width,
        plane=pixels,
        channels=channels,
    )


def runs(*maps: FeatureMap) -> list[tuple[tuple[int, ...], int, int]]:
    """Return runs of consecutive lines that cover several maps of equal pixels and channels.

    A run has three items: the offset of its first line in each map, its number of blocks, and its
    number of lines. If a map has gaps between blocks, each block is a run; else one run has all
    blocks. Raises CompileError if the maps differ.
    """
    first = maps[0]
    blocks = first.channels.blocks
    if any(
        each.pixels != first.pixels or each.channels.slots.tolist() != first.channels.slots.tolist()
        for each in maps
    ):
        raise CompileError("its inputs and result do not lie alike in the buffer")
    if blocks == 1 or all(each.plane == each.pixels for each in maps):
        return [(tuple(each.offset for each in maps), blocks, blocks * first.pixels)]
    return [
        (tuple(each.block(number) for each in maps), 1, first.pixels) for number in range(blocks)
    ]
