# SPDX-License-Identifier: Apache-2.0
"""The positions of a feature map's channels in the lines of the buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import CompileError
from systola.compiler.operations import (
    Binary,
    Concatenation,
    Curve,
    DepthwiseConvolution,
    Node,
    Operations,
    Pooling,
    Reshape,
    Slice,
    Unary,
    Value,
)


@dataclass(frozen=True)
class Channels:
    """A layout of a map's channels in blocks; a block has one buffer line for each pixel.

    The channels are in parts. Each part begins with a new block, so that it can be a map of its
    own.
    """

    parts: tuple[int, ...]
    """Number of channels of each part, in order."""
    block: int
    """Number of channels of a full block, which is the number of channels in a line."""

    @cached_property
    def count(self) -> int:
        """Number of channels of all parts together."""
        return sum(self.parts)

    @cached_property
    def blocks(self) -> int:
        """Number of blocks of all parts together."""
        return sum(-(-part // self.block) for part in self.parts)

    @cached_property
    def slots(self) -> NDArray[np.int64]:
        """Byte position, from 0, of each channel of a pixel, if the pixel's lines of all blocks are
        joined in order.

        The array is read-only.
        """
        slots: list[NDArray[np.int64]] = []
        first = 0
        for part in self.parts:
            slots.append(first * self.block + np.arange(part))
            first += -(-part // self.block)
        whole = np.concatenate(slots)
        whole.setflags(write=False)
        return whole

    def cut(self, start: int, count: int) -> tuple[int, Channels]:
        """Return a pair for channels `start` to `start` + `count` - 1: their first block, counted
        from 0, and their layout.

        Raises CompileError if these channels are neither whole parts nor whole blocks of one part.
        """
        return _cut(self, start, count)


@lru_cache(maxsize=4096)
def _cut(channels: Channels, start: int, count: int) -> tuple[int, Channels]:
    """Do the work of Channels.cut, and remember its results.

    The cache saves time, because each band of rows of a value asks for the same cuts.
    """
    edges = np.cumsum((0, *channels.parts)).tolist()
    inner = [edge for edge in edges if start < edge < start + count]
    parts = tuple(high - low for low, high in pairwise((start, *inner, start + count)))
    layout = Channels(parts, channels.block)
    slots = channels.slots
    first = int(slots[start]) // channels.block
    if not np.array_equal(slots[start : start + count] - first * channels.block, layout.slots):
        raise CompileError(f"channels {start} to {start + count - 1} are not whole blocks")
    return first, layout


@dataclass(frozen=True)
class _Tie:
    """A rule that two values must be cut into parts at the same channels.

    The channels of `part` are channels of `whole`, from channel `start` on.
    """

    whole: Value
    part: Value
    start: int


def channel_layouts(operations: Operations, block: int) -> dict[Value, Channels]:
    """Return a layout of channels for each value. A full block has `block` channels.

    The layouts let operations that only pass channels on, like Slice, find these channels as whole
    blocks. A value that is reshaped to another number of channels keeps the layout of its source.
    """
    counts = {value: value.channels for value in operations.inputs}
    ties: list[_Tie] = []
    for node in operations.nodes:
        counts[node.result] = _count(node, counts)
        ties.extend(_ties(node))
    cuts: dict[Value, set[int]] = {value: set() for value in counts}
    changed = True
    while changed:
        changed = False
        for tie in ties:
            size = counts[tie.part]
            whole, part = cuts[tie.whole], cuts[tie.part]
            edges = {tie.start, tie.start + size, *(cut + tie.start for cut in part)}
            wanted = edges - {0, counts[tie.whole]} - whole
            inner = {cut - tie.start for cut in whole if tie.start < cut < tie.start + size} - part
            whole |= wanted
            part |= inner
            changed = changed or bool(wanted or inner)
    return {
        value: Channels(
            tuple(high - low for low, high in pairwise((0, *sorted(cuts[value]), count))), block
        )
        for value, count in counts.items()
    }


def _count(node: Node, counts: Mapping[Value, int]) -> int:
    if isinstance(node, (Reshape, Unary, Binary, Curve)):
        return max((counts[each] for each in node.sources), default=node.result.channels)
    return node.result.channels


def _ties(node: Node) -> list[_Tie]:
    match node:
        case Slice():
            last = node.axis == len(node.source.shape) - 1
            return [_Tie(node.source, node.result, node.start if last else 0)]
        case Concatenation():
            if node.axis < len(node.result.shape) - 1:
                return [_Tie(node.result, part, 0) for part in node.parts]
            edges = np.cumsum((0, *(part.channels for part in node.parts))).tolist()
            return [
                _Tie(node.result, part, start)
                for part, start in zip(node.parts, edges, strict=False)
            ]
        case Reshape() | Unary() | Binary() | Curve() | Pooling() | DepthwiseConvolution():
            return [_Tie(node.result, source, 0) for source in node.sources]
        case _:
            return []
