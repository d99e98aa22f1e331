# SPDX-License-Identifier: Apache-2.0
"""Convolutions that begin with the blocks of their source that are written first.

A Convolve follows the youngest instruction of the activation unit that writes its source, line by
line. The Convolve follows older instructions in the same way, if each begins in the line in which
its predecessor has ended. All instructions before such a run must be complete before the Convolve
begins, even if it needs their lines last. So if the last blocks of the source are written out of
order, the blocks before them get a Convolve of their own. This Convolve need not wait for the last
blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from systola.compiler.lower.convolution import ConvolutionStep, ResultsStep, SumsStep
from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.host_view import LoadStep, StoreStep
from systola.compiler.lower.step import MapStep, Step


@dataclass(frozen=True)
class _Piece:
    """A range of lines of a convolution's source that one step writes, and the blocks of these
    lines. If the step writes none of the source, `blocks` is empty.
    """

    first: int
    end: int
    blocks: range


def begin_early(steps: Sequence[Step], depth: int) -> Step:
    """Return the last of the `steps`, with an early Convolve if the step is a convolution that
    gains by it.

    `depth` is the largest number of instructions in the queue of the activation unit.
    """
    step = steps[-1]
    if not isinstance(step, ConvolutionStep) or step.source.packed or len(step.passes) != 1:
        return step
    blocks = step.source.channels.blocks
    if step.passes[0].kernel.shape[:2] != (1, 1) or blocks == 1:
        return step
    early = _early(list(_pieces(steps[:-1], step.source, depth)), blocks)
    return replace(step, early=early) if early else step


def _early(pieces: Sequence[_Piece], blocks: int) -> int:
    """Return how many blocks of the source, from the first on, an early Convolve can take.

    `pieces` has the lines that each step wrote, the youngest step first. `blocks` is the number of
    blocks of the source. A Convolve of all blocks would wait for steps that write later blocks out
    of order; an early Convolve need not wait. The result is 0 if an early Convolve would not help.
    """
    if not pieces:
        return 0
    late = min(pieces[0].blocks, default=blocks)
    for younger, older in pairwise(pieces):
        rises = younger.blocks and older.blocks and older.end <= younger.first
        late = min(late, *older.blocks[:1], blocks)
        if not rises:
            return late % blocks
    return 0


def _pieces(steps: Sequence[Step], source: FeatureMap, depth: int) -> Iterator[_Piece]:
    """Yield the lines of `source` that each step writes, the youngest step first.

    The first piece is of the last step that writes `source`. Steps that need no activation unit are
    left out. At most `depth` pieces are yielded.
    """
    found = 0
    for step in reversed(steps):
        if isinstance(step, SumsStep | LoadStep | StoreStep):
            continue
        piece = _piece(step, source)
        if piece.blocks or found:
            found += 1
            yield piece
        if found == depth:
            return


def _piece(step: Step, source: FeatureMap) -> _Piece:
    """Return the lines and blocks of `source` that `step` writes."""
    if source.lines not in step.writes:
        return _Piece(0, 0, range(0))
    target = _target(step, source.lines)
    if target is None:
        return _Piece(0, 0, range(source.channels.blocks))
    begin = target.offset - source.offset
    end = begin + (target.channels.blocks - 1) * target.plane + target.pixels
    return _Piece(begin, end, range(begin // source.plane, -(-end // source.plane)))


def _target(step: Step, lines: Lines) -> FeatureMap | None:
    """Return the map that `step` makes in `lines`; None if it makes no map there."""
    if isinstance(step, ResultsStep):
        step = step.sums.convolution
    if isinstance(step, MapStep) and step.target.lines is lines:
        return step.target
    return None
