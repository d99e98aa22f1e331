# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions: by the lanes of the activation unit and by the array, side by side.

On the array a depthwise convolution is one with a diagonal of weights: a sixteenth of a 16 x 16
array works, which is what the lanes do in the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import DEPTHWISE_TAPS, Opcode
from systola.compiler.bands import Band, window_of
from systola.compiler.channels import Channels
from systola.compiler.emitter import Emitter
from systola.compiler.entries import channel_entries
from systola.compiler.errors import CompileError
from systola.compiler.feature_map import FeatureMap, Lines
from systola.compiler.lower_convolution import convolution_step
from systola.compiler.operations import DepthwiseConvolution, Requantisation, Window
from systola.compiler.step import MapStep, Step


@dataclass(frozen=True, kw_only=True, eq=False)
class DepthwiseStep(MapStep):
    """Each channel of a map convolved with a kernel of its own."""

    taps: Lines
    """For each block of channels a line for each tap."""
    window: Window
    fill: int
    output: Requantisation

    @property
    def reads(self) -> tuple[Lines, ...]:
        return (self.source.lines, self.taps)

    def emit(self, emitter: Emitter) -> None:
        source, target, output = self.source, self.target, self.output
        blocks = source.channels.blocks
        count = self.taps.count // blocks
        whole = source.plane == source.pixels and target.plane == target.pixels
        at_once = min(blocks if whole else 1, emitter.config.parameter_entries)
        for block in range(0, blocks, at_once):
            size = min(at_once, blocks - block)
            parameter = emitter.parameters(self.output_entries, block, size)
            emitter.window(source, self.window)
            emitter.emit(
                Opcode.DEPTHWISE,
                buffer=emitter.line(source.lines, source.block(block)),
                taps=emitter.line(self.taps, block * count),
                destination=emitter.line(target.lines, target.block(block)),
                blocks=size,
                parameter=parameter,
                function=output.function,
                rounding=output.rounding,
                zero_point=output.zero_point,
                ceiling=output.ceiling,
                fill=self.fill,
            )


def depthwise_steps(
    config: Config,
    node: DepthwiseConvolution,
    source: FeatureMap,
    target: FeatureMap,
    taps: dict[str, Lines],
) -> list[Step]:
    """The steps for `node`: the upper rows in the lanes, the lower ones on the array.

    `taps` keeps the weights that were given lines already, by a name for what they are. Raises
    CompileError where source and target do not lie alike.
    """
    if target.channels.slots.tolist() != source.channels.slots.tolist():
        raise CompileError("its input and result do not lie alike in the buffer")
    rows = _rows_in_lanes(config, node, target)
    if rows == target.height:
        return [_lanes_step(config, node, source, target, taps, 0)]
    lower = Band(rows, target.height - rows)
    steps: list[Step] = []
    for number, channels in enumerate(_blocks(source.channels)):
        start, count = channels.start, len(channels)
        part = _part(node, channels)
        from_map, to_map = source.cut(start, count), target.cut(start, count)
        if rows:
            window = window_of(node.window, Band(0, rows), 0)
            upper = replace(part, window=window)
            to_upper = to_map.band(0, rows)
            steps.append(_lanes_step(config, upper, from_map, to_upper, taps, number))
        steps.append(
            convolution_step(
                config,
                node.operator,
                from_map,
                to_map.band(lower.first, lower.count),
                _diagonal(part.weights),
                window_of(node.window, lower, 0),
                node.fill,
                part.output,
            )
        )
    return steps


def _rows_in_lanes(config: Config, node: DepthwiseConvolution, target: FeatureMap) -> int:
    """Rows of the result that the lanes calculate.

    Both need a cycle for each tap of a vector, and the activation unit another one for each vector
    from the array. The array gains only where its passes hide the loading of its weights.
    """
    taps = node.weights.shape[0] * node.weights.shape[1]
    if not config.depthwise or taps > DEPTHWISE_TAPS:
        return 0
    rows = target.height - target.height * taps // (2 * taps - 1)
    if (target.height - rows) * target.width < config.rows:
        return target.height
    return rows


def _blocks(channels: Channels) -> list[range]:
    """The channels of each block."""
    edges = np.flatnonzero(np.diff(channels.slots // channels.block)) + 1
    return [range(low, high) for low, high in pairwise((0, *edges.tolist(), channels.count))]


def _part(node: DepthwiseConvolution, channels: range) -> DepthwiseConvolution:
    """`node` for some of its channels."""
    some = slice(channels.start, channels.stop)
    output = node.output

    def part(values: NDArray[np.int32]) -> NDArray[np.int32]:
        return values[some] if len(values) > 1 else values

    return replace(
        node,
        weights=node.weights[:, :, some],
        output=replace(
            output,
            bias=part(output.bias),
            multiplier=part(output.multiplier),
            shift=part(output.shift),
        ),
    )


def _diagonal(weights: NDArray[np.int8]) -> NDArray[np.int8]:
    """The same as weights of a convolution, most of them zero."""
    channels = np.arange(weights.shape[2], dtype=np.int64)
    result = np.zeros((*weights.shape, weights.shape[2]), np.int8)
    result[:, :, channels, channels] = weights
    return result


def _lanes_step(
    config: Config,
    node: DepthwiseConvolution,
    source: FeatureMap,
    target: FeatureMap,
    taps: dict[str, Lines],
    block: int,
) -> DepthwiseStep:
    key = f"weights of {node.operator}, from block {block}"
    if key not in taps:
        taps[key] = _tap_lines(key, node.weights, source.channels)
    return DepthwiseStep(
        operator=node.operator,
        source=source,
        target=target,
        taps=taps[key],
        window=node.window,
        fill=node.fill,
        output=node.output,
        output_entries=channel_entries(config, node.output, source.channels),
    )


def _tap_lines(name: str, weights: NDArray[np.int8], channels: Channels) -> Lines:
    taps: NDArray[np.int8] = weights.reshape(-1, channels.count)
    content = np.zeros((len(taps), channels.blocks * channels.block), np.int8)
    content[:, channels.slots] = taps
    blocks = content.reshape(len(taps), channels.blocks, channels.block).transpose(1, 0, 2)
    lines = blocks.reshape(-1, channels.block)
    return Lines(name, len(lines), lines)
