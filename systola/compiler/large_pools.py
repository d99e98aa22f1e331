# SPDX-License-Identifier: Apache-2.0
"""Poolings that are too large for one instruction, rewritten in forms that the machine can do.

If one window covers the whole map, the map and the window get another shape, which changes no
result. Sums and averages over other large windows become a convolution with weights 1.

Windows that reach over the map's edge have different numbers of taps inside the map. Their averages
need a parameter entry for each such number. With more numbers than entries, many instructions do a
few windows each. If too many instructions are needed, the host calculates the averages.
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
"""Largest number of taps of a window over the map's edge that one instruction can average. The
instruction needs a parameter entry for each number of taps from 1 on, and preset `base` has 64.
"""
MOST_STEPS = 256
"""Largest number of instructions for the averages of windows with more than MOST_COUNTS taps. If
more are needed, the host calculates the averages.
"""


def with_small_pools(translation: Translation) -> Translation:
    """Return `translation` with each pooling that is too large replaced by other operations."""
    items: list[Item] = []
    for item in translation.items:
        items += _small(item) if isinstance(item, Pooling) else [item]
    return replace(translation, items=tuple(items))


def _small(node: Pooling) -> list[Item]:
    window, taps = node.window, node.window.kernel[0] * node.window.kernel[1]
    edges = window.counts_differ(*node.source.grid)
    if node.reduction == Reduction.AVERAGE and edges and not node.averages:
        # Near the map's edges each column of windows has its own number of taps inside the map. So
        # each such column needs an instruction in each row of windows.
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
    """Return a height and a width of a map of `count` pixels that one window can cover.

    Returns None if there is no such map.
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
    """Return operations in place of a pooling: a convolution with weights 1, then a table that
    clamps its results.

    The table is left out if the pooling has no bounds within int8.
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
    """Return a requantisation with arrays of `channels` values, equal for all channels.

    `output` has one value for all channels.
    """
    return replace(
        output,
        bias=np.broadcast_to(output.bias, channels),
        multiplier=np.broadcast_to(output.multiplier, channels),
        shift=np.broadcast_to(output.shift, channels),
    )
