# SPDX-License-Identifier: Apache-2.0
"""Convolutions with few channels, rewritten such that they fill the lines of the buffer.

A window on an input of few channels has few numbers in a row, and fills few rows of a weight tile.
If it pays, a first convolution gathers several rows of each window in the channels of one pixel. A
second convolution then needs fewer tiles.

A result of few channels has short lines. There are two other forms for such a result:

- If only products take the result, several of its pixels share a line. The convolution makes these
pixels together, and the product needs fewer tiles.
- If a depthwise convolution takes the result, the lower half of its rows lies beside the upper
half. The lanes of the activation unit then work on both halves at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Function
from systola.compiler.lower.convolution import MAX_DILATION, MAX_KERNEL, may_pack
from systola.compiler.operations import (
    Concatenation,
    Convolution,
    DepthwiseConvolution,
    Node,
    Operations,
    Product,
    Requantisation,
    Reshape,
    Value,
    Window,
    identity,
)

GATHERING = 100
"""Estimate of the cycles that one more convolution costs, besides one cycle for each vector."""


@lru_cache(maxsize=16)
def fill_lines(config: Config, operations: Operations) -> Operations:
    """Return `operations` with convolutions of few channels rewritten where this saves cycles."""
    users: dict[Value, list[Node]] = {}
    for node in operations.nodes:
        for source in node.sources:
            users.setdefault(source, []).append(node)
    uses = Counter({value: len(nodes) for value, nodes in users.items()})
    uses.update((*operations.outputs, *(each.after for each in operations.kept)))
    nodes: list[Node] = []
    replaced: dict[Node, list[Node]] = {}
    for node in operations.nodes:
        if node in replaced:
            nodes += replaced[node]
        elif (halves := _halves(config, node, users, operations.outputs)) is not None:
            replaced |= halves
            nodes += replaced[node]
        elif (
            isinstance(node, Convolution)
            and node.source in operations.from_host
            and uses[node.source] == 1
            and may_pack(config, node.source.channels, node.window)
        ):
            count = 1
            if node.result not in operations.outputs and _only_products(node.result, users):
                count = _pixels_together(config, node)
            nodes += _together(node, count) if count > 1 else _gathered(config, node)
        else:
            nodes.append(node)
    return replace(operations, nodes=tuple(nodes))


def _only_products(value: Value, users: dict[Value, list[Node]]) -> bool:
    """Return whether only matrix products take `value`, directly or through changes of shape."""
    return all(
        isinstance(node, Product)
        or (isinstance(node, Reshape) and _only_products(node.result, users))
        for node in users.get(value, [])
    )


def _pixels_together(config: Config, node: Convolution) -> int:
    """Return the number of neighbouring pixels of the result of convolution `node` to put in one
    line.

    The number is 1 if no larger number is possible.
    """
    width, channels = node.window.out[1], node.result.channels
    for count in range(min(config.rows, config.cols) // channels, 1, -1):
        window = _wide_window(node.window, count)
        taps = window.kernel[1] * node.source.channels
        fits = width % count == 0 and taps <= config.rows
        if fits and may_pack(config, node.source.channels, window):
            return count
    return 1


def _wide_window(window: Window, count: int) -> Window:
    """Return a window that covers `count` neighbouring windows of a row."""
    stride = window.stride[1]
    return replace(
        window,
        kernel=(window.kernel[0], window.kernel[1] + (count - 1) * stride),
        stride=(window.stride[0], count * stride),
        out=(window.out[0], window.out[1] // count),
    )


def _together(node: Convolution, count: int) -> list[Node]:
    """Return operations that make the result of convolution `node` with `count` pixels in a line.

    The operations are a convolution and a change of shape after it, which gives the result's own
    shape.
    """
    window = _wide_window(node.window, count)
    (height, width, channels, results), stride = node.weights.shape, node.window.stride[1]
    weights = np.zeros((height, window.kernel[1], channels, count, results), np.int8)
    for n in range(count):
        weights[:, n * stride : n * stride + width, :, n] = node.weights
    lines = Value(f"{node.result.name} in lines", (1, *window.out, count * results))
    convolution = replace(
        node,
        result=lines,
        weights=weights.reshape(*weights.shape[:3], count * results),
        window=window,
        output=_repeated(node.output, count),
        zeros=node.zeros * count + weights.size - count * node.weights.size,
    )
    return [convolution, Reshape(operator=node.operator, result=node.result, source=lines)]


def _repeated(output: Requantisation, count: int) -> Requantisation:
    """Return requantisation `output` for `count` times as many channels.

    The values of all channels follow one another, `count` times. A value that is common to all
    channels stays as it is.
    """

    def each(values: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.tile(values, count) if len(values) > 1 else values

    return replace(
        output,
        bias=each(output.bias),
        multiplier=each(output.multiplier),
        shift=each(output.shift),
    )


def _gathered(config: Config, node: Convolution) -> list[Node]:
    """Return the convolution `node` unchanged, or two convolutions in its place if they take less
    time.

    The first of the two gathers several rows of a window in the channels of one pixel. The second
    one multiplies the gathered rows by the weights.
    """
    (height, width, channels, results), window = node.weights.shape, node.window
    blocks = -(-results // config.cols)
    passes = -(-width // (config.rows // channels))

    def cycles(count: int) -> int:
        """Return an estimate of the cycles if `count` rows of a window are gathered in one pixel.

        With `count` 1 nothing is gathered, and the convolution stays as it is.
        """
        if count == 1:
            return height * passes * blocks * node.result.pixels
        rows = _gathered_rows(window, count)
        vectors = rows * window.out[1] * (count + 1)
        return GATHERING + vectors + -(-height // count) * blocks * node.result.pixels

    most = config.rows // (width * channels)
    counts = [n for n in range(2, most + 1) if n // gcd(n, window.stride[0]) <= MAX_DILATION]
    count = min([1, *counts], key=cycles)
    if count == 1 or window.dilation[0] > 1:
        return [node]
    step = gcd(window.stride[0], count)
    taps = count * width * channels
    rows = Value(
        f"{node.source.name} in rows", (1, _gathered_rows(window, count), window.out[1], taps)
    )
    gather = Convolution(
        operator=node.operator,
        result=rows,
        source=node.source,
        weights=np.eye(taps, dtype=np.int8).reshape(count, width, channels, taps),
        window=replace(
            window,
            kernel=(count, width),
            stride=(step, window.stride[1]),
            out=rows.grid,
        ),
        fill=node.fill,
        output=identity(),
        counts=False,
    )
    kernel = -(-height // count)
    weights = np.zeros((kernel * count, width, channels, results), np.int8)
    weights[:height] = node.weights
    convolution = replace(
        node,
        source=rows,
        weights=weights.reshape(kernel, 1, taps, results),
        window=Window(
            kernel=(kernel, 1),
            stride=(window.stride[0] // step, 1),
            dilation=(count // step, 1),
            out=window.out,
        ),
        zeros=node.zeros + weights.size - node.weights.size,
    )
    return [gather, convolution]


def _gathered_rows(window: Window, count: int) -> int:
    """Return the number of rows of the map in which each pixel holds `count` gathered rows of a
    window.
    """
    kernel = -(-window.kernel[0] // count)
    last = (window.out[0] - 1) * window.stride[0] + (kernel - 1) * count
    return last // gcd(window.stride[0], count) + 1


HALO = 4
"""Least number of rows in half a map for each row that both halves store. If a map has fewer rows,
it stays whole.
"""
ROOM = 0.75
"""Largest share of the unified buffer, from 0 to 1, that a map in two halves and its source may
take together.
"""


def _halves(
    config: Config,
    node: Node,
    users: Mapping[Value, Sequence[Node]],
    outputs: Collection[Value],
) -> dict[Node, list[Node]] | None:
    """Return new operations for `node` and the two operations after it, with maps in two halves.

    The key is one of the three old operations, and the value has the operations in its place. The
    three must be a convolution, a depthwise convolution and a convolution of 1 x 1 windows. In the
    two maps between them, the lower half of the rows lies beside the upper half, in further
    channels.

    Windows of the depthwise convolution reach beyond their half. So each half of its source also
    stores these rows of the other half. Returns None if this form is not possible.
    """
    if not isinstance(node, Convolution) or node.result in outputs:
        return None
    channels, (height, width) = node.result.channels, node.result.grid
    if 2 * channels > min(config.rows, config.cols) or height % 2 or not config.depthwise:
        return None
    depthwise = _only_user(node.result, users)
    if not isinstance(depthwise, DepthwiseConvolution) or depthwise.result in outputs:
        return None
    last = _only_user(depthwise.result, users)
    if not isinstance(last, Convolution) or last.window.kernel != (1, 1):
        return None
    window, half = depthwise.window, height // 2
    above, below = -window.first[0], window.kernel[0] - 1 + window.first[0]
    whole = Value("", (1, half + above + below, width, 2 * channels))
    rows = -(-node.source.grid[1] * node.source.channels // config.rows)
    if (
        (window.stride[0], window.dilation[0], window.out[0]) != (1, 1, height)
        or last.window != Window(kernel=(1, 1), out=window.out)
        or min(above, below) < 0
        or half < HALO * (above + below)
        or node.output.function == Function.TABLE
        or node.output.zero_point != depthwise.fill
        or half * node.window.stride[0] + node.weights.shape[0] > MAX_KERNEL
        or node.window.dilation[0] != 1
        or node.source.grid[0] * rows + whole.pixels > config.buffer_lines * ROOM
    ):
        return None
    halves = replace(whole, name=f"{node.result.name} in halves")
    made = Value(f"{depthwise.result.name} in halves", (1, half, window.out[1], 2 * channels))
    return {
        node: _made_in_halves(node, halves, above, below),
        depthwise: [_of_halves(depthwise, halves, made)],
        last: _whole_again(last, made),
    }


def _only_user(value: Value, users: Mapping[Value, Sequence[Node]]) -> Node | None:
    """Return the operation that is the only user of `value`; None if there are no users or several
    users.
    """
    takers = users.get(value, ())
    return takers[0] if len(takers) == 1 else None


def _made_in_halves(node: Convolution, halves: Value, above: int, below: int) -> list[Node]:
    """Return the operations that make the result of `node` as two halves, side by side in the
    channels.

    The kernel is so high that it covers a window of the upper half and the same window of the lower
    half. Each half also has `above` rows before it and `below` rows after it, which windows of the
    next operation reach. Such a row beyond the map's edge gets the value that these windows see
    outside the map.
    """
    half, stride = node.result.grid[0] // 2, node.window.stride[0]
    height, channels = node.weights.shape[0], node.result.channels
    apart = half * stride
    weights = np.zeros((apart + height, *node.weights.shape[1:3], 2 * channels), np.int8)
    weights[:height, ..., :channels] = node.weights
    weights[apart:, ..., channels:] = node.weights
    output = _repeated(node.output, 2)
    parts: list[Convolution] = []
    for first, rows, used in (
        (-above, above, (False, True)),
        (0, half, (True, True)),
        (half, below, (True, False)),
    ):
        if rows:
            mask = np.repeat(used, channels)
            name = f"{halves.name}, rows from {first + above}"
            parts.append(
                replace(
                    node,
                    result=Value(name, (1, rows, *halves.shape[2:])),
                    weights=weights * mask,
                    window=replace(
                        node.window,
                        kernel=(apart + height, node.window.kernel[1]),
                        first=(node.window.first[0] + first * stride, node.window.first[1]),
                        out=(rows, node.window.out[1]),
                    ),
                    output=replace(
                        output,
                        bias=output.bias * mask,
                        multiplier=output.multiplier * mask,
                        shift=output.shift * mask,
                    ),
                    counts=node.counts and all(used),
                    zeros=weights.size - 2 * (node.weights.size - node.zeros),
                )
            )
    results = tuple(part.result for part in parts)
    joined = Concatenation(operator=node.operator, result=halves, parts=results, axis=1)
    return [*parts, joined]


def _of_halves(node: DepthwiseConvolution, halves: Value, result: Value) -> Node:
    """Return the depthwise convolution `node` for both halves of its source at the same time.

    `halves` is the source in two halves, and `result` is the result in two halves.
    """
    return replace(
        node,
        source=halves,
        result=result,
        weights=np.concatenate((node.weights, node.weights), axis=2),
        window=replace(node.window, first=(0, node.window.first[1]), out=result.grid),
        output=_repeated(node.output, 2),
    )


def _whole_again(node: Convolution, halves: Value) -> list[Node]:
    """Return the operations that make the whole result of `node` from `halves`, its source in two
    halves.
    """
    channels = node.source.channels
    parts: list[Convolution] = []
    for start in (0, channels):
        weights = np.zeros((1, 1, 2 * channels, node.result.channels), np.int8)
        weights[:, :, start : start + channels] = node.weights
        parts.append(
            replace(
                node,
                source=halves,
                result=Value(f"{node.result.name}, half", (1, *halves.grid, node.result.channels)),
                weights=weights,
                window=replace(node.window, out=halves.grid),
                zeros=node.zeros + weights.size - node.weights.size,
            )
        )
    results = tuple(part.result for part in parts)
    joined = Concatenation(operator=node.operator, result=node.result, parts=results, axis=1)
    return [*parts, joined]
