# SPDX-License-Identifier: Apache-2.0
"""Which operations run for many samples at a time.

A tile of weights takes its time to arrive, however few vectors it is used for. A fully connected
layer has one for each sample, and so has each step in time of an LSTM, and a small map has as many
as it has pixels: where these are fewer than the cycles of a tile, operations wait at the end of the
network until a batch of samples has got there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.compiler.lower.arrival import arrival
from systola.compiler.lower.channels import Channels, channel_layouts
from systola.compiler.operations import (
    Binary,
    Concatenation,
    Convolution,
    Lstm,
    Node,
    Operations,
    Pooling,
    Product,
    Reshape,
    Slice,
    Unary,
    Value,
)

LINE_CYCLES, LOOP_CYCLES = 10, 50
"""What each line on its way into a batch takes, and the loop around a batch, as measured."""


@dataclass(frozen=True)
class Batch:
    """Operations that run for `size` samples at a time; by default none."""

    nodes: tuple[Node, ...] = ()
    size: int = 1


def batches_to_try(
    config: Config,
    operations: Operations,
    samples: int,
    is_hopeless: Callable[[Batch], bool],
) -> Iterator[tuple[Batch, bool]]:
    """Yield batches, the best first, and whether values may go to host memory to make room.

    Where a batch `is_hopeless` without that, larger ones of the same operations are left out.
    None does better than a batch for which they must; but if they must in any case, a batch that
    fills the array does better than none.
    """
    choices = batched_nodes(config, operations)
    sizes = batch_sizes(config, samples) if choices else []
    for spilling, limit in ((False, samples), (True, arrival(config))):
        for nodes in choices:
            if not spilling and sizes and is_hopeless(Batch(nodes, sizes[-1])):
                continue
            for size in sizes:
                if size <= limit:
                    yield Batch(nodes, size), spilling
        if sizes and not spilling:
            yield Batch(), False


def largest_batch(config: Config) -> int:
    """Samples: four times what hides the arrival of a tile behind one vector of each, so that
    starting each layer counts little."""
    return 4 * arrival(config)


def batched_nodes(config: Config, operations: Operations) -> list[tuple[Node, ...]]:
    """Operations at the end of the network for which a batch pays, in their order, with and without
    those on the windows of a map: the choice that saves most first."""
    saved: dict[tuple[Node, ...], float] = {}
    for windows in (True, False):
        nodes = _together(config, operations, windows=windows)
        gain = _gain(config, operations, nodes)
        if gain > 0:
            saved[nodes] = gain
    return sorted(saved, key=lambda nodes: -saved[nodes])


def _together(config: Config, operations: Operations, *, windows: bool) -> tuple[Node, ...]:
    """What a batch for the end of the network has in it, and all that takes its results."""
    alone = {node for node in operations.nodes if not _batchable(node, windows=windows)}
    while True:
        together = _closed(operations.nodes, alone)
        early = _early(config, operations.nodes, together)
        if not early:
            return together
        alone.update(early)


def _gain(config: Config, operations: Operations, together: Sequence[Node]) -> float:
    """Cycles that a batch saves for each sample, the moves of what goes into it taken off."""
    layouts = channel_layouts(operations, min(config.rows, config.cols))
    saved = sum(_saved(config, node, layouts) for node in together)
    if len(together) == len(operations.nodes):
        return saved
    needed = {source for node in together for source in node.sources}
    left = {node.result for node in operations.nodes} - {node.result for node in together}
    lines = sum(_lines(value, layouts[value]) for value in needed & left)
    return saved - LOOP_CYCLES - LINE_CYCLES * lines


def batch_sizes(config: Config, samples: int) -> list[int]:
    """Sizes of a batch to try one after the other: as equal as the number of samples allows."""
    sizes: list[int] = []
    limit = largest_batch(config)
    while limit > 1:
        size = -(-samples // -(-samples // limit))
        if size > 1 and size not in sizes:
            sizes.append(size)
        limit //= 2
    return sizes


def sample_order(rows: int, batch: int, samples: int, width: int = 1) -> NDArray[np.int64]:
    """For each of `rows` rows of each sample its row where batches lie one behind the other.

    In a batch the first `width` rows of all samples come first, then the next ones; the first batch
    has its last places taken if there are fewer samples than places.
    """
    places = np.arange(samples) + -samples % batch
    first = places // batch * rows * batch + places % batch * width
    row = np.arange(rows)
    return (first[:, np.newaxis] + row // width * width * batch + row % width).reshape(-1)


def _batchable(node: Node, *, windows: bool) -> bool:
    match node:
        case Convolution():
            # Rows of all samples alternate, so windows are one row apart, or as many as samples.
            return windows and (node.window.stride[0] == 1 or node.window.out[0] == 1)
        case Pooling():
            return windows
        case Lstm():
            # The pixels of a step lie together, and not in rows.
            return not windows
        case _:
            return isinstance(node, Product | Unary | Binary | Slice | Concatenation | Reshape)


def _pays(config: Config, node: Node) -> bool:
    """Whether one sample has fewer vectors for a tile than the cycles it takes to arrive."""
    return isinstance(node, Lstm) or 0 < _vectors(node) < arrival(config)


def _vectors(node: Node) -> int:
    """Vectors of one sample for each tile; 0 for operations without weights."""
    match node:
        case Lstm():
            return 1
        case Product():
            return node.source.channels * node.source.pixels // node.layer.k
        case Convolution():
            return node.result.pixels
        case _:
            return 0


def _saved(config: Config, node: Node, layouts: Mapping[Value, Channels]) -> int:
    """Cycles that loading weights takes longer for one sample than using them."""
    match node:
        case Lstm():
            inputs, cells = layouts[node.source].blocks, layouts[node.result].blocks
            tiles = 4 * node.source.pixels * (inputs + cells) * cells
        case Product():
            source, result = layouts[node.source], layouts[node.result]
            tiles = node.layer.k // source.count * source.blocks * result.blocks
        case Convolution():
            kernel = node.window.kernel
            blocks = layouts[node.source].blocks * layouts[node.result].blocks
            tiles = kernel[0] * kernel[1] * blocks
        case _:
            return 0
    return tiles * max(arrival(config) - _vectors(node), 0)


def _lines(value: Value, layout: Channels) -> int:
    """Buffer lines of a value."""
    return value.channels * value.pixels // layout.count * layout.blocks


def _closed(nodes: Sequence[Node], alone: set[Node]) -> tuple[Node, ...]:
    """The nodes that neither are in `alone` nor feed, through others, one that is."""
    needed: set[Value] = set()
    together: list[Node] = []
    for node in reversed(nodes):
        if node in alone or node.result in needed:
            needed.update(node.sources)
        else:
            together.append(node)
    return tuple(reversed(together))


def _early(config: Config, nodes: Sequence[Node], together: Sequence[Node]) -> list[Node]:
    """Those of `together` before which nothing pays, and which the rest of the network feeds.

    They take no longer for each sample alone, and less room.
    """
    fed = {node.result for node in nodes} - {node.result for node in together}
    behind: set[Value] = set()
    early: list[Node] = []
    for node in together:
        if _pays(config, node) or not behind.isdisjoint(node.sources):
            behind.add(node.result)
        elif not fed.isdisjoint(node.sources):
            fed.add(node.result)
            early.append(node)
    return early
