# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import DEPTHWISE_TAPS, Opcode
from systola.compiler.emitter import Emitter
from systola.compiler.entries import channel_entries
from systola.compiler.errors import CompileError
from systola.compiler.feature_map import FeatureMap, Lines
from systola.compiler.operations import DepthwiseConvolution, Requantisation, Window
from systola.compiler.step import MapStep


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


def depthwise_step(
    config: Config,
    node: DepthwiseConvolution,
    source: FeatureMap,
    target: FeatureMap,
    taps: Lines,
) -> DepthwiseStep:
    """The step for `node`, whose weights are in `taps`.

    Raises CompileError where the machine has no depthwise lanes, or too few taps.
    """
    if not config.depthwise:
        raise CompileError(f"the machine '{config.name}' has no depthwise lanes")
    count = node.weights.shape[0] * node.weights.shape[1]
    if count > DEPTHWISE_TAPS:
        raise CompileError(
            f"kernels of {count} taps are not supported, the most is {DEPTHWISE_TAPS}"
        )
    if target.channels.slots.tolist() != source.channels.slots.tolist():
        raise CompileError("its input and result do not lie alike in the buffer")
    return DepthwiseStep(
        operator=node.operator,
        source=source,
        target=target,
        taps=taps,
        window=node.window,
        fill=node.fill,
        output=node.output,
        output_entries=channel_entries(config, node.output, source.channels),
    )


def tap_lines(node: DepthwiseConvolution, source: FeatureMap) -> Lines:
    """The weights of `node`, which lie like the channels of `source`."""
    channels = source.channels
    taps: NDArray[np.int8] = node.weights.reshape(-1, channels.count)
    content = np.zeros((len(taps), channels.blocks * channels.block), np.int8)
    content[:, channels.slots] = taps
    blocks = content.reshape(len(taps), channels.blocks, channels.block).transpose(1, 0, 2)
    lines = blocks.reshape(-1, channels.block)
    return Lines(f"weights of {node.operator}", len(lines), lines)
