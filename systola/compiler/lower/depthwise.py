# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolutions, by the lanes of the activation unit and by the array, side by side.

The array takes a depthwise convolution as a full convolution with a diagonal of weights. In a 16 x
16 array then only a sixteenth of the multipliers work. They do as much as the lanes in the same
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import DEPTHWISE_TAPS, Opcode
from systola.compiler.errors import CompileError
from systola.compiler.lower.arrival import arrival
from systola.compiler.lower.bands import Band, window_of
from systola.compiler.lower.channels import Channels
from systola.compiler.lower.convolution import ConvolutionStep, convolution_step
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import channel_entries
from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.pooling import PoolingStep
from systola.compiler.lower.step import MapStep, Step
from systola.compiler.operations import DepthwiseConvolution, Requantisation, Window


@dataclass(frozen=True, kw_only=True, eq=False)
class DepthwiseStep(MapStep):
    """A step in which the lanes convolve each channel of a map with a kernel of its own."""

    taps: Lines
    """Buffer lines with the weights: for each block of channels a line for each tap."""
    window: Window
    fill: int
    output: Requantisation

    @property
    def reads(self) -> tuple[Lines, ...]:
        return (self.source.lines, self.taps)

    @property
    def cycles(self) -> int:
        """Number of cycles of the step: one for each tap of each result, and some to load the
        weights.
        """
        blocks, taps = self.target.channels.blocks, self.window.kernel[0] * self.window.kernel[1]
        return blocks * taps * (self.target.pixels + 1) + STARTED

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
    """A set of steps that make one block of channels of an operation's result."""

    lanes: tuple[DepthwiseStep | PoolingStep, ...] = ()
    """Steps that make some rows of the block in the lanes of the activation unit."""
    array: ConvolutionStep | None = None
    """Step that makes the other rows of the block on the array; None if there are none."""


def depthwise_steps(
    config: Config,
    node: DepthwiseConvolution,
    source: FeatureMap,
    target: FeatureMap,
    taps: dict[bytes, Lines],
    hidden: int,
) -> list[Step]:
    """Return the steps for `node`, in their order in the program.

    Earlier steps must make its whole source. For `taps` and `hidden` see depthwise_blocks.
    """
    blocks = depthwise_blocks(config, node, source, target, taps, hidden, array_first=True)
    if all(block.array is None for block in blocks):
        return [_lanes_step(config, node, node.window, source, target, taps)]
    return side_by_side(config, blocks)


def block_by_block(
    config: Config, blocks: Sequence[BlockSteps], before: Sequence[Step]
) -> list[Step]:
    """Return all steps of `before` and `blocks` in an order in which no unit waits for long.

    Item n of `before` is the step with which the array makes block n of the source. The array makes
    the sums of its rows of a block while the lanes work on the next block. These sums become
    results after the lanes' work on that next block.
    """
    steps: list[Step] = []
    waiting: Sequence[Step] = ()
    made = 0
    for number, block in enumerate(blocks):
        array = block.array.in_two(config, 1) if block.array else ()
        # If the lanes have no work on the next block, the array makes that block's source
        # early: before the lanes begin with this block.
        alone = number + 1 < len(blocks) and not blocks[number + 1].lanes
        steps += before[made : number + 1 + alone]
        made = number + 1 + alone
        steps += (*waiting[:1], *block.lanes, *waiting[1:])
        waiting = array
    return [*steps, *waiting]


def side_by_side(config: Config, blocks: Sequence[BlockSteps]) -> list[Step]:
    """Return the steps of all `blocks`, in their order in the program.

    Earlier steps must make the whole source. The array makes the sums of some blocks in advance.
    The activation unit turns sums into results as soon as they are ready, between the steps of its
    lanes.
    """
    arrays = [block.array for block in blocks if block.array]
    steps: list[Step] = []
    held: list[tuple[int, int, Sequence[Step]]] = []
    busy = now = 0

    def add_sums() -> None:
        nonlocal busy
        while arrays and len(held) < HELD:
            array = arrays.pop(0)
            busy += sum(one.tiles for one in array.passes) * max(
                array.target.pixels, arrival(config)
            )
            sums, *results = array.in_two(config, HELD)
            steps.append(sums)
            held.append((busy, array.target.pixels + READ_OUT, results))

    def add_results() -> None:
        nonlocal now
        ready, cycles, results = held.pop(0)
        steps.extend(results)
        now = max(now, ready) + cycles

    add_sums()
    for block in blocks:
        for step in block.lanes:
            steps.append(step)
            now += step.cycles
            while held and held[0][0] <= now + SOON:
                add_results()
                add_sums()
    while held:
        add_results()
        add_sums()
    return steps


