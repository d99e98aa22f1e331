# SPDX-License-Identifier: Apache-2.0
"""Functions that the forward pass and the backward pass of a program share.

They cut blocks and samples into parts that fit, find the fraction bits and scales of units, and
write masks of Dropout. A stage is a layer with weights, or an Add or Concatenate, and the layers
from it to the next stage.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from systola.arch.config import Config
from systola.arch.isa import Function, Opcode, Source
from systola.training.curves import CURVES, SLOPE_BITS, scaled_up
from systola.training.errors import NoRoomError
from systola.training.exchange import agree
from systola.training.layout import Shape
from systola.training.masks import block_seed, keep_table
from systola.training.numbers import MASTER_SHIFT, MOST_INPUT_BITS, MOST_STATE_BITS
from systola.training.stages import Stage, branched, takes_state
from systola.training.task import INPUTS, SHIFT, Exponent, Task
from systola.training.writer import HALF, NARROW, ONE, Entry, Writer, shifted

STATE_BITS = 15
"""Fraction bits of the int16 states that an LSTM gives from step to step."""
_ADAPTED_ROWS = 256
"""Least number of rows of weights in a part of an update, if the optimiser has moments."""
PLAIN = HALF, 1
"""Scale of units without Dropout: the multiplier HALF, and the one bit that units lose by it."""
COUNTER_REGISTER = 1
"""Number of the index register with the counter of the random masks of a step."""


@dataclass
class Pass:
    """A record of the lines and exponents that the forward pass leaves for the backward pass."""

    inputs: list[Exponent] = field(default_factory=list[Exponent])
    """Fraction bits of the inputs of each stage."""
    transposed: list[range] = field(default_factory=list[range])
    """Lines with the inputs of each stage. Inputs of a Dense are transposed, [chunk][group][input],
    where a chunk is a part of the update. Inputs of a Conv2D are maps as the stage takes them."""
    masks: list[range | None] = field(default_factory=list[range | None])
    """Lines with the mask of each stage's units; None if all units pass. A unit that does not pass
    has 0. A unit that passes has 1, or its slope if the activation is a table."""
    routes: list[list[range]] = field(default_factory=list[list[range]])
    """Lines with the marks of each stage's pooling, one region for each tap of the windows. A mark
    is 1 where the tap is the largest. For a pooling of means the list has the mask of the pixels
    before the pooling instead."""
    weights: range = field(default_factory=lambda: range(0))
    """Lines of the weights of the last stage, transposed: [block of inputs][class]."""


def adapted_rows(config: Config) -> int:
    """Return the number of rows of weights in a part of an update, if the optimiser has moments.

    Two parts are in the buffer at one time, with 16 lines for each row of weights.
    """
    return max(_ADAPTED_ROWS, config.buffer_lines // 40)


def most_blocks(config: Config, task: Task) -> int:
    """Return the largest number of blocks of inputs in a part of an update.

    The sums of a part take at most half of the accumulators, as two parts are under way. If the
    optimiser has moments a part has fewer blocks, as the buffer then has three int16 numbers for
    each weight. Of these, a core of a pod has the two moments only for the rows that it updates.
    """
    rows = config.accumulator_rows // 2
    if task.decays:
        every, own = 1 + task.beside, 1 + task.beside / task.cores
        rows = min(rows, int(adapted_rows(config) * every / own))
    return max(1, rows // config.cols)


def chunks(config: Config, task: Task, blocks: int) -> list[tuple[int, int]]:
    """Cut `blocks` blocks of inputs into the parts of an update.

    Returns the first block, counted from 0, and the number of blocks of each part.
    """
    most = most_blocks(config, task)
    count = -(-blocks // most)
    size = -(-blocks // count)
    return [(first, min(size, blocks - first)) for first in range(0, blocks, size)]


@dataclass(frozen=True)
class Portion:
    """A part of an update: blocks of the inputs of a Dense, one after the other."""

    first: int
    count: int
    wide: bool
    """Whether the codes of these inputs are int16, as the input for the bias is after an LSTM."""


def portions(config: Config, task: Task, shape: Shape, number: int) -> list[Portion]:
    """Return the parts in which the weights of a Dense are updated."""
    if not takes_state(task.stages, number):
        return [Portion(first, count, False) for first, count in chunks(config, task, shape.inputs)]
    last = shape.inputs - 1
    found = [Portion(first, count, False) for first, count in chunks(config, task, last)]
    return [*found, Portion(last, 1, True)]


def units_register(task: Task, number: int) -> int:
    """Return the exponent register with the fraction bits of the units that a stage makes."""
    return INPUTS + (1 if branched(task.stages) else number)


def most_unit_bits(stage: Stage) -> int:
    """Return the largest number of fraction bits that the units of a stage can have."""
    return MOST_STATE_BITS if stage.lstm else MOST_INPUT_BITS


def accumulated(config: Config, rows: int, count: int) -> list[range]:
    """Cut `count` blocks, or samples, into parts with sums that fit the accumulators.

    Each block has `rows` rows of sums. Raises NoRoomError if one block does not fit.
    """
    most = config.accumulator_rows // rows
    if not most:
        raise NoRoomError(f"the accumulators of '{config.name}' have no room for {rows} sums")
    return [range(first, min(first + most, count)) for first in range(0, count, most)]


def of_samples(blocks: int, samples: int, there: int) -> list[range]:
    """Return the rows that belong to samples, in `blocks` blocks of `samples` rows each.

    The first `there` rows of a block belong to samples, the others are padding. Rows of padding
    must not be measured, as the amount of padding depends on the size of the array.
    """
    if there == samples:
        return [range(blocks * samples)]
    return [range(n * samples, n * samples + there) for n in range(blocks) if there]


def hidden_scale(rate: float, train: bool) -> tuple[int, int]:
    """Return the multiplier from sums to units, and the number of bits that the units lose by it.

    With Dropout in training it is the scale 1 / (1 - rate), otherwise PLAIN.
    """
    if not (train and rate):
        return PLAIN
    q = round((1 << 29) / (1 - rate))
    bits = 2
    while q >= 1 << 31:
        q, bits = q >> 1, bits + 1
    return q, bits


def bits_without_dropout(stage: Stage, code: int) -> int:
    """Return the fraction bits of the units of a stage in a test or prediction.

    `code`: the number 2^(m - f) that the last training step has left in host memory. f is the
    number of fraction bits of the units in that step, and m the largest possible f. The units of a
    step lose some bits by the scale of Dropout. A test has no Dropout, so its units keep these
    bits.
    """
    if stage.curve:
        return CURVES[stage.curve].bits
    _, lost = hidden_scale(stage.rate, True)
    return most_unit_bits(stage) + min(0, lost - code.bit_length())


def curved_bits(stage: Stage, train: bool) -> int:
    """Return the fraction bits of the units of a stage with a table as its activation."""
    if train and stage.rate:
        return scaled_up(stage.curve, stage.rate).bits
    return CURVES[stage.curve].bits


def gradient_scale(stage: Stage) -> tuple[int, int]:
    """Return the scale that turns the gradient of a stage's units into the gradient of its sums.

    The scale is a multiplier, and the number of bits that the gradient loses by it. The mask is
    applied separately.
    """
    q, lost = hidden_scale(stage.rate, True)
    if stage.pool:
        # A pixel adds up the gradients of all windows that contain it, and the sum must fit int8.
        room = (stage.pool.sharing - 1).bit_length()
        q, lost = q >> room, lost + room
    if stage.average and stage.pool:
        # In a pooling of means a pixel gets 1 / taps of the gradient of its window. The power of
        # two in this factor changes the fraction bits only; the rest, 1/2 to 1, goes into the
        # multiplier.
        taps = stage.pool.taps
        more = taps.bit_length() - 1
        q, lost = round(q * (1 << more) / taps), lost - more
    return q, lost + (CURVES[stage.curve].lost if stage.curve else 0)


def mask_entry(stage: Stage) -> Entry:
    """Return the parameter entry for the product of a gradient with the mask of a stage."""
    return shifted(SLOPE_BITS - 1) if stage.curve else ONE


def sum_bits(task: Task, left: Pass, number: int) -> Exponent:
    """Return the fraction bits of a stage's sums: a constant, plus the content of an exponent
    register.
    """
    inputs = left.inputs[number]
    return Exponent(inputs.register, inputs.value + task.master_bits[number] - MASTER_SHIFT)


class UnitScale:
    """A writer of the scale by which the sums of a stage become int8 units.

    Exponent register SHIFT has the shift of this scale. The shift is measured from the sums, unless
    it is known from the last training step or from a table.
    """

    def __init__(self, writer: Writer, task: Task, left: Pass, number: int, *, train: bool) -> None:
        stage = task.stages[number]
        self.multiplier, self._lost = hidden_scale(0.0 if stage.curve else stage.rate, train)
        self._curved = curved_bits(stage, train) if stage.curve else None
        self._writer = writer
        self._left = left
        self._task = task
        self._register = units_register(task, number)
        # An LSTM has int16 states in place of sums.
        self._sums = Exponent(0, STATE_BITS) if stage.lstm else sum_bits(task, left, number)
        if stage.join:
            self._sums = left.inputs[number]
        self.known = bool(task.unit_bits) and not train
        """Whether the shift is known. If not, all sums have to be measured."""
        bits = task.unit_bits[number] if self.known else most_unit_bits(stage)
        if stage.curve:
            self.known, bits = True, CURVES[stage.curve].sum_bits
        value = self._sums.value - bits - self._lost
        writer.measure(SHIFT, first=self._sums.register, value=value)

    def measure(self, row: int, rows: int) -> None:
        """Measure some rows of sums in the accumulators; `rows` may be 0."""
        if rows and not self.known:
            at = {"accumulator": row, "rows": rows, "bits": 8}
            self._writer.measure(SHIFT, Source.ACCUMULATORS, **at, first=SHIFT)

    def measure_lines(self, line: int, rows: int) -> None:
        """Measure some int16 lines of sums in the buffer."""
        if not self.known:
            at = {"buffer": line, "rows": rows, "bits": 8}
            self._writer.measure(SHIFT, Source.LINES, **at, first=SHIFT)

    def end(self) -> None:
        """Put the fraction bits of the units into their register, after all sums have been
        measured.
        """
        self._left.inputs.append(Exponent(self._register, 0))
        if self._curved is not None:
            self._writer.measure(self._register, value=self._curved)
            return
        if not self.known:
            agree(self._writer, self._task, self._register)
        sums = self._sums
        value = sums.value - self._lost
        self._writer.measure(self._register, first=sums.register, third=SHIFT, value=value)


def drop(
    writer: Writer,
    task: Task,
    number: int,
    block: int,
    lines: tuple[int, int],
    rows: int,
    *,
    fresh: bool = False,
    step: int = 0,
) -> None:
    """Draw the random dropout of a block of a stage's units, and write it into the block's mask.

    `lines`: the first line of the mask, and the first line of a free region of the same size. If
    the stage has a ReLU and `fresh` is not set, the lines already have the mask of the ReLU. Then a
    unit has to pass both. Otherwise the mask is overwritten. `step`: the step in time of a
    recurrent layer.
    """
    mask, random = lines
    stage = task.stages[number]
    groups, first = writer.layout.groups, task.share(writer.layout.size).start
    each = rows // groups
    for group in range(groups):
        writer.emit(
            Opcode.RANDOM,
            **{"destination": random + group * each, "rows": each},
            **{"seed": block_seed(task.seed, first // writer.layout.size + group, step)},
            **{"counter": number + (block << 4), "counter_register": COUNTER_REGISTER},
        )
    function, table = Function.TABLE, writer.table(keep_table(stage.rate))
    if fresh or not stage.relu:
        writer.copy(random, mask, rows, ONE, NARROW, function, table=table)
        return
    writer.times(mask, random, rows, function, table=table)
