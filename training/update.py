# SPDX-License-Identifier: Apache-2.0
"""The update of masters by sums in the accumulators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from systola.arch.isa import Function, Opcode, Operation, Source
from systola.training.clip import largest_step
from systola.training.exchange import WHOLE, add_up, give_to_all, own_rows
from systola.training.layout import TOLD_LINES
from systola.training.loss import gradient_factor
from systola.training.masks import block_seed
from systola.training.moments import LEAST_TOLD, Decays, limit
from systola.training.numbers import multiplier, velocity_bits
from systola.training.passes import COUNTER_REGISTER, adapted_rows
from systola.training.stages import branched, recurrent_tensor
from systola.training.task import (
    GRADIENT,
    INPUTS,
    SHIFT,
    SPARE,
    STATE,
    Exponent,
    Task,
    begin_told,
)
from systola.training.writer import (
    ONE,
    UNIT,
    WIDE,
    AnyEntry,
    Entry,
    StepEntry,
    Writer,
    shifted,
)

_OWN = 15
"""What tells the counters of random rounding from those of masks: no stage has this number."""
_ADDED = {"wide": 1, "accumulate": 1, "exponent": SPARE}
TOLD_BITS = 15
"""The most bits that one of the numbers tells."""


@dataclass(frozen=True)
class CutEntry(Entry):
    """The entry of an update whose steps are cut off."""

    most: int = 0
    """The code of the largest step."""


@dataclass(frozen=True)
class Masters:
    """Some masters of a stage on their way through the buffer, with velocities where there are."""

    writer: Writer
    task: Task
    number: int
    line: int
    """The first of them, among the lines of the stage."""
    lines: tuple[range, ...]
    """Lines of masters, and of what is kept beside them."""
    start: int = 0
    """The first row of them, of those that are one part of the update."""

    def some(self, rows: range) -> Masters:
        """Some rows of them."""
        pairs = slice(2 * rows.start, 2 * rows.stop)
        lines = tuple(each[pairs] for each in self.lines)
        start = self.start + rows.start
        return replace(self, line=self.line + rows.start, lines=lines, start=start)

    def read(self) -> None:
        """Brings them."""
        for host, lines in self._places():
            self.writer.read(host, lines)

    def write(self) -> None:
        """Takes them back."""
        for host, lines in self._places():
            self.writer.write(host, lines)

    def _places(self) -> list[tuple[int, range]]:
        layout, number = self.writer.layout, self.number
        offset = 2 * self.line * layout.pitch
        places = [each[number] + offset for each in (layout.masters, *layout.beside)]
        return list(zip(places, self.lines, strict=True))

    def update(self, row: int, entry: AnyEntry) -> None:
        """Bring them, add the sums of all cores from a row on, and take them back.

        Each core does so with its own rows, and gives these to all others.
        """
        self.read_own()
        self.add_of_all(row, entry)
        self.write()

    def read_own(self) -> None:
        """Bring the rows that this core updates."""
        for own in own_rows(self.task, self._rows):
            self.some(own).read()

    def add_of_all(
        self, row: int, entry: AnyEntry, meanwhile: Callable[[], object] | None = None
    ) -> None:
        """Add the sums of all cores to the rows of this core, and share the results.

        With moments, call `meanwhile` where the array has the most time to multiply, if at all.
        """
        for own in add_up(self.writer, self.task, row, self._rows):
            self.some(own).add(row + own.start, entry, meanwhile)
            meanwhile = None
        for lines in self.lines:
            give_to_all(self.writer, self.task, lines)

    @property
    def _rows(self) -> int:
        return len(self.lines[0]) // 2

    def add(self, row: int, entry: AnyEntry, meanwhile: Callable[[], object] | None = None) -> None:
        """Add the sums from a row on, by way of what is kept beside the masters."""
        if self.task.decays:
            most = adapted_rows(self.writer.config)
            for first in range(0, self._rows, most):
                rows = range(first, min(first + most, self._rows))
                self.some(rows)._adapt(row + first, self.task.decays, entry, meanwhile)
                meanwhile = None
        elif isinstance(entry, CutEntry):
            self._add_cut(row, entry)
        elif self.task.momentum:
            self._add_momentum(row, entry)
        else:
            how = dict(_ADDED)
            if self.task.stochastic:
                self._draw()
                how["stochastic"] = 1
            self.writer.activate(row, self.lines[0].start, self._rows, entry, **how)

    def _add_cut(self, row: int, entry: CutEntry) -> None:
        """Cut the steps off, and add them: some rows at a time, as they take lines beside."""
        writer, most = self.writer, adapted_rows(self.writer.config)
        if self.task.stochastic:
            self._draw()
        for first in range(0, self._rows, most):
            part = self.some(range(first, min(first + most, self._rows)))
            steps = writer.allocate(2 * part._rows)
            how = {"wide": 1, "exponent": SPARE, "stochastic": int(self.task.stochastic)}
            writer.activate(row + first, steps.start, part._rows, Entry(entry.multiplier), **how)
            at = (steps.start, 0, steps.start, part._rows, ONE, WIDE)
            writer.vector(Operation.COPY, *at, limit=entry.most)
            part._add_steps(steps.start)
            writer.free(steps)

    def _add_steps(self, steps: int) -> None:
        """Add steps that lie in the buffer, by way of the velocities where there are some."""
        writer, rows = self.writer, self._rows
        if self.task.momentum:
            self._decay_velocities()
        first = self.lines[-1].start
        at = (steps, 0, first, rows, ONE, WIDE)
        writer.vector(Operation.COPY, *at, accumulate=1)
        if self.task.momentum:
            self._add_velocities()

    def _decay_velocities(self) -> None:
        velocity = self.lines[1].start
        q, right = multiplier(self.task.momentum)
        self.writer.copy(velocity, velocity, self._rows, shifted(right, multiplier=q), WIDE)

    def _add_momentum(self, row: int, entry: AnyEntry) -> None:
        self._decay_velocities()
        self.writer.activate(row, self.lines[1].start, self._rows, entry, **_ADDED)
        self._add_velocities()

    def _add_velocities(self) -> None:
        writer, rows = self.writer, self._rows
        master, velocity = (each.start for each in self.lines)
        writer.vector(
            *(Operation.ADD, master, velocity, master, rows, ONE, WIDE),
            scales=(UNIT, UNIT >> velocity_bits(self.task.momentum)),
        )

    def _tell(self, row: int) -> None:
        """Raise what the step tells of the tensor's largest gradient: `moments.raised`."""
        writer, told = self.writer, told_register(self.task, self.number)
        writer.measure(told, first=told, second=SPARE)
        if self._rows:
            writer.measure(
                *(told, Source.ACCUMULATORS),
                accumulator=row,
                rows=self._rows,
                bits=0,
                first=told,
            )
        writer.measure(told, first=told, third=SPARE)

    def _adapt(
        self, row: int, decays: Decays, entry: AnyEntry, meanwhile: Callable[[], object] | None
    ) -> None:
        """Update moments and masters, see `systola.training.moments`."""
        writer, rows, how = self.writer, self._rows, {"wide": 1, "exponent": SPARE}
        master, *firsts, root = (each.start for each in self.lines)
        places = writer.allocate(2 * rows), writer.allocate(2 * rows)
        gradient, ratio = (each.start for each in places)
        gradients, ratios, roots = (
            StepEntry(self.number, name) for name in ("gradient_entry", "ratio_entry", "root_entry")
        )
        for first in firsts:
            more = StepEntry(self.number, "first_entry")
            writer.activate(row, first, rows, more, **how, accumulate=1)
        writer.activate(row, gradient, rows, gradients, **how)
        # The array begins its next product at about this Measure. The Measure and the quotient meet
        # the array in a bank only once, and other instructions again and again.
        self._tell(row)
        if meanwhile:
            meanwhile()
        at = (root, gradient, ratio, rows, ratios, WIDE)
        writer.vector(*(Operation.MULTIPLY, *at), function=Function.QUOTIENT, limit=limit(decays))
        writer.vector(Operation.MULTIPLY, ratio, gradient, root, rows, roots, WIDE, accumulate=1)
        dividend = firsts[0] if firsts else gradient
        at = (root, dividend, master, rows, entry, WIDE)
        writer.vector(Operation.MULTIPLY, *at, function=Function.QUOTIENT, accumulate=1)
        writer.free(*places)

    def _draw(self) -> None:
        """Sets the generators for these rows: as the rows of the part before them leave them, for
        these may be another core's."""
        writer, rows = self.writer, 1 + self.start
        unused = writer.allocate(rows)
        place = (self.line - self.start) // writer.layout.size
        writer.emit(
            Opcode.RANDOM,
            **{"destination": unused.start, "rows": rows},
            **{"seed": block_seed(self.task.seed, place)},
            **{"counter": _OWN + (self.number << 4), "counter_register": COUNTER_REGISTER},
        )
        writer.free(unused)