def depthwise_blocks(
    config: Config,
    node: DepthwiseConvolution,
    source: FeatureMap,
    target: FeatureMap,
    taps: dict[bytes, Lines],
    hidden: int,
    *,
    array_first: bool = False,
) -> list[BlockSteps]:
    """Return the steps for each block of `node`: some rows in the lanes, the others on the array.

    The key of `taps` is the bytes of weights, and the value the buffer lines with these weights.
    Weights without lines get new lines there. `hidden` is the number of cycles that the array is
    busy with other work during these steps. With `array_first` the array takes the upper rows, and
    the lanes the lower rows. Choose this order if the array has finished its work on the source.
    The array then has its rows before the lanes have read the source.
    """
    blocks = _blocks(source.channels)
    shares = _rows_in_lanes(config, node, target, len(blocks), hidden)
    steps: list[BlockSteps] = []
    for channels, rows in zip(blocks, shares, strict=True):
        start, size = channels.start, len(channels)
        part = _part(node, channels)
        here = source.cut(start, size), target.cut(start, size)
        rest = target.height - rows
        in_lanes, on_array = Band(rest * array_first, rows), Band(rows * (not array_first), rest)
        lanes = (lanes_band(config, part, *here, taps, in_lanes),) if rows else ()
        array = array_band(config, part, *here, on_array) if rest else None
        steps.append(BlockSteps(lanes, array))
    return steps


def lanes_band(
    config: Config,
    node: DepthwiseConvolution,
    source: FeatureMap,
    target: FeatureMap,
    taps: dict[bytes, Lines],
    band: Band,
) -> DepthwiseStep:
    """Return the step in which the lanes make the rows `band` of the result.

    For `taps` see depthwise_blocks.
    """
    here = target.band(band.first, band.count)
    return _lanes_step(config, node, window_of(node.window, band, 0), source, here, taps)


def array_band(
    config: Config, node: DepthwiseConvolution, source: FeatureMap, target: FeatureMap, band: Band
) -> ConvolutionStep:
    """Return the step in which the array makes the rows `band` of a result of one block."""
    return convolution_step(
        config,
        node.operator,
        source,
        target.band(band.first, band.count),
        _diagonal(node),
        window_of(node.window, band, 0),
        node.fill,
        node.output,
    )


def rows_of_one(config: Config, node: DepthwiseConvolution, target: FeatureMap, hidden: int) -> int:
    """Return how many rows of `target`, which has one block, the lanes make.

    The array makes the other rows. For `hidden` see depthwise_blocks.
    """
    (rows,) = _rows_in_lanes(config, node, target, 1, hidden)
    return rows


def _rows_in_lanes(
    config: Config, node: DepthwiseConvolution, target: FeatureMap, blocks: int, hidden: int
) -> list[int]:
    count = node.weights.shape[0] * node.weights.shape[1]
    if not config.depthwise or count > DEPTHWISE_TAPS:
        return [0] * blocks
    met = target.width > 1 and node.window.stride[1] % 2 == 0
    size = target.height, target.width
    return rows_in_lanes(arrival(config), count, size, blocks, hidden, met)


