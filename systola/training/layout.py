# SPDX-License-Identifier: Apache-2.0
"""Lays out a network and its samples: shapes in blocks, and places in host memory.

A stage is a layer with weights, or an Add or Concatenate, and the layers from it to the next stage.

A place is a byte offset in the host window. A batch that has no room in the buffer is taken in
turns of some samples each. Each turn has places of its own for the numbers made of its samples.

Everything is stored as lines, P bytes apart in host memory. P is the number of bytes that an input
vector takes there, in whole beats of the bus. A matrix is in the order in which the machine takes
it. Weights are [block of units][input]. The input for the bias is the first of the last C inputs
(C: the columns of the array). Int16 numbers are pairs of lines, low bytes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.isa import PARAMETER_PLANES, TABLE_BYTES
from systola.training.branches.numbers import KEPT_LINES, alone, dense_of
from systola.training.stages import (
    EMBEDDING,
    GATES,
    Recurrence,
    Stage,
    Tensor,
    takes,
    takes_state,
    tensors,
)

PROGRAM_BYTES = 1 << 20
"""Largest size of the program of one turn, in bytes."""
LEAST_LINES = 2
"""Number of lines of the int16 constant -2^15. A program shifts the constant to the right, so that
its number of magnitude bits stores an exponent."""
TOLD_LINES = 4
"""Number of lines in which a step reports the bits of one tensor's largest gradient. The lines hold
two int16 numbers, each for 0 to 15 of these bits."""
MOST_ENTRIES = 256
"""Largest number of parameter entries of a program. If the chip has room for fewer, the program
loads entries while it runs."""
TABLES = 50
"""Largest number of tables of a program: two for the masks of units, two for BatchNormalization,
and three for each stage."""


@dataclass(frozen=True, eq=False)
class Shape:
    """The sizes of a stage in blocks of C numbers, C being the columns of the array.

    In the buffer a map is [block of channels][sample][pixel], everything else is [block][sample].
    """

    groups: int
    """Number of equal parts of the inputs: one part for each tap of a window, or for each pixel of
    a flattened map."""
    inputs: int
    """Number of blocks of inputs, the block of the bias included."""
    channels: int
    """Number of blocks of inputs in each part. For a DepthwiseConv2D it is the number of blocks of
    channels."""
    units: int
    """Number of blocks of units."""
    lines: int
    """Number of lines that a block of units has for its weights: C for each block of inputs."""
    bias: int
    """Line with the biases, counted from the first line of a block of units. The last C lines of
    the block are for the input of the bias, and the biases are the first of these."""
    biased: bool
    """Whether there are biases. Without biases there is neither a block nor a line for them."""
    places: NDArray[np.intp]
    """Line with the weights of each input, counted from the first line of a block of units,
    (inputs,)."""
    columns: NDArray[np.intp]
    """Column of each unit, counted from the first column of the first block of units, (units,)."""
    given: int
    """Number of lines of the inputs of one sample, including the line for the bias of a Dense."""
    made: int
    """Number of lines of the sums of one sample in a block of units: the pixels of a map, else 1.
    """
    left: int
    """Number of lines of the result of one sample in a block of units. It differs from `made` only
    if there is a pooling."""


@dataclass(frozen=True)
class RecurrencePlaces:
    """The places in host memory of the numbers of an LSTM or GRU that its backward pass needs.

    The numbers are int16, but inputs and masks are int8. `cells` and `hidden` have one entry more
    than there are steps. The first entry is for the time before the first step, and stays zero.
    """

    inputs: int
    """Byte offset of the inputs, [step][block][sample]."""
    cells: int
    """Byte offset of gates, cell and tanh of the cell: [step][gates, cell, tanh][block][sample].
    systola.training.gru has the order for a GRU."""
    hidden: int
    """Byte offset of the states, [step][block][sample]."""
    gates: int
    """Byte offset of the gradient of the gates' sums, [block][step][sample]."""
    below: int
    """Byte offset of the inputs' gradient, [block][step][sample]."""
    masks: int
    """Byte offset of the masks of the states after each step, [step][block][sample]. There are
    masks only if a Dropout is between two LSTMs."""

    def after(self, offset: int) -> RecurrencePlaces:
        """Return the places for another turn, which are `offset` bytes higher."""
        return RecurrencePlaces(
            *(place + offset for place in (self.inputs, self.cells, self.hidden, self.gates)),
            below=self.below + offset,
            masks=self.masks + offset,
        )


