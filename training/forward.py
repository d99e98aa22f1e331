# SPDX-License-Identifier: Apache-2.0
"""The way forward of a program: from samples to logits, and what the way back needs of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from systola.arch.config import Config
from systola.arch.isa import Function, Opcode, Operation, Source
from systola.training.layout import Layout
from systola.training.masks import keep_table, positive_table
from systola.training.numbers import LOGIT_BITS, MASTER_SHIFT, MOST_INPUT_BITS
from systola.training.task import INPUTS, SHIFT, SPARE, Exponent, Task
from systola.training.weights import Columns, all_turned
from systola.training.writer import HALF, NARROW, NARROWING, ONE, Entry, Writer

COUNTER_REGISTER = 1
"""Index register with the counter of the masks of a step."""


@dataclass
class Pass:
    """What the way forward leaves in the buffer."""

    inputs: list[Exponent] = field(default_factory=list[Exponent])
    """Of each stage."""
    transposed: list[range] = field(default_factory=list[range])
    """The inputs of each stage, [chunk][group][input]."""
    masks: list[range | None] = field(default_factory=list[range | None])
    """What of the units of each stage passes."""
    weights: range = field(default_factory=lambda: range(0))
    """The weights of the last stage, transposed: [block of inputs][class]."""


def chunks(config: Config, blocks: int) -> list[tuple[int, int]]:
    """First block and number of blocks of each part of the inputs of an update.

    The sums of a part take at most half of the accumulators, so that two can be under way.
    """
    most = max(1, config.accumulator_rows // 2 // config.cols)
    count = -(-blocks // most)
    size = -(-blocks // count)
    return [(first, min(size, blocks - first)) for first in range(0, blocks, size)]


def accumulated(config: Config, samples: int, blocks: int) -> list[range]:
    """The blocks in parts whose sums, `samples` rows each, fit the accumulators."""
    most = max(1, config.accumulator_rows // samples)
    return [range(first, min(first + most, blocks)) for first in range(0, blocks, most)]


def hidden_scale(rate: float, train: bool) -> tuple[int, int]:
    """Multiplier of the units of a stage, and how many bits it takes from them, with Dropout."""
    if not (train and rate):
        return HALF, 1
    q = round((1 << 29) / (1 - rate))
    bits = 2
    while q >= 1 << 31:
        q, bits = q >> 1, bits + 1
    return q, bits


class Forward:
    """Writes the way forward."""

    def __init__(self, writer: Writer, task: Task, *, train: bool) -> None:
        self._writer = writer
        self._task = task
        self._train = train
        self.left = Pass()

    @property
    def _layout(self) -> Layout:
        return self._writer.layout

    def write(self) -> range:
        """Writes it; the logits, int16, [group][class]."""
        writer, task, layout = self._writer, self._task, self._layout
        x = writer.allocate(layout.samples * layout.shapes[0].inputs)
        self.left.inputs.append(Exponent(0, task.input_bits))
        last = len(task.stages) - 1
        if not last:
            writer.read(layout.x, x)
        for number in range(last):
            following = self._hidden(number, x)
            writer.free(x)
            x = following
        for _ in self._transpose(last, x):
            pass
        writer.free(x)
        return self._logits(last)

    def _hidden(self, number: int, x: range) -> range:
        """A stage that is not the last one; its units, and a one for the next bias."""
        writer, layout, stage = self._writer, self._layout, self._task.stages[number]
        samples, shape = layout.samples, layout.shapes[number]
        q, lost = hidden_scale(stage.rate, self._train)
        sums = self._sum_bits(number)
        parts = accumulated(writer.config, samples, shape.units)
        units = writer.allocate((shape.units + 1) * samples)
        mask = None
        if self._train and (stage.relu or stage.rate):
            mask = writer.allocate(shape.units * samples)
        self.left.masks.append(mask)
        columns = Columns(writer, number)
        known = None if self._train or not self._task.unit_bits else self._task.unit_bits[number]
        bits = MOST_INPUT_BITS if known is None else known
        writer.measure(SHIFT, first=sums.register, value=sums.value - bits - lost)
        # The activation unit has time while the array multiplies.
        turning = self._transpose(number, x) if self._train else iter(())
        for part in parts:
            for block, row in self._multiply(number, x, part, columns):
                if known is None:
                    at = {"accumulator": row, "rows": samples, "bits": 8}
                    writer.measure(SHIFT, Source.ACCUMULATORS, **at, first=SHIFT)
                if mask and len(parts) == 1:
                    self._mask(number, mask.start, units.start, row, block)
                next(turning, None)
        for _ in turning:
            pass
        register = INPUTS + number
        writer.measure(register, first=sums.register, third=SHIFT, value=sums.value - lost)
        self.left.inputs.append(Exponent(register, 0))
        for part in parts:
            if len(parts) > 1:
                for block, row in self._multiply(number, x, part, columns):
                    if mask:
                        self._mask(number, mask.start, units.start, row, block)
            rows, first = len(part) * samples, part.start * samples
            function = Function.RELU if stage.relu else Function.NONE
            at = units.start + first
            writer.activate(0, at, rows, Entry(q), function=function, exponent=SHIFT)
            if mask and stage.rate:
                writer.vector(Operation.MULTIPLY, at, mask.start + first, at, rows, ONE, NARROW)
        columns.free()
        self._one(units.stop - samples, register)
        return units

    def _mask(self, number: int, masks: int, scratch: int, row: int, block: int) -> None:
        """What passes of a block, by the ReLU of its sums and the dropout: 1, the rest 0.

        `masks` and `scratch` are the first lines of all blocks; the latter are free for a moment.
        """
        writer, stage, rows = self._writer, self._task.stages[number], self._layout.samples
        mask, random = masks + block * rows, scratch + block * rows
        if stage.relu:
            table = writer.table(positive_table())
            writer.activate(row, mask, rows, ONE, function=Function.TABLE, table=table)
        if not stage.rate:
            return
        writer.emit(
            Opcode.RANDOM,
            **{"destination": random, "rows": rows, "seed": self._task.seed},
            **{"counter": number + (block << 4), "counter_register": COUNTER_REGISTER},
        )
        function, table = Function.TABLE, writer.table(keep_table(stage.rate))
        if stage.relu:
            writer.vector(
                *(Operation.MULTIPLY, mask, random, mask, rows, ONE, NARROW),
                function=function,
                table=table,
            )
        else:
            writer.copy(random, mask, rows, ONE, NARROW, function, table=table)

    def _multiply(
        self, number: int, x: range, part: range, columns: Columns
    ) -> Iterator[tuple[int, int]]:
        """The sums of some blocks of units, from accumulator row 0 on: each block, and its row.

        A block is yielded when the next one is under way, and the weights of one more are not.
        """
        writer, layout, shape = self._writer, self._layout, self._layout.shapes[number]
        samples, start = layout.samples, part.start
        columns.read(start)
        if not number and not start:
            writer.read(layout.x, x)
        for block in part:
            row = (block - start) * samples
            writer.multiply(x.start, columns[block], row, samples, shape.inputs, 1)
            if block > start:
                yield block - 1, row - samples
            if block + 1 in part:
                columns.read(block + 1)
        yield part[-1], (len(part) - 1) * samples

    def _one(self, line: int, register: int) -> None:
        """The block with the one of the bias, 2^f: 2^14 with 14 - f bits less."""
        writer, samples = self._writer, self._layout.samples
        pairs = np.zeros((samples, 2, self._layout.size), np.int8)
        pairs[:, 1, 0] = 1 << 6
        ones = writer.constant(pairs.reshape(2 * samples, -1))
        writer.measure(SPARE, third=register, value=13)
        writer.copy(ones.start, line, samples, Entry(), NARROWING, exponent=SPARE)
        writer.free(ones)

    def _transpose(self, number: int, x: range) -> Iterator[None]:
        """The inputs of a stage, transposed, part by part as the update takes them.

        Each step of the iterator writes an instruction.
        """
        writer, layout = self._writer, self._layout
        size, samples = layout.size, layout.samples
        result = writer.allocate(layout.shapes[number].lines * layout.groups)
        self.left.transposed.append(result)
        at = result.start
        for first, count in chunks(writer.config, layout.shapes[number].inputs):
            for group in range(layout.groups):
                writer.transpose(x.start + first * samples + group * size, at, count, samples)
                at += count * size
                yield

    def _logits(self, last: int) -> range:
        """The last stage, transposed: its weights are the vectors, the samples the weights."""
        writer, layout, shape = self._writer, self._layout, self._layout.shapes[last]
        size, classes, groups = layout.size, layout.classes, layout.groups
        self.left.weights = all_turned(writer, last)
        at = self.left.transposed[-1].start
        for first, count in chunks(writer.config, shape.inputs):
            vectors = self.left.weights.start + first * classes
            writer.multiply(vectors, at, 0, classes, count, groups, accumulate=int(first > 0))
            at += count * size * groups
        sums = self._sum_bits(last)
        logits = writer.allocate(2 * groups * classes)
        writer.measure(SHIFT, first=sums.register, value=sums.value - LOGIT_BITS - 1)
        writer.activate(0, logits.start, groups * classes, Entry(), wide=1, exponent=SHIFT)
        return logits

    def _sum_bits(self, number: int) -> Exponent:
        """Fraction bits of the sums of a stage."""
        inputs = self.left.inputs[number]
        weights = self._task.master_bits[number] - MASTER_SHIFT
        return Exponent(inputs.register, inputs.value + weights)