def update_shift(writer: Writer, task: Task, tensor: int, bits: int, inputs: Exponent) -> AnyEntry:
    """Put the shift of an update into SPARE, and return the entry with its multiplier.

    `bits`: fraction bits of the masters; `inputs`: of what the gradient is multiplied with.
    """
    register = inputs.register
    if task.decays:
        at = {"first": register, "second": GRADIENT, "value": inputs.value}
        writer.measure_later(SPARE, tensor, **at)
        return StepEntry(tensor, "update_entry", bits)
    q, right = multiplier(task.learning_rate * gradient_factor(task) / task.count)
    bits += velocity_bits(task.momentum) if task.momentum else 0
    value = inputs.value - bits + right
    writer.measure(SPARE, first=register, second=GRADIENT, value=value)
    if most := largest_step(task.clip_value, task.learning_rate, bits):
        return CutEntry(q, most=most)
    return Entry(q)


def told_register(task: Task, tensor: int) -> int:
    """Return the register for what a step tells of a tensor: one that its update leaves free."""
    if branched(task.stages):
        return _told_of_branches(task, tensor)
    last = len(task.stages) - 1
    lstm = task.stages[0].lstm
    if lstm and lstm.sequences:
        # INPUTS has the fraction bits of its states, and STATE is free by the time of its update.
        own = {0: STATE, recurrent_tensor(task.stages, 1): INPUTS + 2}
        if tensor in own:
            return own[tensor]
    if tensor > last:
        return INPUTS + tensor - last
    return SHIFT if tensor == last else INPUTS + tensor


