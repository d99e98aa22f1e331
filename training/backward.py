# SPDX-License-Identifier: Apache-2.0
"""The way back of a program: gradients of the units, stage by stage, and the update.

A gradient is negative here, as the multiplier of the update has no sign.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from systola.arch.isa import Operation, Source
from systola.training.forward import Pass, accumulated, chunks, hidden_scale
from systola.training.layout import Layout
from systola.training.loss import gradient_factor
from systola.training.numbers import MASTER_SHIFT, VELOCITY_BITS, multiplier
from systola.training.task import GRADIENT, SHIFT, SPARE, Task
from systola.training.weights import Turned
from systola.training.writer import NARROW, ONE, UNIT, WIDE, Entry, Writer, shifted


class Backward:
    """Writes the way back."""

    def __init__(self, writer: Writer, task: Task, left: Pass) -> None:
        self._writer = writer
        self._task = task
        self._left = left

    @property
    def _layout(self) -> Layout:
        return self._writer.layout

    def write(self, gradient: range) -> None:
        """Writes it, from the gradient of the last stage, int8, [block of units][sample]."""
        writer, left = self._writer, self._left
        masking: Iterator[None] = iter(())
        for number in reversed(range(len(self._task.stages))):
            # The gradient below takes the weights before their update, and moves its exponent.
            entry = self._update_shift(number)
            below, below_masking = range(0), masking
            if number:
                below = self._below(number, gradient)
                below_masking = self._mask(number - 1, below)
                next(below_masking, None)
            if number > 1:
                deque(below_masking, maxlen=0)
            self._update(number, gradient, entry, masking)
            writer.free(gradient, left.transposed[number])
            gradient, masking = below, below_masking

    def _mask(self, number: int, gradient: range) -> Iterator[None]:
        """Leaves of the gradient of a stage what its mask lets pass, block by block."""
        mask, samples = self._left.masks[number], self._layout.samples
        for at in range(0, len(gradient) if mask else 0, samples):
            line = gradient.start + at
            assert mask
            self._writer.vector(
                Operation.MULTIPLY, line, mask.start + at, line, samples, ONE, NARROW
            )
            yield
        self._writer.free(mask or range(0))

    def _update_shift(self, number: int) -> Entry:
        """Puts the shift of the update into a register; the entry has its multiplier."""
        task, inputs = self._task, self._left.inputs[number]
        q, right = multiplier(task.learning_rate * gradient_factor(task) / task.count)
        bits = task.master_bits[number] + (VELOCITY_BITS if task.momentum else 0)
        self._writer.measure(
            SPARE, first=inputs.register, second=GRADIENT, value=inputs.value - bits + right
        )
        return Entry(q)

    def _below(self, number: int, gradient: range) -> range:
        """The gradient of the units that a stage has for inputs, before their mask."""
        writer, layout, task = self._writer, self._layout, self._task
        samples = layout.samples
        units = layout.shapes[number - 1].units
        parts = accumulated(writer.config, samples, units)
        last = number == len(task.stages) - 1
        columns = None if last else Turned(writer, number)
        q, lost = hidden_scale(task.stages[number - 1].rate, True)
        writer.measure(SHIFT, value=-8)
        for part in parts:
            self._multiply(number, gradient, part, columns)
            rows = len(part) * samples
            writer.measure(SHIFT, Source.ACCUMULATORS, rows=rows, bits=8, first=SHIFT)
        bits = task.master_bits[number] - MASTER_SHIFT - lost
        writer.measure(GRADIENT, first=GRADIENT, third=SHIFT, value=bits)
        below = writer.allocate(units * samples)
        for part in parts:
            if len(parts) > 1:
                self._multiply(number, gradient, part, columns)
            at, rows = part.start * samples, len(part) * samples
            writer.activate(0, below.start + at, rows, Entry(q), exponent=SHIFT)
        if columns:
            columns.free()
        else:
            writer.free(self._left.weights)
        return below

    def _multiply(self, number: int, gradient: range, part: range, columns: Turned | None) -> None:
        """The sums for some blocks of inputs, from accumulator row 0 on."""
        writer, layout = self._writer, self._layout
        samples, units = layout.samples, layout.shapes[number].units
        if columns is None:
            weights = self._left.weights.start + part.start * units * layout.size
            writer.multiply(gradient.start, weights, 0, samples, units, len(part))
            return
        for place, block in enumerate(part):
            weights = columns.read(block)
            writer.multiply(gradient.start, weights, place * samples, samples, units, 1)

    def _update(self, number: int, gradient: range, entry: Entry, masking: Iterator[None]) -> None:
        """Adds the products of inputs and gradient to the masters, part by part.

        Each step of `masking` masks the next block of the gradient; the first one is.
        """
        writer, layout, task = self._writer, self._layout, self._task
        samples, size, shape = layout.samples, layout.size, layout.shapes[number]
        parts = chunks(writer.config, shape.inputs)
        most = parts[0][1] * size
        half = writer.config.accumulator_rows // 2
        moving = 2 * most if task.momentum else 0
        places = [[writer.allocate(lines) for lines in (2 * most, moving)] for _ in range(2)]
        turn = 0
        for block in range(shape.units):
            vectors = self._left.transposed[number].start
            next(masking, None)
            for first, count in parts:
                rows, row = count * size, half * turn
                master, velocity = (lines[: 2 * rows] for lines in places[turn])
                line = block * shape.lines + first * size
                host = layout.masters[number] + 2 * line * layout.pitch
                writer.read(host, master)
                if velocity:
                    writer.read(layout.velocities[number] + 2 * line * layout.pitch, velocity)
                weights = gradient.start + block * samples
                writer.multiply(vectors, weights, row, rows, layout.groups, 1)
                vectors += rows * layout.groups
                self._add(row, master, velocity, rows, entry)
                writer.write(host, master)
                if velocity:
                    writer.write(layout.velocities[number] + 2 * line * layout.pitch, velocity)
                turn ^= 1
        deque(masking, maxlen=0)
        writer.free(*places[0], *places[1])

    def _add(self, row: int, master: range, velocity: range, rows: int, entry: Entry) -> None:
        """Adds the sums from a row on to the masters, by way of the velocity where there is one."""
        writer = self._writer
        how = {"wide": 1, "accumulate": 1, "exponent": SPARE}
        if not velocity:
            writer.activate(row, master.start, rows, entry, **how)
            return
        q, right = multiplier(self._task.momentum)
        decay = shifted(right, multiplier=q)
        writer.copy(velocity.start, velocity.start, rows, decay, WIDE)
        writer.activate(row, velocity.start, rows, entry, **how)
        writer.vector(
            *(Operation.ADD, master.start, velocity.start, master.start, rows, ONE, WIDE),
            scales=(UNIT, UNIT >> VELOCITY_BITS),
        )
