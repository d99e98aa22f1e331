# SPDX-License-Identifier: Apache-2.0
"""Reads and updates the rows of an Embedding for words that are known when the program is made.

In the forward pass the row of each word is read from the masters. In the backward pass the words of
the batch are sorted, and C gradients at a time are the tile in the array. The vectors are lines
that add up the gradients of one word each: ones for these gradients, zeros elsewhere. A tile needs
a line for each word of the vocabulary from its first to its last word. So all tiles need about as
many lines as the vocabulary has words.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from systola.training.layout import RecurrencePlaces
from systola.training.stages import EMBEDDING
from systola.training.task import Exponent, Task
from systola.training.update import Masters, cut, rooms, update_shift
from systola.training.weights import narrow
from systola.training.writer import Writer

_TILES = 4
"""Number of tiles of gradients that are in the buffer at one time."""


class Words:
    """A writer that reads and updates the Embedding's rows of the words in a core's samples."""

    def __init__(self, writer: Writer, task: Task, words: NDArray[np.intp]) -> None:
        """Prepare to read rows. `words`: the words of the whole batch, (samples, steps)."""
        self._writer = writer
        self._task = task
        self._words = words
        self._tensor = len(task.stages) + EMBEDDING
        self._shape = writer.layout.shapes[self._tensor]
        self._selected: list[NDArray[np.int8]] = []

    def selected(self) -> NDArray[np.int8]:
        """Return the lines that select the gradients of words, in the program's order,
        (lines, C).
        """
        size = self._writer.layout.size
        return np.concatenate([np.zeros((0, size), np.int8), *self._selected])

    def _of_turn(self, task: Task) -> NDArray[np.intp]:
        """Return the words of a turn, (samples, steps), with word 0 for samples that are
        padding.
        """
        layout, share = self._writer.layout, task.share(self._writer.layout.size)
        found = np.zeros((layout.samples, self._words.shape[1]), np.intp)
        found[: len(share)] = self._words[share.start : share.stop]
        return found

    def rows(self, task: Task) -> None:
        """Write the rows of the words of all steps of a turn to host memory, as int8 inputs of the
        LSTM.
        """
        writer, layout, shape = self._writer, self._writer.layout, self._shape
        rows = shape.units * layout.samples
        places = [(writer.allocate(2 * rows), writer.allocate(rows)) for _ in range(2)]
        target = _recurrence(layout.recurrence).inputs
        table = layout.masters[self._tensor]
        for step, words in enumerate(self._of_turn(task).T.tolist()):
            masters, lines = places[step % 2]
            for unit in range(shape.units):
                for sample, word in enumerate(words):
                    at = 2 * (unit * layout.samples + sample)
                    host = table + 2 * (unit * shape.lines + word) * layout.pitch
                    writer.read(host, masters[at : at + 2])
            narrow(writer, masters.start, lines.start, rows)
            writer.write(target + step * rows * layout.pitch, lines)
        writer.free(*(each for pair in places for each in pair))

    def update(self) -> None:
        """Add the gradients of the samples of all turns to the rows (masters) of their words."""
        writer, task, shape = self._writer, self._task, self._shape
        layout, config, size = writer.layout, writer.config, writer.layout.size
        words, gradients = self._sorted()
        most = max(size, min(config.accumulator_rows // 2, config.buffer_lines // 32))
        most = min(most // size * size, shape.lines)
        zeros = writer.constant(np.zeros((size, size), np.int8))
        tiles = [writer.allocate(2 * size) for _ in range(_TILES)]
        selects = [writer.allocate(most) for _ in range(2)]
        places = rooms(writer, most, task)
        entry = update_shift(
            writer, task, self._tensor, task.master_bits[self._tensor], Exponent(0, 0)
        )
        turn = 0
        for unit in range(shape.units):
            selected = 0
            for first in range(0, shape.lines, most):
                lines = range(first, min(first + most, shape.lines))
                row = turn * (config.accumulator_rows // 2)
                room = cut(places[turn], len(lines))
                masters = Masters(writer, task, self._tensor, unit * shape.lines + first, room)
                masters.read_own()
                writer.multiply(selects[0].start, zeros.start, row, len(lines), 1, 1)
                begin, end = np.searchsorted(words, (lines.start, lines.stop))
                for number, at in enumerate(range(begin, end, size)):
                    here = slice(at, min(at + size, end))
                    tile, select = tiles[number % _TILES], selects[number % 2]
                    for place, host in enumerate(gradients[here, unit].tolist()):
                        writer.read(host, tile[2 * place : 2 * place + 2])
                    picked = self._select(words[here])
                    if not unit:
                        self._selected.append(picked)
                    select = select[: len(picked)]
                    writer.read(layout.selection + selected * layout.pitch, select)
                    selected += len(picked)
                    to = row + int(words[at]) - first
                    how = {"accumulate": 1, "wide_weights": 1}
                    writer.multiply(select.start, tile.start, to, len(picked), 1, 1, **how)
                masters.add_of_all(row, entry)
                masters.write()
                turn ^= 1
        writer.free(zeros, *tiles, *selects, *(each for pair in places for each in pair))

    def _select(self, words: NDArray[np.intp]) -> NDArray[np.int8]:
        """Return a line for each word from the first to the last word of a tile.

        A line has ones at the places where the tile has gradients of its word.
        """
        lines = np.zeros((words[-1] - words[0] + 1, self._writer.layout.size), np.int8)
        lines[words - words[0], np.arange(len(words))] = 1
        return lines

    def _sorted(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the words of this core in ascending order, and the places in host memory of their
        gradients.

        The places have a row for each word and a column for each block of units.
        """
        words: list[NDArray[np.intp]] = []
        places: list[NDArray[np.intp]] = []
        for turn in range(self._task.turns):
            layout = self._writer.of_turn(turn)
            there = len(replace(self._task, turn=turn).share(layout.size))
            found = self._of_turn(replace(self._task, turn=turn))[:there]
            sample, step = np.indices(found.shape)
            steps = self._words.shape[1]
            unit = np.arange(self._shape.units)[:, np.newaxis, np.newaxis]
            line = (unit * steps + step) * layout.samples + sample
            place = _recurrence(layout.recurrence).below + 2 * layout.pitch * line
            words.append(found.reshape(-1))
            places.append(place.reshape(self._shape.units, -1).T)
        every, hosts = np.concatenate(words), np.concatenate(places)
        order = np.argsort(every, kind="stable")
        return every[order], hosts[order]


def _recurrence(places: RecurrencePlaces | None) -> RecurrencePlaces:
    assert places
    return places
