# SPDX-License-Identifier: Apache-2.0
"""Reads the inputs of a stage for its update: transposed, and some blocks of one turn at a time.

An update is made in parts. A part is the weights for some blocks of inputs and some blocks of
units; the blocks of inputs are a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt

from systola.training.passes import portions
from systola.training.stages import takes_state
from systola.training.task import Task
from systola.training.turns.walk import inputs, spilled
from systola.training.writer import Writer


def part_blocks(writer: Writer, task: Task) -> int:
    """Return the largest number of blocks of inputs in a part of an update, and also of units.

    With as many blocks of inputs as of units, the array multiplies the most for each line from host
    memory. The accumulators have the sums of two parts. The masters, velocities and moments of two
    parts take at most half of the buffer. A core has velocities and moments for its own rows only.
    """
    config, cores = writer.config, task.cores
    room = config.buffer_lines * cores // (8 * (cores + task.beside))
    rows = min(config.accumulator_rows // 2, room)
    return max(1, isqrt(rows // config.cols))


def most_blocks(writer: Writer, task: Task, number: int) -> tuple[int, int]:
    """Return the largest numbers of blocks of inputs and of units in a part of a Dense's update."""
    shape, most = writer.layout.shapes[number], part_blocks(writer, task)
    return min(shape.inputs, most), min(shape.units, most)


@dataclass(frozen=True)
class Chunk:
    """A run of blocks of the inputs of a Dense that the update takes together."""

    blocks: range
    start: int
    """First row of the chunk, counted from the first row of its `passes.Portion`."""
    wide: bool
    """Whether the inputs of the chunk are int16, as ones for the bias after an LSTM are; else
    int8."""


def chunks_of(writer: Writer, task: Task, number: int) -> Iterator[Chunk]:
    """Yield the chunks into which the inputs of a Dense are cut for its update."""
    most, _ = most_blocks(writer, task, number)
    for portion in portions(writer.config, task, writer.layout.shapes[number], number):
        for part in even_parts(portion.count, most):
            blocks = range(portion.first + part.start, portion.first + part.stop)
            yield Chunk(blocks, part.start * writer.config.cols, portion.wide)


def even_parts(count: int, most: int) -> list[range]:
    """Split `count` blocks into the fewest parts of at most `most` blocks, all about
    equally long.
    """
    parts = -(-count // most)
    ends = [n * count // parts for n in range(parts + 1)]
    return [range(*pair) for pair in pairwise(ends)]


class Turned:
    """A reader of chunks of the inputs of a stage, transposed, [group of samples][input].

    Two chunks are in the buffer at a time. If a chunk is needed again, its transposed lines are
    kept in host memory. An update that cuts the units into several parts needs each chunk for each
    of these parts. The update of the last stage needs the chunks that the logits were made of.
    """

    def __init__(
        self, writer: Writer, task: Task, number: int, kept: set[int] | None = None
    ) -> None:
        """Prepare to read inputs. `kept`: places in host memory of chunks that another reader has
        transposed already.
        """
        most, most_units = most_blocks(writer, task, number)
        lines = most * writer.layout.samples
        self._writer = writer
        self._number = number
        self._rooms = [[writer.allocate(lines) for _ in range(2)] for _ in range(2)]
        self._turn = 0
        last = number == len(task.stages) - 1
        self._again = last or writer.layout.shapes[number].units > most_units
        self.kept = kept or set[int]()
        """Places in host memory of the chunks that have been transposed already."""
        self._ones = range(0)
        """Lines of the chunk with int16 ones for the bias, the same for all turns; empty if there
        is no such chunk."""
        if takes_state(task.stages, number):
            layout = writer.layout
            self._ones = writer.allocate(2 * layout.samples)
            writer.read_rows(layout.wide_ones[number], self._ones, 2 * layout.size, 0)

    def read(self, chunk: Chunk) -> int:
        """Read a chunk of the present turn into the buffer, transposed; return its first line."""
        if chunk.wide:
            return self._ones.start
        writer, layout, blocks = self._writer, self._writer.layout, chunk.blocks
        samples, size = layout.samples, layout.size
        self._turn ^= 1
        lines, turned = (each[: len(blocks) * samples] for each in self._rooms[self._turn])
        offset = blocks.start * samples * layout.pitch
        kept = spilled(layout).turned + offset
        if kept in self.kept:
            writer.read(kept, turned)
            return turned.start
        writer.read(inputs(layout, self._number) + offset, lines)
        for group in range(layout.groups):
            to = turned.start + group * len(blocks) * size
            writer.transpose(lines.start + group * size, to, len(blocks), samples)
        if self._again:
            writer.write(kept, turned)
            self.kept.add(kept)
        return turned.start

    def free(self) -> None:
        """Give the lines of the chunks back to the buffer."""
        self._writer.free(self._ones, *(lines for room in self._rooms for lines in room))
