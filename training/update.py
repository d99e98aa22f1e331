# SPDX-License-Identifier: Apache-2.0
"""The update of masters by sums in the accumulators."""

from __future__ import annotations

from dataclasses import dataclass, replace

from systola.arch.isa import Opcode, Operation
from systola.training.exchange import add_up, give_to_all, own_rows
from systola.training.loss import gradient_factor
from systola.training.masks import block_seed
from systola.training.numbers import multiplier, velocity_bits
from systola.training.passes import COUNTER_REGISTER
from systola.training.task import GRADIENT, SPARE, Exponent, Task
from systola.training.writer import ONE, UNIT, WIDE, Entry, Writer, shifted

_OWN = 15
"""What tells the counters of random rounding from those of masks: no stage has this number."""


@dataclass(frozen=True)
class Masters:
    """Some masters of a stage on their way through the buffer, with velocities where there are."""

    writer: Writer
    task: Task
    number: int
    line: int
    """The first of them, among the lines of the stage."""
    lines: tuple[range, range]
    """For masters and velocities; the latter may be none."""
    start: int = 0
    """The first row of them, of those that are one part of the update."""

    def some(self, rows: range) -> Masters:
        """Some rows of them."""
        pairs = slice(2 * rows.start, 2 * rows.stop)
        lines = self.lines[0][pairs], self.lines[1][pairs]
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
        places = [(layout.masters[number] + offset, self.lines[0])]
        if self.lines[1]:
            places.append((layout.velocities[number] + offset, self.lines[1]))
        return places

    def update(self, row: int, entry: Entry) -> None:
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

    def add_of_all(self, row: int, entry: Entry) -> None:
        """Add the sums of all cores to the rows of this core, and share the results."""
        for own in add_up(self.writer, self.task, row, self._rows):
            self.some(own).add(row + own.start, entry)
        for lines in self.lines:
            give_to_all(self.writer, self.task, lines)

    @property
    def _rows(self) -> int:
        return len(self.lines[0]) // 2

    def add(self, row: int, entry: Entry) -> None:
        """Adds the sums from a row on, by way of the velocities where there are some."""
        writer, (master, velocity) = self.writer, self.lines
        rows, how = len(master) // 2, {"wide": 1, "accumulate": 1, "exponent": SPARE}
        if not velocity:
            if self.task.stochastic:
                self._draw()
                how["stochastic"] = 1
            writer.activate(row, master.start, rows, entry, **how)
            return
        q, right = multiplier(self.task.momentum)
        decay = shifted(right, multiplier=q)
        writer.copy(velocity.start, velocity.start, rows, decay, WIDE)
        writer.activate(row, velocity.start, rows, entry, **how)
        writer.vector(
            *(Operation.ADD, master.start, velocity.start, master.start, rows, ONE, WIDE),
            scales=(UNIT, UNIT >> velocity_bits(self.task.momentum)),
        )

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


def update_shift(writer: Writer, task: Task, bits: int, inputs: Exponent) -> Entry:
    """Puts the shift of an update into SPARE; the entry has its multiplier.

    `bits`: fraction bits of the masters; `inputs`: of what the gradient is multiplied with.
    """
    q, right = multiplier(task.learning_rate * gradient_factor(task) / task.count)
    bits += velocity_bits(task.momentum) if task.momentum else 0
    value = inputs.value - bits + right
    writer.measure(SPARE, first=inputs.register, second=GRADIENT, value=value)
    return Entry(q)


def rooms(writer: Writer, rows: int, *, momentum: bool) -> list[tuple[range, range]]:
    """Two rooms for so many rows of masters, to be used in turn."""
    return [
        (writer.allocate(2 * rows), writer.allocate(2 * rows if momentum else 0)) for _ in range(2)
    ]


def cut(room: tuple[range, range], rows: int) -> tuple[range, range]:
    """What so many rows of masters take of a room."""
    masters, velocities = room
    return masters[: 2 * rows], velocities[: 2 * rows]
