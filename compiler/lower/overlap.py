# SPDX-License-Identifier: Apache-2.0
"""A convolution and the depthwise one behind it, block of channels by block.

A block of the second needs one block of the first only. So the lanes work on a block while the
array makes the next one: the rows in the lanes of a block are emitted before the next block of the
convolution, its rows on the array behind that.
"""

from __future__ import annotations

from collections.abc import Sequence

from systola.compiler.lower.convolution import ConvolutionStep
from systola.compiler.lower.depthwise import BlockSteps
from systola.compiler.lower.step import Step


def hidden_cycles(convolution: ConvolutionStep) -> int:
    """Cycles by which the array is busier than the activation unit with a block of the result."""
    tiles = sum(one.tiles for one in convolution.passes)
    return (tiles - 1) * convolution.target.pixels


def interleaved(
    convolution: ConvolutionStep, blocks: Sequence[BlockSteps]
) -> tuple[list[Step], list[Step]]:
    """The steps up to the end of the convolution, and those behind it."""
    first: list[Step] = []
    waiting: tuple[Step, ...] = ()
    for number, block in enumerate(blocks[:-1]):
        first += [convolution.block(number), *waiting, *block.lanes]
        waiting = block.array
    last = blocks[-1]
    first.append(convolution.block(len(blocks) - 1))
    return first, [*waiting, *last.lanes, *last.array]
