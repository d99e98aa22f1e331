# SPDX-License-Identifier: Apache-2.0
"""Writes the update of the masters (int16 weights) by sums of gradients in the accumulators.

A row of masters has the weights of C units, a block, for one input; in the buffer it takes two
lines. A part of an update is the weights with sums in the accumulators at one time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from systola.arch.isa import Function, Opcode, Operation, Source
from systola.training.clip import largest_step
from systola.training.exchange import WHOLE, add_up, give_to_all, most_own_rows, own_rows
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
    StepLimit,
    Writer,
    shifted,
)

_OWN = 15
"""Number in the counters of random rounding, where counters for masks of Dropout have the number of
a stage. Stages are numbered from 0 to 14, so counters of the two kinds differ."""
_ADDED = {"wide": 1, "accumulate": 1, "exponent": SPARE}
TOLD_BITS = 15
"""Largest number of bits that one int16 number in host memory can report. Two such numbers report
the bits of a tensor's largest gradient."""


@dataclass(frozen=True)
class CutEntry(Entry):
    """A parameter entry of an update in which each step of a weight is cut off at a limit."""

    most: int = 0
    """Largest magnitude of a step of a weight, as an int16 code."""


@dataclass(frozen=True)
class Masters:
    """Some rows of a tensor's masters in the buffer during an update, with velocities or moments.

    The rows are of one block of units, or of several blocks, block by block.
    """

    writer: Writer
    task: Task
    number: int
    line: int
    """Number of the first row of the first block, counted from the first row of the tensor."""
    lines: tuple[range, ...]
    """Buffer lines of the masters, then of velocities or moments. Velocities and moments are for
    the rows of this core only."""
    start: int = 0
    """Number of the first row of each block, counted from the first row of its `passes.Portion`."""
    of_block: int = sys.maxsize
    """Number of rows of each block of units in this part of the update."""
    skipped: int = 0
    """Number of rows of the part, counted from row `line` on, that come before these masters."""

    def own(self) -> Iterator[tuple[range, Masters]]:
        """Yield each run of rows that this core updates, with the masters of the run."""
        taken = 0
        for rows in own_rows(self.task, self._rows):
            beside = (each[2 * taken : 2 * (taken + len(rows))] for each in self.lines[1:])
            found = self._alone().some(rows)
            yield rows, replace(found, lines=(*found.lines, *beside))
            taken += len(rows)

    def _alone(self) -> Masters:
        """Return the same masters without velocities and moments."""
        return replace(self, lines=self.lines[:1])

    def some(self, rows: range) -> Masters:
        """Return the masters of some of the rows.

        For masters with velocities or moments this works only if this core updates all rows.
        """
        pairs = slice(2 * rows.start, 2 * rows.stop)
        lines = tuple(each[pairs] for each in self.lines)
        return replace(self, lines=lines, skipped=self.skipped + rows.start)

    def by_block(self) -> Iterator[tuple[int, Masters]]:
        """Yield, for each block of units, the number of its first row among all rows here, and its
        masters.
        """
        apart, first = self.writer.layout.shapes[self.number].lines, 0
        while first < self._rows:
            block, skipped = divmod(self.skipped + first, self.of_block)
            count = min(self.of_block - skipped, self._rows - first)
            line, start = self.line + block * apart + skipped, self.start + skipped
            found = self.some(range(first, first + count))
            yield first, replace(found, line=line, start=start, skipped=0)
            first += count

    def read(self) -> None:
        """Read the masters, and their velocities or moments, from host memory."""
        for host, lines in self._places():
            self.writer.read(host, lines)

    def write(self) -> None:
        """Write the masters back to host memory, and the velocities or moments of this
        core's rows.
        """
        for host, lines in self._alone()._places():
            self.writer.write(host, lines)
        for _, own in self.own():
            for host, lines in own._places(beside=True):
                self.writer.write(host, lines)
            for _, block in own.by_block():
                rows = range(block.line, block.line + block._rows)
                self.writer.owned.append((self.number, rows))

    def _places(self, *, beside: bool = False) -> Iterator[tuple[int, range]]:
        """Yield places in host memory, each with the buffer lines for its content.

        The places are of masters, velocities and moments; with `beside`, masters are left out.
        """
        layout = self.writer.layout
        tensors = (layout.masters, *layout.beside)[beside : len(self.lines)]
        for _, block in self.by_block():
            offset = 2 * block.line * layout.pitch
            for tensor, lines in zip(tensors, block.lines[beside:], strict=True):
                yield tensor[self.number] + offset, lines

    def update(self, row: int, entry: AnyEntry) -> None:
        """Read the masters, add the sums of all cores from accumulator row `row` on, and write the
        masters back.

        Each core updates its own rows, and gives their masters to all other cores.
        """
        self.read_own()
        self.add_of_all(row, entry)
        self.write()

    def read_own(self) -> None:
        """Read the masters of this core's rows, with their velocities or moments, from host
        memory.
        """
        for _, own in self.own():
            own.read()

    def add_of_all(
        self, row: int, entry: AnyEntry, meanwhile: Callable[[], object] | None = None
    ) -> None:
        """Add the sums of all cores to the masters of this core's rows, and send these masters to
        all cores.

        No other core needs the velocities or moments of these rows. `meanwhile` is called at most
        once, and only if there are moments. The call comes at the point of the update where the
        array has the most time to multiply.
        """
        add_up(self.writer, self.task, row, self._rows)
        for rows, own in self.own():
            own.add(row + rows.start, entry, meanwhile)
            meanwhile = None
        give_to_all(self.writer, self.task, self.lines[0])

    @property
    def _rows(self) -> int:
        return len(self.lines[0]) // 2

    def add(self, row: int, entry: AnyEntry, meanwhile: Callable[[], object] | None = None) -> None:
        """Add the sums from accumulator row `row` on to the masters.

        Velocities or moments, if the optimiser has them, are updated, too.
        """
        if self.task.decays:
            most = adapted_rows(self.writer.config)
            for first in range(0, self._rows, most):
                rows = range(first, min(first + most, self._rows))
                self.some(rows)._adapt(row + first, self.task.decays, entry, meanwhile)
                meanwhile = None
        elif isinstance(entry, CutEntry):
            for first, block in self.by_block():
                block._add_cut(row + first, entry)
        elif self.task.momentum:
            self._add_momentum(row, entry)
        elif self.task.stochastic:
            for first, block in self.by_block():
                block._draw()
                at = row + first, block.lines[0].start, block._rows
                self.writer.activate(*at, entry, **_ADDED, stochastic=1)
        else:
            self.writer.activate(row, self.lines[0].start, self._rows, entry, **_ADDED)

    def _add_cut(self, row: int, entry: CutEntry) -> None:
        """Write the steps of the weights, limit their magnitude and add them to the masters, some
        rows at a time.

        All rows must be of one block of units. Steps take buffer lines of their own.
        """
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
        """Add steps in the buffer to the masters, through the velocities if there are any."""
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
        """Raise the reported bits of the tensor's largest gradient if these sums have more, see
        `moments.raised`.
        """
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
        """Update moments and masters of these rows, as `systola.training.moments` describes."""
        writer, rows, how = self.writer, self._rows, {"wide": 1, "exponent": SPARE}
        master, *firsts, root = (each.start for each in self.lines)
        places = writer.allocate(2 * rows), writer.allocate(2 * rows)
        gradient, ratio = (each.start for each in places)
        gradients, ratios, roots = (
            StepEntry(self.number, name) for name in ("gradient_entry", "ratio_entry", "root_entry")
        )
        cut_off = self.task.clip_value is not None
        for first in firsts:
            more = StepEntry(self.number, "first_entry")
            if cut_off:
                writer.activate(row, ratio, rows, more, **how)
                self._cut(ratio, "first_limit")
                writer.vector(Operation.COPY, ratio, 0, first, rows, ONE, WIDE, accumulate=1)
            else:
                writer.activate(row, first, rows, more, **how, accumulate=1)
        writer.activate(row, gradient, rows, gradients, **how)
        if cut_off:
            self._cut(gradient, "gradient_limit")
        # At about this Measure the array begins its next product, and so reads the buffer. The
        # Measure and the QUOTIENT after it have a single bank conflict with the array. Other
        # instructions in their place would have many.
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

    def _cut(self, codes: int, name: str) -> None:
        """Limit the magnitude of these rows' int16 codes, from line `codes` on, by the limit `name`
        of a MomentStep.
        """
        limit = StepLimit(self.number, name)
        at = (codes, 0, codes, self._rows, ONE, WIDE)
        self.writer.vector(Operation.COPY, *at, limit=limit)

    def _draw(self) -> None:
        """Set the generators of random rounding to the place of these rows in their part of the
        update.

        The generators then go on as if they had drawn for all earlier rows of the part. In a pod
        other cores update some of these rows.
        """
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
    """Put the shift of an update into exponent register SPARE; return the parameter entry with the
    update's multiplier.

    `bits`: fraction bits of the masters. `inputs`: fraction bits of the inputs that the gradient is
    multiplied with.
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
    """Return the exponent register that collects the bits of a tensor's largest gradient.

    Nothing else uses this register during the update of the tensor.
    """
    if branched(task.stages):
        return _told_of_branches(task, tensor)
    last = len(task.stages) - 1
    lstm = task.stages[0].lstm
    if lstm and lstm.sequences:
        # Register INPUTS has the fraction bits of the first LSTM's states. Register STATE is free
        # when the first LSTM is updated.
        own = {0: STATE, recurrent_tensor(task.stages, 1): INPUTS + 2}
        if tensor in own:
            return own[tensor]
    if tensor > last:
        return INPUTS + tensor - last
    return SHIFT if tensor == last else INPUTS + tensor


def _told_of_branches(task: Task, tensor: int) -> int:
    """Return the exponent register that collects the bits of a tensor's largest gradient.

    The network has branches. The register is one that the update of the tensor leaves free:

    - In a stage, register INPUTS has the fraction bits of the inputs, and register INPUTS + 1 has
      the fraction bits of the units.
    - In an LSTM, register INPUTS + 1 is in use only if the LSTM gives all states.
    """
    count = len(task.stages)
    if tensor < count:
        return INPUTS + 2
    for number, stage in enumerate(task.stages):
        if stage.lstm and tensor == recurrent_tensor(task.stages, number):
            return STATE if stage.lstm.sequences else INPUTS + 1
    return INPUTS  # the first LSTM takes embeddings without a register


def begin_telling(writer: Writer, task: Task, *tensors: int) -> None:
    """Set the exponent registers for the tensors' largest gradients to the least number of bits.

    For an optimiser without moments nothing is written, as only moments need these numbers.
    """
    for tensor in tensors if task.decays else ():
        writer.measure(told_register(task, tensor), value=begin_told(task, tensor))


def tell(writer: Writer, task: Task, *tensors: int) -> None:
    """Write the numbers of bits of the tensors' largest gradients to host memory, tensor by tensor.

    A number of bits is written as two int16 numbers. Each is 2^14, shifted right by up to 15 of the
    bits. For an optimiser without moments nothing is written.
    """
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
    """Return two regions of the buffer with room for `rows` rows of masters each, to be used in
    turn.

    A region has lines for the masters, and for the velocities or moments of this core's rows.
    """
    own = most_own_rows(task, rows)
    return [
        (writer.allocate(2 * rows), *(writer.allocate(2 * own) for _ in range(task.beside)))
        for _ in range(2)
    ]


def cut(room: tuple[range, ...], rows: int) -> tuple[range, ...]:
    """Return the lines of one region of `rooms` that `rows` rows of masters take."""
    return tuple(each[: 2 * rows] for each in room)