FEW = 4
"""Least number of blocks of a result from which on the array may make some blocks whole, without
the lanes.
"""
HELD = 3
"""Largest number of blocks with sums that wait in the accumulators to become results.

The accumulators must have room for the sums of all these blocks. Rows at the end of the
accumulators stay unused if they are too few for the sums of a block.
"""
SOON = 200
"""Number of cycles that the lanes may wait for sums to become ready. If the wait would be longer,
the lanes first do steps of their own.
"""
STARTED, READ_OUT = 15, 13
"""Cycles that an instruction takes besides its vectors: STARTED if it works in the lanes, READ_OUT
if it reads sums.
"""


@lru_cache(maxsize=4096)
def rows_in_lanes(
    tile: int, taps: int, size: tuple[int, int], blocks: int, hidden: int, met: bool
) -> list[int]:
    """Return for each block the number of rows of its result that the lanes calculate.

    The array calculates the other rows, such that both units need about the same time for all
    blocks. `size` is the height and width of the result. Each unit needs a cycle for each of the
    `taps` of a vector, and the array at least `tile` cycles for each tap. The activation unit, to
    which the lanes belong, needs another cycle for each vector from the array. The array is busy
    with other work for `hidden` cycles. `met` is True if the array reads from half of the banks:
    the lanes then wait for the array in a quarter of the cycles. Either the numbers of rows of all
    blocks differ by one at most, or each block is made whole by one of the two units.
    """
    height, width = size

    def cycles(rows: Sequence[int]) -> int:
        """Return the cycles of the busier unit if the lanes make `rows[n]` rows of block n."""
        array, lanes = hidden, 0
        for upper in rows:
            lower = (height - upper) * width
            if lower:
                array += taps * max(lower, tile)
                lanes += lower + READ_OUT
            if upper:
                lanes += taps * (upper * width + 1) * (5 if met and lower else 4) // 4 + STARTED
        return max(array, lanes)

    vectors = max(taps * height * width - hidden // blocks, 0) // (2 * taps - 1)
    lower = min(vectors // width, height)
    choices = [[height] * blocks]
    for rows in range(height - lower - 1 - (lower // 4 if met else 0), height - lower + 1):
        if (height - rows) * width >= tile and rows >= 0:
            choices += [
                [rows] * count + [rows + 1] * (blocks - count)
                for count in range(0, blocks, -(-blocks // 8))
            ]
    whole = vectors * blocks // (height * width)
    for count in (whole, whole + 1):
        # The array makes whole blocks only if there are enough blocks. With few blocks, the lanes
        # would have no work while the array does its last block.
        if 0 < count <= blocks - 2 and blocks >= FEW:
            choices.append(_spread(blocks, count, 0, height))
    return min(choices, key=cycles)


def _spread(blocks: int, count: int, few: int, many: int) -> list[int]:
    """Return a list of row counts: `few` for `count` of the blocks, `many` for the others.

    The last two blocks always get `many`, so that the lanes have work at the end. The array works
    on its rows of a block while the lanes work on the next block. The results of the array's rows
    are made after this work of the lanes.
    """
    chosen = {(number + 1) * (blocks - 2) // count - 1 for number in range(count)}
    return [few if number in chosen else many for number in range(blocks)]


@lru_cache(maxsize=4096)
def _blocks(channels: Channels) -> list[range]:
    """Return for each block of a layout the range of its channels."""
    edges = np.flatnonzero(np.diff(channels.slots // channels.block)) + 1
    return [range(low, high) for low, high in pairwise((0, *edges.tolist(), channels.count))]


@lru_cache(maxsize=4096)
def _part(node: DepthwiseConvolution, channels: range) -> DepthwiseConvolution:
    """Return the depthwise convolution `node` for the channels `channels` only."""
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
    """Return the weights of `node` for a full convolution, with zeros off the diagonal."""
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
    """Return the weights of `node` as buffer lines, twice: as bytes, for a key, and as an array.

    There is a line for each tap of each block of channels.
    """
    taps: NDArray[np.int8] = node.weights.reshape(-1, channels.count)
    content = np.zeros((len(taps), channels.blocks * channels.block), np.int8)
    content[:, channels.slots] = taps
    blocks = content.reshape(len(taps), channels.blocks, channels.block).transpose(1, 0, 2)
    lines = blocks.reshape(-1, channels.block)
    return lines.tobytes(), lines
