# SPDX-License-Identifier: Apache-2.0
"""Steps for a convolution and the depthwise convolution or pooling after it, interleaved.

A block of channels of the second operation needs only one block of the first operation. So the
lanes work on a block while the array makes the next block. The array may also make some rows of a
depthwise convolution. In each block, the rows for the lanes are emitted before the first
operation's next block, and the rows for the array after it. If the first operation has a single
block, the lanes work on rows while the array makes the next rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from systola.arch.config import Config
from systola.compiler.lower.arrival import arrival
from systola.compiler.lower.bands import Band, cut
from systola.compiler.lower.convolution import ConvolutionStep
from systola.compiler.lower.depthwise import (
    STARTED,
    BlockSteps,
    array_band,
    block_by_block,
    depthwise_blocks,
    lanes_band,
    rows_of_one,
)
from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.pooling import pooling_steps
from systola.compiler.lower.step import Step
from systola.compiler.operations import DepthwiseConvolution, Node, Pooling, Value


@dataclass(frozen=True)
class Made:
    """A record of all operations that have been lowered so far, for the operation that is lowered
    next.
    """

    config: Config
    parts: tuple[Value, ...]
    """Source of the next operation, as one value; or as several, if a concatenation joins their
    rows.
    """
    layers: list[tuple[Node, list[Step]]]
    """Operations that have been lowered so far, each as a pair with its steps."""
    steps: list[Step]
    """Steps of the program that have been made so far, in the order of execution."""

    def convolutions(self) -> list[ConvolutionStep]:
        """Return the steps of the convolutions that made the next operation's source, one for each
        of `parts`.

        Returns an empty list if something other than a single convolution step made a part, or if
        other steps follow these convolutions.
        """
        count = len(self.parts)
        found: list[ConvolutionStep] = []
        for part, (node, steps) in zip(self.parts, self.layers[-count:], strict=False):
            step = steps[0]
            if node.result is part and len(steps) == 1 and isinstance(step, ConvolutionStep):
                found.append(step)
        return found if len(found) == count and found == self.steps[-count:] else []

    def replace(self, pieces: Sequence[list[Step]], rest: Sequence[Step]) -> None:
        """Replace the steps of the last operations, as many as `pieces` has, and add the steps
        `rest`.

        `pieces` has the new list of steps for each of these operations. The steps `rest` come after
        all others in `steps`.
        """
        count = len(pieces)
        del self.steps[-count:]
        nodes = [node for node, _ in self.layers[-count:]]
        self.layers[-count:] = zip(nodes, pieces, strict=True)
        self.steps.extend((*(step for piece in pieces for step in piece), *rest))


def in_pieces(
    made: Made,
    node: DepthwiseConvolution | Pooling,
    source: FeatureMap,
    target: FeatureMap,
    taps: dict[bytes, Lines],
    ahead: int,
) -> bool:
    """Put the steps of `node` between pieces of the convolutions before it, if this saves time.

    Returns True if it has changed `made` in this way, and False if `made` is unchanged. `taps` has
    the buffer lines of weights that other steps have already; the key is the bytes of the weights.
    `ahead` is the number of cycles that the array is busy with other work after the pieces.
    """
    config, makers = made.config, made.convolutions()
    if isinstance(node, DepthwiseConvolution) and makers and is_worth_rows(makers, node):
        made.replace(*row_by_row(config, makers, node, source, target, taps, ahead))
        return True
    if len(makers) != 1 or makers[0].target.channels.blocks == 1:
        return False
    (before,) = makers
    if before.target.pixels > config.accumulator_rows or not hidden_cycles(before):
        return False
    if isinstance(node, Pooling):
        blocks = pooling_blocks(config, node, source, target)
    else:
        each = hidden_cycles(before, arrival(config))
        hidden = before.target.channels.blocks * each + ahead
        blocks = depthwise_blocks(config, node, source, target, taps, hidden)
    first, rest = interleaved(config, before, blocks)
    made.replace([first], rest)
    return True


def hidden_cycles(convolution: ConvolutionStep, tile: int = 0) -> int:
    """Return the number of cycles in which the lanes are free while the array makes one block of
    channels of a convolution's result.

    Each pixel takes one cycle of the lanes. Each weight tile counts as at least `tile` cycles of
    the array.
    """
    tiles = sum(one.tiles for one in convolution.passes)
    pixels = convolution.target.pixels
    return tiles * max(pixels, tile) - pixels


def pooling_blocks(
    config: Config, node: Pooling, source: FeatureMap, target: FeatureMap
) -> list[BlockSteps]:
    """Return the steps for a pooling of one sample; the list has an element for each block of
    channels.

    Raises CompileError if the machine cannot do the pooling.
    """
    blocks = range(source.channels.blocks)
    pairs = [(source.one_block(number), target.one_block(number)) for number in blocks]
    return [BlockSteps((*pooling_steps(config, node, *pair, samples=1),)) for pair in pairs]


def interleaved(
    config: Config, convolution: ConvolutionStep, blocks: Sequence[BlockSteps]
) -> tuple[list[Step], list[Step]]:
    """Return the steps of a convolution, interleaved with the steps for the blocks of the next
    operation.

    The steps come as two lists: all steps up to the convolution's last step, and all later steps.
    """
    made = [convolution.block(number) for number in range(len(blocks))]
    steps = block_by_block(config, blocks, made)
    end = steps.index(made[-1]) + 1
    return steps[:end], steps[end:]


def row_by_row(
    config: Config,
    convolutions: Sequence[ConvolutionStep],
    node: DepthwiseConvolution,
    source: FeatureMap,
    target: FeatureMap,
    taps: dict[bytes, Lines],
    ahead: int,
) -> tuple[list[list[Step]], list[Step]]:
    """Return the steps for convolutions with a single block of channels, interleaved with rows of
    `node`.

    The convolutions make the rows of `source`, one convolution after another. Returns a list of
    steps for each convolution, and a list of the steps after all convolutions. `taps` has the
    buffer lines of weights that other steps have already; the key is the bytes of the weights.
    `ahead` is the number of cycles that the array is busy with other work after all these steps.
    """
    window, height = node.window, target.height
    row = window.kernel[0] * window.kernel[1] * target.width + STARTED
    bands = [_bands(convolution, row) for convolution in convolutions]
    behind = [*[hidden_cycles(band) for each in bands for band in each][1:], 0]
    rows = rows_of_one(config, node, target, sum(behind) + ahead)
    steps: list[list[Step]] = []
    made = done = left = 0
    for each in bands:
        here: list[Step] = []
        for band in each:
            here.append(band)
            made += band.target.height
            left += behind.pop(0)
            reached = made - window.first[0] - (window.kernel[0] - 1) * window.dilation[0] - 1
            there = height if made == source.height else reached // window.stride[0] + 1
            count = min(left // row, there - done, rows - done)
            if count > 0:
                here.append(lanes_band(config, node, source, target, taps, Band(done, count)))
                done += count
                left -= count * row
        steps.append(here)
    rest: list[Step] = []
    if done < rows:
        rest.append(lanes_band(config, node, source, target, taps, Band(done, rows - done)))
    if rows < height:
        band = Band(rows, height - rows)
        *sums, results = array_band(config, node, source, target, band).in_two(config, 1)
        rest = [*sums, *rest, results]
    return steps, rest


def _bands(convolution: ConvolutionStep, row: int) -> list[ConvolutionStep]:
    """Return the steps of a convolution cut into bands of rows, one step for each band.

    Where possible, a band keeps the array busy so long that the lanes are free for `row` cycles or
    more.
    """
    height = convolution.target.height
    each = max(hidden_cycles(convolution) // height, 1)
    bands = cut(height, max(1, height // -(-row // each)))
    return [convolution.band(band) for band in bands]


def is_worth_rows(convolutions: Sequence[ConvolutionStep], node: DepthwiseConvolution) -> bool:
    """Return whether the lanes have time for two rows of `node` or more while the array makes the
    convolutions.

    Returns False if the result of a convolution has several blocks of channels.
    """
    taps = node.window.kernel[0] * node.window.kernel[1]
    hidden = sum(hidden_cycles(each) for each in convolutions)
    one = all(each.target.channels.blocks == 1 for each in convolutions)
    return one and hidden >= 2 * taps * node.window.out[1]
