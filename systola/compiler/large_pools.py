# SPDX-License-Identifier: Apache-2.0
"""Poolings that are too large for one instruction, rewritten in forms that the machine can do.

A window that covers the whole map may be given another shape, as this changes no result. A sum over
another large window is a convolution with ones. Averages of windows that reach over the edge need a
parameter entry for each number of taps inside the map. With too many such numbers, the averages
stay on the host.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from systola.arch.isa import Reduction
from systola.compiler.host_stage import AveragePool, HostStage
from systola.compiler.lower.pooling import reciprocal
from systola.compiler.moves import MAX_KERNEL, MOST_WEIGHTS
from systola.compiler.operations import Convolution, Pooling, Requantisation, Reshape, Unary, Value
from systola.compiler.partition import Item, Translation
from systola.compiler.quantise import INT8, table_bytes

MOST_COUNTS = 64
"""Largest number of taps with which preset `base` can average windows over the map's edge by one
instruction.
"""
MOST_STEPS = 256
"""Largest number of instructions for an average of more than MOST_COUNTS taps. If more are needed,
the host calculates the average.
"""


def with_small_pools(translation: Translation) -> Translation:
    """Return `translation` with other operations in place of poolings that are too large."""
    items: list[Item] = []
    for item in translation.items:
        items += _small(item) if isinstance(item, Pooling) else [item]
    return replace(translation, items=tuple(items))


def _small(node: Pooling) -> list[Item]:
    window, taps = node.window, node.window.kernel[0] * node.window.kernel[1]
    edges = window.counts_differ(*node.source.grid)
    if node.reduction == Reduction.AVERAGE and edges and not node.averages:
        # At the map's edges each column of windows has another number of taps inside the map. So
        # each of these columns needs an instruction of its own.
        steps = window.out[0] * min(window.out[1], window.kernel[1] + 1)
        large = steps > MOST_STEPS or max(window.kernel) > MAX_KERNEL
        return [_on_the_host(node)] if taps > MOST_COUNTS and large else [node]
    if edges or max(window.kernel) <= MAX_KERNEL:
        return [node]
    sides = _sides(node.source.pixels)
    if window.kernel == node.source.grid and sides:
        source = Value(node.source.name, (1, *sides, node.source.channels))
        view = Reshape(operator=node.operator, source=node.source, result=source)
        return [view, replace(node, source=source, window=replace(window, kernel=sides))]
    if node.reduction != Reduction.MAX and taps * node.source.channels**2 <= MOST_WEIGHTS:
        return _with_ones(node)
    return [node]


def _sides(count: int) -> tuple[int, int] | None:
    """Return a height and width that make `count` pixels and are no larger than a window can be.

    Returns None if there are no such numbers.
    """
    for height in range(-(-count // MAX_KERNEL), MAX_KERNEL + 1):
        if count % height == 0:
            return height, count // height
    return None


def _on_the_host(node: Pooling) -> HostStage:
    window = node.window
    function = AveragePool(
        window.kernel, window.stride, window.first, window.out, node.floor, node.ceiling
    )
    return HostStage(
        operator=node.operator, sources=(node.source,), result=node.result, function=function
    )


def _with_ones(node: Pooling) -> list[Item]:
    """Return a convolution with weights 1 in place of a pooling, and a table that clamps its
    results.

    The table is left out if the pooling does not bound its results.
    """
    channels, taps = node.source.channels, node.window.kernel[0] * node.window.kernel[1]
    bounded = (node.floor, node.ceiling) != (-128, 127)
    total = Value(f"{node.result.name} unbounded", node.result.shape) if bounded else node.result
    output = node.output
    if node.reduction == Reduction.AVERAGE:
        output = node.averages[-1] if node.averages else reciprocal(taps)
    items: list[Item] = [
        Convolution(
            operator=node.operator,
            source=node.source,
            result=total,
            weights=np.tile(np.eye(channels, dtype=np.int8), (*node.window.kernel, 1, 1)),
            counts=False,
            window=node.window,
            fill=0,
            output=_for_channels(output, channels),
        )
    ]
    if bounded:
        table = table_bytes(np.clip(INT8, node.floor, node.ceiling).astype(np.int8))
        items.append(Unary(operator=node.operator, source=total, result=node.result, table=table))
    return items


def _for_channels(output: Requantisation, channels: int) -> Requantisation:
    """Return a requantisation with the same values for all channels, as arrays of `channels`
    values.
    """
    return replace(
        output,
        bias=np.broadcast_to(output.bias, channels),
        multiplier=np.broadcast_to(output.multiplier, channels),
        shift=np.broadcast_to(output.shift, channels),
    )
