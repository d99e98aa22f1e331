# SPDX-License-Identifier: Apache-2.0
"""Writes the update of a Dense by all turns (parts) of a batch; masters are read and
written once.
"""

from __future__ import annotations

from itertools import pairwise

from systola.training.task import Task
from systola.training.turns.chunks import Chunk, Turned, chunks_of, even_parts, most_blocks
from systola.training.turns.walk import each_turn, spilled
from systola.training.update import Masters, begin_telling, cut, rooms, tell
from systola.training.writer import AnyEntry, Writer


class Update:
    """A writer of the update of a Dense: some blocks of inputs times some blocks of units at a
    time.
    """

    def __init__(
        self, writer: Writer, task: Task, number: int, entry: AnyEntry, kept: set[int] | None
    ) -> None:
        """Prepare an update. `kept`: places in host memory of inputs, see chunks.Turned."""
        self._writer = writer
        self._task = task
        self._number = number
        self._entry = entry
        self._kept = kept

    def write(self) -> None:
        """Add the products of inputs and gradient of all turns to the masters (int16 weights)."""
        writer, task, number = self._writer, self._task, self._number
        layout = writer.layout
        size, shape = layout.size, layout.shapes[number]
        most_inputs, most_units = most_blocks(writer, task, number)
        turned = Turned(writer, task, number, self._kept)
        gradients = [writer.allocate(most_units * layout.samples) for _ in range(2)]
        places = rooms(writer, most_units * most_inputs * size, task)
        half, turn = writer.config.accumulator_rows // 2, 0
        before: list[tuple[Masters, int]] = []
        begin_telling(writer, task, number)
        for units in even_parts(shape.units, most_units):
            for chunk in chunks_of(writer, task, number):
                rows = len(chunk.blocks) * size
                line = units.start * shape.lines + chunk.blocks.start * size
                room = cut(places[turn], len(units) * rows)
                masters = Masters(writer, task, number, line, room, chunk.start, rows)
                pieces = [
                    (masters.some(some), half * turn + some.start)
                    for some in self._pieces(rows, len(units))
                ]
                for of_turn in each_turn(writer, task):
                    gradient, begins = gradients[of_turn.turn % 2], not of_turn.turn
                    self._product(chunk, units, turned, gradient, half * turn, first=begins)
                    # The array is busy with this product while the sums of the part before are
                    # added to some masters.
                    ends = (n * len(before) // task.turns for n in (of_turn.turn, of_turn.turn + 1))
                    self._add(before[slice(*ends)])
                    if begins:
                        for each, _ in pieces:
                            each.read_own()
                before = pieces
                turn ^= 1
        self._add(before)
        tell(writer, task, number)
        turned.free()
        writer.free(*gradients)
        writer.free(*places[0], *places[1])

    def _pieces(self, rows: int, units: int) -> list[range]:
        """Cut the rows of a part of the update into pieces.

        Pieces are updated between the products of the next part, some after the product of each
        turn.

        A part has `rows` rows of each of `units` blocks. Pieces are short, because the transposed
        inputs of the next turn must not wait long. In a pod there is one piece: each exchange
        between cores waits for the array, and a short piece would leave few rows to each core.
        """
        if self._task.cores > 1:
            return [range(units * rows)]
        count = min(max(1, self._task.turns // units), rows // self._writer.layout.size)
        ends = [n * rows // count for n in range(units * count + 1)]
        return [range(*pair) for pair in pairwise(ends)]

    def _product(
        self,
        chunk: Chunk,
        units: range,
        turned: Turned,
        gradient: range,
        row: int,
        *,
        first: bool,
    ) -> None:
        """Multiply the inputs and gradient of a turn; the sums, [block of units][input], go to
        accumulator rows from `row` on.
        """
        writer, layout = self._writer, self._writer.layout
        samples = layout.samples
        vectors = turned.read(chunk)
        place = spilled(layout).gradients[self._number] + units.start * samples * layout.pitch
        writer.read(place, gradient[: len(units) * samples])
        sizes = len(chunk.blocks) * layout.size, layout.groups, len(units)
        how = {"accumulate": int(not first), "wide_vectors": int(chunk.wide)}
        writer.multiply(vectors, gradient.start, row, *sizes, **how)

    def _add(self, masters: list[tuple[Masters, int]]) -> None:
        for each, row in masters:
            each.add_of_all(row, self._entry)
            each.write()
