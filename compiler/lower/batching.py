# SPDX-License-Identifier: Apache-2.0
"""Which operations run for many samples at a time.

A tile of weights takes as long to load as the array has rows, however few vectors it is used for.
A fully connected layer has one for each sample, and so has each step in time of an LSTM, so these
wait at the end of the network until a batch of samples has got there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.compiler.lower.channels import Channels, channel_layouts
from systola.compiler.operations import (
    Binary,
    Concatenation,
    Lstm,
    Node,
    Operations,
    Product,
    Reshape,
    Slice,
    Unary,
    Value,
)

LARGEST_BATCH = 64
"""Samples: four times what fills the array of `base`, so that starting each layer counts little."""

LINE_CYCLES, LOOP_CYCLES = 10, 50
"""What each line on its way into a batch takes, and the loop around a batch, as measured."""


@dataclass(frozen=True)
class Batch:
    """Operations that run for `size` samples at a time; by default none."""

    nodes: tuple[Node, ...] = ()
    size: int = 1


def batches_to_try(
    config: Config, operations: Operations, samples: int
) -> Iterator[tuple[Batch, bool]]:
    """Batches, the best first, and whether values may go to host memory to make room for them.

    None does better than a batch for which they must; but if they must in any case, a batch that
    fills the array does better than none.
    """
    nodes = batched_nodes(config, operations)
    sizes = batch_sizes(samples) if nodes else []
    if sizes:
        for size in sizes:
            yield Batch(nodes, size), False
        yield Batch(), False
        for size in sizes:
            if size <= config.rows:
                yield Batch(nodes, size), True


def batched_nodes(config: Config, operations: Operations) -> tuple[Node, ...]:
    """Operations at the end of the network for which a batch pays, in their order; may be empty.

    All that takes their results is among them, too.
    """
    alone = {node for node in operations.nodes if not _batchable(node)}
    while True:
        together = _closed(operations.nodes, alone)
        early = _early(config, operations.nodes, together)
        if not early:
            break
        alone.update(early)
    layouts = channel_layouts(operations, min(config.rows, config.cols))
    saved = sum(_saved(config, node, layouts) for node in together)
    if len(together) == len(operations.nodes):
        return together if saved else ()
    needed = {source for node in together for source in node.sources}
    left = {node.result for node in operations.nodes} - {node.result for node in together}
    lines = sum(_lines(value, layouts[value]) for value in needed & left)
    return together if saved > LOOP_CYCLES + LINE_CYCLES * lines else ()


def batch_sizes(samples: int) -> list[int]:
    """Sizes of a batch to try one after the other: as equal as the number of samples allows."""
    sizes: list[int] = []
    limit = LARGEST_BATCH
    while limit > 1:
        size = -(-samples // -(-samples // limit))
        if size > 1 and size not in sizes:
            sizes.append(size)
        limit //= 2
    return sizes


def sample_order(rows: int, batch: int, samples: int) -> NDArray[np.int64]:
    """For each of `rows` rows of each sample its row where batches lie one behind the other.

    In a batch row 0 of all samples comes first, then row 1; the first batch has its last places
    taken if there are fewer samples than places.
    """
    places = np.arange(samples) + -samples % batch
    first = places // batch * rows * batch + places % batch
    return (first[:, np.newaxis] + batch * np.arange(rows)).reshape(-1)


def _batchable(node: Node) -> bool:
    return isinstance(node, Product | Lstm | Unary | Binary | Slice | Concatenation | Reshape)


def _pays(config: Config, node: Node) -> bool:
    """Whether one sample has fewer vectors for a tile than it takes to load it."""
    match node:
        case Lstm():
            return True
        case Product():
            return node.source.channels * node.source.pixels < config.rows * node.layer.k
        case _:
            return False


def _saved(config: Config, node: Node, layouts: Mapping[Value, Channels]) -> int:
    """Cycles that loading weights takes longer for one sample than using them."""
    match node:
        case Lstm():
            inputs, cells = layouts[node.source].blocks, layouts[node.result].blocks
            tiles, rows = 4 * node.source.pixels * (inputs + cells) * cells, 1
        case Product():
            source, result = layouts[node.source], layouts[node.result]
            tiles = node.layer.k // source.count * source.blocks * result.blocks
            rows = node.source.channels * node.source.pixels // node.layer.k
        case _:
            return 0
    return tiles * max(config.rows - rows, 0)


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
