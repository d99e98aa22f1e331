# SPDX-License-Identifier: Apache-2.0
"""The choice of operations that run for many samples at a time.

A tile of weights takes the same time to arrive, however few vectors use it. A fully connected layer
has one vector for each sample, and so has each step in time of an LSTM. A small map has as many
vectors as pixels. If a tile has fewer vectors than cycles of arrival, the array waits for tiles. So
operations at the end of the network wait until a batch of samples has reached them. Each tile then
serves all samples of the batch.
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
"""Measured costs in cycles: LINE_CYCLES to copy a buffer line into a batch, and LOOP_CYCLES for
each sample in the loop that collects the samples of a batch.
"""


@dataclass(frozen=True)
class Batch:
    """A choice of operations that run for `size` samples at a time; by default there are none."""

    nodes: tuple[Node, ...] = ()
    size: int = 1


def batches_to_try(
    config: Config,
    operations: Operations,
    samples: int,
    is_hopeless: Callable[[Batch], bool],
) -> Iterator[tuple[Batch, bool]]:
    """Yield pairs, the best first: a batch to try, and True if values may be spilled in it.

    A spilled value is kept in host memory. `is_hopeless` returns True if a batch cannot fit without
    spilling. If this holds for the smallest batch of some operations, none of their batches is
    tried without spilling. A batch that needs spilling is worse than no batch without spilling. If
    spilling is needed in any case, a batch that fills the array is better than none.
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
    """Return the number of samples of the largest batch to try.

    A batch of a quarter of this size, with one vector for each sample, hides the arrival of a tile.
    With four times as many samples, the fixed time at the start of each layer counts little.
    """
    return 4 * arrival(config)


def batched_nodes(config: Config, operations: Operations) -> list[tuple[Node, ...]]:
    """Return sets of operations at the end of the network for which a batch pays, the best first.

    There are at most two sets: with and without operations on windows of a map. The operations of a
    set are in their order in the network.
    """
    saved: dict[tuple[Node, ...], float] = {}
    for windows in (True, False):
        nodes = _together(config, operations, windows=windows)
        gain = _gain(config, operations, nodes)
        if gain > 0:
            saved[nodes] = gain
    return sorted(saved, key=lambda nodes: -saved[nodes])


def _together(config: Config, operations: Operations, *, windows: bool) -> tuple[Node, ...]:
    """Return the operations at the end of the network that go into a batch.

    If an operation is in the batch, all operations that take its result are in it, too. Without
    `windows`, operations on windows of a map are left out. Operations that _early returns are left
    out in any case.
    """
    alone = {node for node in operations.nodes if not _batchable(node, windows=windows)}
    while True:
        together = _closed(operations.nodes, alone)
        early = _early(config, operations.nodes, together)
        if not early:
            return together
        alone.update(early)


def _gain(config: Config, operations: Operations, together: Sequence[Node]) -> float:
    """Return the number of cycles that a batch of the operations `together` saves for each sample.

    The cycles to move values into the batch are subtracted.
    """
    layouts = channel_layouts(operations, min(config.rows, config.cols))
    saved = sum(_saved(config, node, layouts) for node in together)
    if len(together) == len(operations.nodes):
        return saved
    needed = {source for node in together for source in node.sources}
    left = {node.result for node in operations.nodes} - {node.result for node in together}
    lines = sum(_lines(value, layouts[value]) for value in needed & left)
    return saved - LOOP_CYCLES - LINE_CYCLES * lines


def batch_sizes(config: Config, samples: int) -> list[int]:
    """Return the sizes of batches to try, in samples, the largest first.

    With each size, all samples are divided into batches as equal as possible.
    """
    sizes: list[int] = []
    limit = largest_batch(config)
    while limit > 1:
        size = -(-samples // -(-samples // limit))
        if size > 1 and size not in sizes:
            sizes.append(size)
        limit //= 2
    return sizes


def sample_order(rows: int, batch: int, samples: int, width: int = 1) -> NDArray[np.int64]:
    """Return for each row of each sample the row of the host matrix in which it lies, from 0.

    The result has the `rows` rows of the first sample, then the rows of the next sample, and so on.
    In the matrix, the batches come one after another. A batch has the first `width` rows of all its
    samples, then the next `width` rows of all. If the samples do not fill all batches, the first
    places of the first batch stay empty.
    """
    places = np.arange(samples) + -samples % batch
    first = places // batch * rows * batch + places % batch * width
    row = np.arange(rows)
    return (first[:, np.newaxis] + row // width * width * batch + row % width).reshape(-1)


def _batchable(node: Node, *, windows: bool) -> bool:
    match node:
        case Convolution():
            # In a batch, rows of the samples alternate. So windows must be one row apart, or in
            # one row.
            return windows and (node.window.stride[0] == 1 or node.window.out[0] == 1)
        case Pooling():
            return windows
        case Lstm():
            # The sequences of a batch must alternate by pixels, and not by rows of maps.
            return not windows
        case Binary():
            # The two lines of a vector of int16 stay together, so samples cannot alternate by
            # lines.
            return not node.wide
        case _:
            return isinstance(node, Product | Unary | Slice | Concatenation | Reshape)


def _pays(config: Config, node: Node) -> bool:
    """Return whether a weight tile has fewer vectors in one sample than cycles of arrival."""
    return isinstance(node, Lstm) or 0 < _vectors(node) < arrival(config)


def _vectors(node: Node) -> int:
    """Return the number of vectors that one sample has for each weight tile of `node`.

    Returns 0 if `node` has no weights.
    """
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
    """Return the number of cycles for which the array would wait for the weights of `node`.

    The cycles are counted for one sample that runs alone.
    """
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
    """Return the number of buffer lines that a value of one sample takes."""
    return value.channels * value.pixels // layout.count * layout.blocks


def _closed(nodes: Sequence[Node], alone: set[Node]) -> tuple[Node, ...]:
    """Return the operations outside `alone` with results that no operation in `alone` needs.

    An operation needs a result if it takes this result, or another result that is made from it.
    """
    needed: set[Value] = set()
    together: list[Node] = []
    for node in reversed(nodes):
        if node in alone or node.result in needed:
            needed.update(node.sources)
        else:
            together.append(node)
    return tuple(reversed(together))


def _early(config: Config, nodes: Sequence[Node], together: Sequence[Node]) -> list[Node]:
    """Return the operations of `together` that should run for each sample alone, before the batch.

    Such an operation takes a result from outside the batch, and no operation before it gains by the
    batch. Run for each sample alone, the operation takes no longer, and needs less of the buffer.
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
