# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions: by the lanes of the activation unit and by the array, side by side.

On the array a depthwise convolution is one with a diagonal of weights: a sixteenth of a 16 x 16
array works, which is what the lanes do in the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import DEPTHWISE_TAPS, Opcode
from systola.compiler.errors import CompileError
from systola.compiler.lower.bands import Band, window_of
from systola.compiler.lower.channels import Channels
from systola.compiler.lower.convolution import convolution_step
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import channel_entries
from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.step import MapStep, Step
from systola.compiler.operations import DepthwiseConvolution, Requantisation, Window


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


@dataclass(frozen=True)
class BlockSteps:
    """What makes a block of channels of the result."""

    lanes: tuple[Step, ...]
    """Its upper rows."""
    array: tuple[Step, ...]
    """Its lower rows."""


def depthwise_steps(
    config: Config,
    node: DepthwiseConvolution,
    source: FeatureMap,
    target: FeatureMap,
    taps: dict[bytes, Lines],
) -> list[Step]:
    """The steps for `node`, see depthwise_blocks."""
    rows = _rows_in_lanes(config, node, target, 0)
    if rows == target.height:
        return [_lanes_step(config, node, node.window, source, target, taps)]
    blocks = depthwise_blocks(config, node, source, target, taps, 0)
    return [step for block in blocks for step in (*block.lanes, *block.array)]


def depthwise_blocks(
    config: Config,
    node: DepthwiseConvolution,
    source: FeatureMap,
    target: FeatureMap,
    taps: dict[bytes, Lines],
    hidden: int,
) -> list[BlockSteps]:
    """The steps for each block of `node`: upper rows in the lanes, lower ones on the array.

    `taps` keeps the weights that were given lines already, by their content. `hidden`:
    cycles that the array is busy with something else meanwhile.
    """
    rows = _rows_in_lanes(config, node, target, hidden)
    upper, lower = Band(0, rows), Band(rows, target.height - rows)
    steps: list[BlockSteps] = []
    for channels in _blocks(source.channels):
        start, count = channels.start, len(channels)
        part = _part(node, channels)
        from_map, to_map = source.cut(start, count), target.cut(start, count)
        lanes: list[Step] = []
        array: list[Step] = []
        if upper.count:
            lanes.append(
                _lanes_step(
                    config,
                    part,
                    window_of(node.window, upper, 0),
                    from_map,
                    to_map.band(upper.first, upper.count),
                    taps,
                )
            )
        if lower.count:
            array.append(
                convolution_step(
                    config,
                    node.operator,
                    from_map,
                    to_map.band(lower.first, lower.count),
                    _diagonal(part),
                    window_of(node.window, lower, 0),
                    node.fill,
                    part.output,
                )
            )
        steps.append(BlockSteps(tuple(lanes), tuple(array)))
    return steps


def _rows_in_lanes(
    config: Config, node: DepthwiseConvolution, target: FeatureMap, hidden: int
) -> int:
    """Rows of the result that the lanes calculate, so that both units need the same time.

    Both need a cycle for each tap of a vector, and the activation unit another one for each vector
    from the array, which is busy `hidden` cycles with something else. The array gains only where
    its passes hide the loading of its weights.
    """
    taps = node.weights.shape[0] * node.weights.shape[1]
    if not config.depthwise or taps > DEPTHWISE_TAPS:
        return 0
    vectors = max(taps * target.pixels - hidden, 0) // (2 * taps - 1)
    rows = target.height - vectors // target.width
    if (target.height - rows) * target.width < config.rows:
        return target.height
    return rows


@lru_cache(maxsize=4096)
def _blocks(channels: Channels) -> list[range]:
    """Return the channels of each block."""
    edges = np.flatnonzero(np.diff(channels.slots // channels.block)) + 1
    return [range(low, high) for low, high in pairwise((0, *edges.tolist(), channels.count))]


@lru_cache(maxsize=4096)
def _part(node: DepthwiseConvolution, channels: range) -> DepthwiseConvolution:
    """Cut `node` down to some of its channels."""
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


@lru_cache(maxsize=4096)
def _diagonal(node: DepthwiseConvolution) -> NDArray[np.int8]:
    """Return the weights of `node` as those of a convolution, most of which are zero."""
    weights = node.weights
    channels = np.arange(weights.shape[2], dtype=np.int64)
    result = np.zeros((*weights.shape, weights.shape[2]), np.int8)
    result[:, :, channels, channels] = weights
    return result


def _lanes_step(
    config: Config,
    node: DepthwiseConvolution,
    window: Window,
    source: FeatureMap,
    target: FeatureMap,
    taps: dict[bytes, Lines],
) -> DepthwiseStep:
    if target.channels.slots.tolist() != source.channels.slots.tolist():
        raise CompileError("its input and result do not lie alike in the buffer")
    key, content = _tap_lines(node, source.channels)
    lines = Lines(f"weights of {node.operator}", len(content), content)
    return DepthwiseStep(
        operator=node.operator,
        source=source,
        target=target,
        taps=taps.setdefault(key, lines),
        window=window,
        fill=node.fill,
        output=node.output,
        output_entries=channel_entries(config, node.output, source.channels),
    )


@lru_cache(maxsize=4096)
def _tap_lines(node: DepthwiseConvolution, channels: Channels) -> tuple[bytes, NDArray[np.int8]]:
    """Lay out a line for each tap of each block of channels: as bytes, and as lines."""
    taps: NDArray[np.int8] = node.weights.reshape(-1, channels.count)
    content = np.zeros((len(taps), channels.blocks * channels.block), np.int8)
    content[:, channels.slots] = taps
    blocks = content.reshape(len(taps), channels.blocks, channels.block).transpose(1, 0, 2)
    lines = blocks.reshape(-1, channels.block)
    return lines.tobytes(), lines
