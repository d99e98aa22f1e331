# SPDX-License-Identifier: Apache-2.0
"""Builds the programs of a network: a training step, a test, a prediction, and a measurement of its
weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from systola.arch.built_for import require_machine
from systola.arch.config import Config
from systola.arch.isa import (
    INSTRUCTION_BYTES,
    PARAMETER_PLANES,
    Opcode,
    Operation,
    Source,
    encode,
)
from systola.golden.training import held
from systola.training.backward import Backward
from systola.training.branches.backward import BranchedBackward
from systola.training.branches.forward import BranchedForward
from systola.training.branches.kept import Kept
from systola.training.forward import Forward
from systola.training.layout import Layout
from systola.training.lines import pairs, store
from systola.training.loss import Loss
from systola.training.moments import MomentStep
from systola.training.passes import COUNTER_REGISTER, most_unit_bits
from systola.training.stages import Stage, branched, learns
from systola.training.task import INPUTS, SPARE, Task
from systola.training.turns.step import Step
from systola.training.writer import (
    ONE,
    UNIT,
    WIDE,
    Entry,
    StepEntry,
    StepLimit,
    Writer,
    entry_planes,
)

COUNTER_STEP = 1 << 12
"""Distance between the counters of successive training steps. The counter is an input of all random
masks of a step."""


@dataclass(frozen=True)
class StepProgram:
    """A program, with the data that it needs in host memory."""

    code: bytes
    """Bytes of the instructions. The first one is Require_Machine, and the second one is the
    Set_Register of the counter of the random masks."""
    entries: NDArray[np.uint8]
    constants: NDArray[np.uint8]
    tables: NDArray[np.uint8]
    selection: NDArray[np.int8]
    """Lines with ones at the places of one word's gradients, (lines, C). A product with such a line
    adds up the gradients of this word of an Embedding."""
    later_shifts: tuple[tuple[int, int, dict[str, int]], ...] = ()
    """Measure instructions to which the host adds a tensor's shift before each step. Each item has
    the byte offset in `code`, the number of the tensor, and the operands without the shift."""
    later_limits: tuple[tuple[int, StepLimit, dict[str, int]], ...] = ()
    """Set_Config_Scale instructions in which the host writes a limit before each step. Each item
    has the byte offset in `code`, the source of the limit, and the operands without the limit."""
    later_entries: tuple[tuple[int, StepEntry], ...] = ()
    """Parameter entries that the host writes before each step. Each item has the number of the
    entry, and the source of its content."""
    owned: tuple[tuple[int, range], ...] = ()
    """Rows of masters that this core updates, as pairs: the number of a tensor, and lines of it.
    Only this core keeps velocities or moments for these rows."""

    def place(
        self,
        layout: Layout,
        host: NDArray[np.uint8],
        step: int = 0,
        numbers: Sequence[MomentStep] = (),
    ) -> bytes:
        """Put the program into host memory for training step `step`; return its code for this step.

        `numbers`: for each tensor, the scales, limits and parameter entries of this step's update.
        They are given only if the optimiser has moments.
        """
        entries = self.entries
        if self.later_entries:
            entries = entries.copy()
            planes = entries.reshape(-1, PARAMETER_PLANES, layout.pitch)
            for number, later in self.later_entries:
                planes[number] = np.array(entry_planes(_of_step(later, numbers)))[:, np.newaxis]
        for place, data in (
            (layout.entries, entries),
            (layout.constants, self.constants),
            (layout.tables, self.tables),
        ):
            host[place : place + data.size] = data
        store(host, layout.selection, layout, self.selection)
        counter = step * COUNTER_STEP % 2**32
        front, rest = self.code[:INSTRUCTION_BYTES], self.code[2 * INSTRUCTION_BYTES :]
        code = bytearray(front + _set_counter(counter) + rest)
        for at, tensor, operands in self.later_shifts:
            value = held(operands["value"] + numbers[tensor].right)
            word = encode(Opcode.MEASURE, **{**operands, "value": value})
            code[at : at + INSTRUCTION_BYTES] = word
        for at, limit, operands in self.later_limits:
            most = getattr(numbers[limit.tensor], limit.name)
            word = encode(Opcode.SET_CONFIG_SCALE, **operands, limit=most)
            code[at : at + INSTRUCTION_BYTES] = word
        host[layout.program : layout.program + len(code)] = np.frombuffer(code, np.uint8)
        return bytes(code)


def train_program(
    config: Config, layout: Layout, task: Task, words: NDArray[np.intp] | None = None
) -> StepProgram:
    """Build the program of a training step: forward pass, loss, backward pass and update for a
    batch.

    `words`: the samples, (samples, steps), if there is an Embedding and several turns.
    """
    writer = Writer(config, layout)
    if task.turns > 1:
        step = Step(writer, task, words, train=True)
        outputs = step.forward()
        _tell_unit_bits(writer, task.stages[:-1], step.kept)
        outputs.write(train=True)
        outputs.free()
        step.back(outputs.kept)
        return _end(writer, step.selected())
    forward = _forward(writer, task, train=True)
    logits = forward.write()
    writer.write(layout.logits, logits)
    kept = forward.kept if isinstance(forward, BranchedForward) else None
    _tell_unit_bits(writer, task.stages[:-1], kept)
    gradient = Loss(writer, task).write(logits, train=True)
    writer.free(logits)
    if isinstance(forward, BranchedForward):
        BranchedBackward(writer, task, forward).write(gradient)
    else:
        Backward(writer, task, forward.left).write(gradient)
    return _end(writer)


def evaluate_program(
    config: Config, layout: Layout, task: Task, words: NDArray[np.intp] | None = None
) -> StepProgram:
    """Build the program of a test: the forward pass without dropout, and the loss of a batch."""
    writer = Writer(config, layout)
    if task.turns > 1:
        Step(writer, task, words, train=False).forward().write(train=False)
        return _end(writer)
    logits = _forward(writer, task, train=False).write()
    writer.write(layout.logits, logits)
    Loss(writer, task).write(logits, train=False)
    return _end(writer)


def predict_program(
    config: Config, layout: Layout, task: Task, words: NDArray[np.intp] | None = None
) -> StepProgram:
    """Build the program of a prediction: the forward pass without dropout.

    A softmax or sigmoid of the last stage is applied, too.
    """
    writer = Writer(config, layout)
    if task.turns > 1:
        Step(writer, task, words, train=False).forward().predict()
        return _end(writer)
    logits = _forward(writer, task, train=False).write()
    if task.stages[-1].softmax:
        logits = Loss(writer, task).probabilities(logits)
    elif task.stages[-1].sigmoid:
        logits = Loss(writer, task).logistic(logits)
    writer.write(layout.logits, logits)
    return _end(writer)


def survey_program(
    config: Config, layout: Layout, memories: Sequence[Sequence[int]]
) -> StepProgram:
    """Build a program that measures the largest magnitude of each tensor of masters, velocities or
    moments.

    If the largest code of a tensor has b bits, the program leaves 2^(13 - b + 8) in host memory.
    Fewer than 8 bits count as 8. `memories`: for each kind of tensor, the byte offsets of all
    tensors.
    """
    writer = Writer(config, layout)
    one = np.zeros((2, layout.size), np.int8)
    one[1] = 1 << 6
    source = writer.constant(one)
    places = _in_turn(writer)
    shapes = layout.shapes * len(memories)
    everywhere = (place for memory in memories for place in memory)
    for number, (shape, place) in enumerate(zip(shapes, everywhere, strict=True)):
        total = 2 * shape.units * shape.lines
        floor = {"value": 0}
        if not total:
            writer.measure(SPARE)  # an Add or Concatenate has no weights
        for first, lines in _portions(total, places):
            writer.read(place + first * layout.pitch, lines)
            rows = len(lines) // 2
            writer.measure(SPARE, Source.LINES, buffer=lines.start, rows=rows, bits=8, **floor)
            floor = {"first": SPARE}
        result = writer.allocate(2)
        writer.copy(source.start, result.start, 1, Entry(left=1), WIDE, exponent=SPARE)
        writer.write(layout.survey + 2 * number * layout.pitch, result)
        writer.free(result)
    return _end(writer)


def rescale_program(
    config: Config, layout: Layout, memories: Sequence[tuple[int, int, Entry]]
) -> StepProgram:
    """Build a program that multiplies and shifts tensors in host memory, each by a parameter entry.

    `memories`: the number of each tensor, its byte offset and its entry.
    """
    writer = Writer(config, layout)
    places = _in_turn(writer)
    for number, memory, entry in memories:
        total = 2 * layout.shapes[number].units * layout.shapes[number].lines
        for first, lines in _portions(total, places):
            host = memory + first * layout.pitch
            writer.read(host, lines)
            writer.copy(lines.start, lines.start, len(lines) // 2, entry, WIDE)
            writer.write(host, lines)
    return _end(writer)


def _of_step(later: StepEntry, numbers: Sequence[MomentStep]) -> Entry:
    """Return a parameter entry for one step.

    `later` has the tensor, and the name of the property or method that gives the entry. `numbers`:
    the numbers of the step for each tensor.
    """
    found = getattr(numbers[later.tensor], later.name)
    return found if later.bits is None else found(later.bits)


def decay_program(
    config: Config, layout: Layout, stages: Sequence[Stage], entry: Entry
) -> StepProgram:
    """Build a program that reduces all masters that learn by a fraction of their values.

    `entry` is the parameter entry that multiplies a master with this fraction.
    """
    writer = Writer(config, layout)
    places = _in_turn(writer)
    part = writer.allocate(writer.config.buffer_lines // 8 * 2)
    tensors = zip(layout.shapes, layout.masters, strict=True)
    for shape, memory in (each for n, each in enumerate(tensors) if learns(stages, n)):
        for first, lines in _portions(2 * shape.units * shape.lines, places):
            host, rows = memory + first * layout.pitch, len(lines) // 2
            writer.read(host, lines)
            writer.copy(lines.start, part.start, rows, entry, WIDE)
            at = (lines.start, part.start, lines.start, rows, ONE, WIDE)
            writer.vector(Operation.SUBTRACT, *at, scales=(UNIT, UNIT))
            writer.write(host, lines)
    return _end(writer)


def _forward(writer: Writer, task: Task, *, train: bool) -> Forward:
    kind = BranchedForward if branched(task.stages) else Forward
    return kind(writer, task, train=train)


def _tell_unit_bits(writer: Writer, stages: Sequence[Stage], kept: Kept | None = None) -> None:
    """Write the fraction bits f of the units of each stage to host memory, in the form 2^(m - f).

    m is the largest number of fraction bits that the units of the stage can have.
    """
    if not stages:
        return
    # The constant is 2^(m + 1). The multiplier shifts it right by one bit, and the exponent
    # register by f bits, so that the result is 2^(m - f).
    ones = np.array([[2 << most_unit_bits(stage)] for stage in stages])
    lines = np.repeat(pairs(ones), writer.layout.size, axis=1)
    source, result = writer.constant(lines), writer.allocate(2 * len(stages))
    for number in range(len(stages)):
        if kept:
            kept.bring(number + 1, SPARE)
        else:
            writer.measure(SPARE, first=INPUTS + number)
        line = source.start + 2 * number
        writer.copy(line, result.start + 2 * number, 1, Entry(), WIDE, exponent=SPARE)
    writer.write(writer.layout.unit_bits, result)
    writer.free(source, result)


def _in_turn(writer: Writer) -> Iterator[range]:
    """Return an endless iterator over two regions of the buffer, which alternate.

    So the machine can write one region to host memory while it reads into the other one.
    """
    most = writer.config.buffer_lines // 8 * 2
    return cycle([writer.allocate(most) for _ in range(2)])


def _portions(total: int, places: Iterator[range]) -> Iterator[tuple[int, range]]:
    """Cut `total` lines in host memory into portions that fit a region of the buffer.

    Yields the offset of the first line of each portion, and the lines of the buffer for it.
    """
    first = 0
    while first < total:
        lines = next(places)[: total - first]
        yield first, lines
        first += len(lines)


def _set_counter(counter: int) -> bytes:
    value = counter - (counter >> 31 << 32)
    return encode(Opcode.SET_REGISTER, register=COUNTER_REGISTER, value=value)


def _end(writer: Writer, selection: NDArray[np.int8] | None = None) -> StepProgram:
    code = require_machine(writer.config) + _set_counter(0) + writer.code()
    first = len(code) - INSTRUCTION_BYTES * (len(writer.words) + 1)
    shifts = [
        (first + INSTRUCTION_BYTES * word, tensor, operands)
        for word, tensor, operands in writer.later_shifts
    ]
    limits = [
        (first + INSTRUCTION_BYTES * word, limit, operands)
        for word, limit, operands in writer.later_limits
    ]
    if selection is None:
        selection = np.zeros((0, writer.layout.size), np.int8)
    return StepProgram(
        code,
        writer.entries(),
        writer.constants(),
        writer.tables(),
        selection,
        tuple(shifts),
        tuple(limits),
        tuple(writer.later_entries()),
        tuple(writer.owned),
    )