def _told_of_branches(task: Task, tensor: int) -> int:
    """Return the register where INPUTS has the inputs of each stage, and the next one its units:
    of an LSTM all states, where it gives these."""
    count = len(task.stages)
    if tensor < count:
        return INPUTS + 2
    for number, stage in enumerate(task.stages):
        if stage.lstm and tensor == recurrent_tensor(task.stages, number):
            return STATE if stage.lstm.sequences else INPUTS + 1
    return INPUTS  # of embeddings, before an LSTM whose inputs need none


def begin_telling(writer: Writer, task: Task, *tensors: int) -> None:
    """Begin to look at the gradients of tensors, where the optimiser has moments."""
    for tensor in tensors if task.decays else ():
        writer.measure(told_register(task, tensor), value=begin_told(task, tensor))


def tell(writer: Writer, task: Task, *tensors: int) -> None:
    """Put what has been found into host memory: 2^14 less so many bits, twice, up to 15 each."""
    if not task.decays:
        return
    one = np.zeros((2, writer.layout.size), np.int8)
    one[1] = 1 << 6
    source, result = writer.constant(one), writer.allocate(TOLD_LINES)
    for tensor in tensors:
        for number, line in enumerate(result[::2]):
            value = -LEAST_TOLD - TOLD_BITS * number
            writer.measure(SPARE, first=told_register(task, tensor), value=value)
            writer.copy(source.start, line, 1, WHOLE, WIDE, exponent=SPARE)
        writer.write(writer.layout.told + TOLD_LINES * tensor * writer.layout.pitch, result)
    writer.free(source, result)


def rooms(writer: Writer, rows: int, task: Task) -> list[tuple[range, ...]]:
    """Return two rooms for so many rows of masters, to be used in turn."""
    return [tuple(writer.allocate(2 * rows) for _ in range(1 + task.beside)) for _ in range(2)]


def cut(room: tuple[range, ...], rows: int) -> tuple[range, ...]:
    """Return the lines that so many rows of masters take of a room."""
    return tuple(each[: 2 * rows] for each in room)