@dataclass(frozen=True)
class Spilled:
    """The places in host memory of the numbers of one turn that wait while other turns use the
    buffer.
    """

    units: tuple[int, ...]
    """Byte offsets of the inputs of each stage from the second one on, int8, [block][sample]."""
    results: tuple[int, ...]
    """Byte offsets of the results of each stage but the last. If only one Dense takes a result,
    this is also the offset in `units` of its inputs. Otherwise a Dense has a copy of the result
    in `units`."""
    masks: tuple[int, ...]
    """Byte offsets of the masks of the units of each stage, [block][sample]."""
    routes: tuple[int, ...]
    """Byte offsets of the marks of each stage's pooling, one tap after the other. A mark is 1 where
    the tap is the largest number of its window. A pooling of means has the mask of its pixels
    instead."""
    gradients: tuple[int, ...]
    """Byte offsets of the gradient of the sums of each stage, int8, [block][sample]."""
    below: tuple[int, ...]
    """Byte offsets of the gradient of the inputs of each stage, int8. The region is empty unless
    other stages take the same inputs."""
    sums: int
    """Byte offset of the sums of a product. The sums wait here until the sums of all turns have
    been measured, see turns/sums.py."""
    error: int
    """Byte offset of the error of the network's outputs, int16, [group of samples][class]."""
    turned: int
    """Byte offset of the transposed inputs of one stage, [chunk][group of samples][input]. A chunk
    is a run of blocks of inputs that are updated together."""

    def after(self, offset: int) -> Spilled:
        """Return the places for another turn, which are `offset` bytes higher."""

        def moved(places: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(place + offset for place in places)

        return Spilled(
            units=moved(self.units),
            results=moved(self.results),
            masks=moved(self.masks),
            routes=moved(self.routes),
            gradients=moved(self.gradients),
            below=moved(self.below),
            sums=self.sums + offset,
            error=self.error + offset,
            turned=self.turned + offset,
        )


class Layout:
    """A map of host memory: the byte offsets of everything that the programs of a network use."""

    def __init__(
        self,
        config: Config,
        stages: tuple[Stage, ...],
        batch: int,
        *,
        beside: int,
        turns: int = 1,
    ) -> None:
        """Find the places for `turns` turns of `batch` samples each.

        `beside`: number of tensors that the optimiser keeps for each tensor of masters. It is 1 for
        velocities, and 1 for each kind of moments.
        """
        size = self.size = config.cols
        self.pitch = config.input_pitch
        others = [_shape(tensor, None, size) for tensor in tensors(stages)[len(stages) :]]
        self.shapes = (*(_shape(stage.tensor, stage, size) for stage in stages), *others)
        """Shapes of the stages, followed by the shapes of recurrent kernels and embeddings."""
        self._stages = len(stages)
        last = self.shapes[len(stages) - 1]
        self.samples = _blocks(batch, size) * size
        """Number of samples of a turn, rounded up to whole blocks of C samples."""
        self.groups = self.samples // size
        """Number of blocks of samples of a turn."""
        self.classes = last.units * size
        """Number of units of the last stage, rounded up to whole blocks of C units."""
        self._end = 0
        weights = [shape.units * shape.lines for shape in self.shapes]
        self.masters = [self._take(2 * lines) for lines in weights]
        self.beside = [[self._take(2 * lines) for lines in weights] for _ in range(beside)]
        """Byte offsets of the tensors that are kept beside the masters: velocities, or first
        moments and roots of second moments."""
        self.state_bytes = self._end
        """Size in bytes of the masters and the tensors beside them, which a checkpoint keeps."""
        self.turns = turns
        first = self._end
        self.x = self._take(self.samples * self._given(stages[0]))
        label_lines = 2 * self.groups * self.classes
        self.labels = self._take(label_lines)
        self.valid = self._take(label_lines)
        self.weights = self._take(label_lines)
        self.logits = self._take(label_lines)
        self.losses = self._take(2 * self.groups)
        self.spilled = self._spilled(stages)
        self.recurrences = [
            self._recurrence(number, stage.lstm, stage.rate)
            for number, stage in enumerate(stages)
            if stage.lstm
        ]
        """Places of the numbers of each LSTM or GRU, in the order of the stages."""
        self._turn_bytes = self._end - first
        self._end += (turns - 1) * self._turn_bytes
        self.selection = self._take(self._selections(stages[0]))
        """Byte offset of the lines by which the array adds up the gradients of each word of an
        Embedding, see turns/embedding.py."""
        self.wide_ones = [
            self._take(2 * size * (turns > 1 and takes_state(stages, number)))
            for number in range(len(stages))
        ]
        """Byte offsets, one for each stage, of the transposed input for the bias, a tile of int16.
        Only stages after an LSTM in a batch of several turns have such a tile."""
        self.narrowed = self._take(max(weights) if turns > 1 else 0)
        """Byte offset of the int8 weights of one tensor. The first turn makes these from the
        masters, and all other turns read them."""
        self.survey = self._take(2 * len(self.shapes) * max(1, beside))
        self.told = self._take(TOLD_LINES * len(self.shapes) * bool(beside))
        """Byte offset of the reports of a step: the bits of each tensor's largest gradient."""
        self.unit_bits = self._take(2 * len(stages))
        self.measured, self.resting = (
            [
                self._take(4 * (shape.units + KEPT_LINES) * (stage.normalized is not None))
                for stage, shape in zip(stages, self.shapes, strict=False)
            ]
            for _ in range(2)
        )
        """Byte offsets of two regions of each BatchNormalization. `measured` has the means and
        variances of a step. `resting` has the reciprocal roots and offsets for a program that
        learns nothing. In each region the fraction bits of the numbers follow, as branches/kept.py
        holds them."""
        selected = self.selected_of(self.groups)
        select = selected // size * self.groups * self.classes
        self.constant_lines = (
            5 * size + 1 + 2 * selected + select + last.units + 5 * len(stages) + LEAST_LINES
        )
        count = sum(stage.normalized is not None for stage in stages)
        self.constant_lines += (4 * size + 4 * count + 10) * (count > 0)
        if turns > 1:
            # The losses of several turns are computed together, for up to C groups of samples. The
            # turns are cut into runs of at most two lengths, and each length has its constants.
            self.constant_lines += 3 * size + 2 * size * self.classes
        self.constants = self._take(self.constant_lines)
        mapped = [shape.units * shape.made for shape in self.shapes[: len(stages)]]
        most = self.samples * max(mapped)
        self.moves = self._take(most), self._take(most)
        """Byte offsets of two regions through which lines of maps pass to be put into another
        order."""
        self.spread = [
            self._spread(stage, self.samples * lines)
            for stage, lines in zip(stages, mapped, strict=True)
        ]
        """Byte offsets of two regions for each stage with strides. Maps get zeros between their
        pixels there; these zeros are never overwritten."""
        self.pool_spread = [
            self._pool_spread(stage, self.samples * shape.units)
            for stage, shape in zip(stages, self.shapes, strict=False)
        ]
        """Byte offsets of two regions for each pooling with windows that overlap or leave pixels
        out. There the gradient of each tap is put at the place of the tap's pixel."""
        self.entries = self._take(max(MOST_ENTRIES, config.parameter_entries) * PARAMETER_PLANES)
        self.tables = self._bytes(TABLES * TABLE_BYTES)
        steps = stages[0].lstm.steps if stages[0].lstm else 0
        self.program_bytes = turns * PROGRAM_BYTES * (1 + steps // 64 * (turns > 1))
        self.program = self._bytes(self.program_bytes)
        self.window = -(-self._end // HOST_PAGE_BYTES) * HOST_PAGE_BYTES

    def selected_of(self, groups: int) -> int:
        """Return the number of lines from which a product selects the line of one group of samples.

        It is `groups` rounded up to a multiple of C, as a tile of the array has C lines.
        """
        return _blocks(groups, self.size) * self.size

    def of_turn(self, turn: int) -> Layout:
        """Return the layout for a turn; `self` has the places of turn 0."""
        offset = turn * self._turn_bytes
        found = copy(self)
        found.x += offset
        found.labels += offset
        found.valid += offset
        found.weights += offset
        found.logits += offset
        found.losses += offset
        if self.spilled:
            found.spilled = self.spilled.after(offset)
        found.recurrences = [places.after(offset) for places in self.recurrences]
        return found

    @property
    def recurrence(self) -> RecurrencePlaces | None:
        """Places of the numbers of the first LSTM or GRU; None if the network has neither."""
        return self.recurrences[0] if self.recurrences else None

    def _spilled(self, stages: tuple[Stage, ...]) -> Spilled | None:
        if self.turns == 1:
            return None
        samples, shapes = self.samples, self.shapes[: len(stages)]
        most = max((shape.units for shape in shapes[:-1]), default=0)
        most = max(most, *(shape.inputs for shape in shapes[1:]), 0)
        units, results = self._results(stages)
        return Spilled(
            units=units,
            results=results,
            masks=tuple(self._take(samples * shape.units * shape.left) for shape in shapes[:-1]),
            routes=tuple(
                self._take(samples * shape.units * _marks(stage, shape))
                for stage, shape in zip(stages, shapes, strict=True)
            ),
            gradients=tuple(self._take(samples * shape.units * shape.made) for shape in shapes),
            below=tuple(
                self._take(self._waiting_gradient(stages, number)) for number in range(len(stages))
            ),
            sums=self._take(4 * samples * most),
            error=self._take(2 * self.groups * self.classes),
            turned=self._take(samples * max(shape.inputs for shape in shapes)),
        )

    def _results(self, stages: tuple[Stage, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Take places for the inputs of all stages but the first, and for the results of all but
        the last.
        """
        given = [
            # After an LSTM the input for the bias is int16, and so takes a second line for each
            # sample.
            self._take(
                0 if stage.window or stage.join or stage.lstm else self.samples * (shape.given + 1)
            )
            for stage, shape in zip(stages[1:], self.shapes[1:], strict=False)
        ]
        results: list[int] = []
        for at in range(1, len(stages)):
            dense = dense_of(stages, at)
            own = self.result_lines(stages, at) + 2 * self.samples
            results.append(self._take(own) if dense is None else given[dense - 1])
        for number, stage in enumerate(stages):
            at = takes(stages, number)[0]
            if number and stage.window:
                given[number - 1] = results[at - 1] if at else self.x
        return tuple(given), tuple(results)

    def _waiting_gradient(self, stages: tuple[Stage, ...], number: int) -> int:
        """Return the number of lines in which the gradient of a stage's inputs waits to be added.

        The number is 0 if no other stage takes these inputs.
        """
        at = takes(stages, number)[0]
        if not at or stages[number].join or alone(stages, at):
            return 0
        return self.result_lines(stages, at)

    def result_lines(self, stages: Sequence[Stage], at: int) -> int:
        """Return the number of lines of one result of the network for all samples of a turn.

        Result 0 is the samples, and result `at` comes from stage `at` - 1, counted from 0.
        """
        if not at:
            first = stages[0]
            pixels = prod(first.window.map) if first.window else 1
            return _blocks(first.channels, self.size) * self.samples * pixels
        stage, shape = stages[at - 1], self.shapes[at - 1]
        blocks = _blocks(stage.lstm.units, self.size) if stage.lstm else shape.units
        return blocks * self.samples * shape.left

    def _selections(self, stage: Stage) -> int:
        """Return the largest number of lines that select the gradients of words for an Embedding.

        There is a line for each word, and for each tile of gradients or masters.
        """
        if self.turns == 1 or stage.lstm is None or not stage.lstm.vocabulary:
            return 0
        words = self.shapes[-1].lines
        return words + (words + self.turns * self.samples * stage.lstm.steps) // self.size + 1

    def _given(self, stage: Stage) -> int:
        """Return the number of lines of a sample in the form that the first stage takes."""
        if stage.lstm is None:
            return self.shapes[0].given
        if stage.lstm.vocabulary and self.turns > 1:
            return 0
        given = self.shapes[0].channels
        if stage.lstm.vocabulary:
            given = self.shapes[self._stages + EMBEDDING].inputs
        return stage.lstm.steps * given

    def _recurrence(self, number: int, lstm: Recurrence, rate: float) -> RecurrencePlaces:
        samples, inputs = self.samples, self.shapes[number].channels
        gates, steps = self.shapes[number].units, lstm.steps
        units, made = gates // len(lstm.order), number > 0 or lstm.vocabulary > 0
        # A GRU keeps no cell, and has the gradients of as many sums as an LSTM.
        sums = len(GATES) * units
        kept = sums if lstm.gru else sums + 2 * units
        masks = steps * units * samples * bool(lstm.sequences and rate)
        return RecurrencePlaces(
            inputs=self._take(steps * inputs * samples) if made else self.x,
            cells=self._take((steps + 1) * 2 * kept * samples),
            hidden=self._take((steps + 1) * 2 * units * samples),
            gates=self._take(2 * sums * steps * samples),
            below=self._take(2 * inputs * steps * samples * made),
            masks=self._take(masks),
        )

    def _spread(self, stage: Stage, lines: int) -> tuple[int, int]:
        between = prod(stage.window.stride) if stage.window else 1
        size = lines * between if between > 1 else 0
        return self._take(size), self._take(size)

    def _pool_spread(self, stage: Stage, maps: int) -> tuple[int, int]:
        pool = stage.pool
        apart = pool is not None and not pool.side_by_side
        size = maps * prod(pool.out) * prod(pool.stride) if pool and apart else 0
        return self._take(size), self._take(size)

    def _take(self, lines: int) -> int:
        return self._bytes(lines * self.pitch)

    def _bytes(self, size: int) -> int:
        place = self._end
        self._end = -(-(place + size) // 256) * 256
        return place


def _shape(tensor: Tensor, stage: Stage | None, size: int) -> Shape:
    if stage and stage.join:
        return _joined(stage, size)
    groups, count = tensor.groups, tensor.inputs // tensor.groups
    parts = places_of(tensor.segments or (count,), size)
    channels = -(-(int(parts[-1]) + 1) // size)
    bias = groups * channels * size
    line = np.arange(groups)[:, np.newaxis] * channels * size + parts
    each = tensor.units // len(tensor.order)
    blocks = _blocks(each, size)
    column = np.array(tensor.order)[:, np.newaxis] * blocks * size + np.arange(each)
    window = stage.window if stage else None
    own = len(tensor.order) * blocks if stage and stage.depthwise else channels
    return Shape(
        groups=groups,
        inputs=groups * channels + tensor.biased,
        units=len(tensor.order) * blocks,
        lines=bias + size * tensor.biased,
        bias=bias,
        biased=tensor.biased,
        places=line.reshape(-1),
        columns=column.reshape(-1),
        channels=own,
        given=own * prod(window.map) if window else groups * channels + 1,
        made=prod(window.out) if window else 1,
        left=prod(stage.map) if stage else 1,
    )


def _marks(stage: Stage, shape: Shape) -> int:
    """Return the number of lines that mark the taps of a pooling, for a sample and block of
    units.
    """
    if stage.pool is None:
        return 0
    return shape.made if stage.average else stage.pool.taps * shape.left


def _joined(stage: Stage, size: int) -> Shape:
    """Return the shape of a join (an Add or Concatenate), which has no weights."""
    columns = places_of(stage.segments, size)
    blocks, pixels = -(-(int(columns[-1]) + 1) // size), prod(stage.map)
    return Shape(
        groups=1,
        inputs=0,
        channels=0,
        units=blocks,
        lines=0,
        bias=0,
        biased=False,
        places=np.zeros(0, np.intp),
        columns=columns,
        given=0,
        made=pixels,
        left=pixels,
    )


def places_of(segments: Sequence[int], size: int) -> NDArray[np.intp]:
    """Return the position of each number if each segment begins a new block of `size` numbers.

    `segments`: numbers in each segment. Positions count from the first number of the first block.
    """
    starts = np.cumsum([0, *(-(-part // size) * size for part in segments)])
    parts = zip(starts, segments, strict=False)
    return np.concatenate([start + np.arange(part) for start, part in parts])


def _blocks(count: int, size: int) -> int:
    return -(-count // size)
