# SPDX-License-Identifier: Apache-2.0
"""Where the channels of a feature map lie in the lines of the buffer."""

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
    """Channels in blocks of a line each; every part begins a block, so that it can be cut off."""

    parts: tuple[int, ...]
    """Channels of each part."""
    block: int
    """Channels of a full line."""

    @cached_property
    def count(self) -> int:
        """Number of channels."""
        return sum(self.parts)

    @cached_property
    def blocks(self) -> int:
        """Number of blocks."""
        return sum(-(-part // self.block) for part in self.parts)

    @cached_property
    def slots(self) -> NDArray[np.int64]:
        """For each channel the byte it takes, counted through all blocks; not to be written."""
        slots: list[NDArray[np.int64]] = []
        first = 0
        for part in self.parts:
            slots.append(first * self.block + np.arange(part))
            first += -(-part // self.block)
        whole = np.concatenate(slots)
        whole.setflags(write=False)
        return whole

    def cut(self, start: int, count: int) -> tuple[int, Channels]:
        """First block and layout of `count` channels from `start` on.

        Raises CompileError where they are not whole parts, or whole blocks of one.
        """
        return _cut(self, start, count)


@lru_cache(maxsize=4096)
def _cut(channels: Channels, start: int, count: int) -> tuple[int, Channels]:
    """Channels.cut; the same cuts are asked for in each band of a value."""
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
    """Channels `start` onwards of `whole` are those of `part`, and are cut alike."""

    whole: Value
    part: Value
    start: int


def channel_layouts(operations: Operations, block: int) -> dict[Value, Channels]:
    """A layout for each value, such that operations that only pass channels on can do so.

    That of a value reshaped to another number of channels is that of its source.
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
    if isinstance(node, (Reshape, Unary, Binary)):
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
        case Reshape() | Unary() | Binary() | Pooling() | DepthwiseConvolution():
            return [_Tie(node.result, source, 0) for source in node.sources]
        case _:
            return []
