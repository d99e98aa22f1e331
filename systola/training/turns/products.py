# SPDX-License-Identifier: Apache-2.0
"""Writes products of a stage's inputs, or gradient, with its weights, for all turns (parts) of a
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from systola.training.errors import NoRoomError
from systola.training.layout import Layout
from systola.training.task import Task
from systola.training.turns.sums import FEW_BLOCKS, MOST_INPUTS, Accumulated, Keeper, Sums
from systola.training.turns.tiles import Tiles
from systola.training.turns.walk import each_turn
from systola.training.writer import Writer


class Products:
    """A writer of a product of lines and weights for all turns of a batch. In each turn `inputs`
    blocks give `results` blocks.
    """

    def __init__(
        self,
        writer: Writer,
        task: Task,
        place: Callable[[Layout], int],
        sizes: tuple[int, int],
        tiles: Tiles,
        *,
        wide_bias: bool = False,
    ) -> None:
        """Prepare a product of lines, [block][sample], with weights that `tiles` reads.

        `place`: a function from the layout of a turn to the place of its lines in host memory.
        `sizes`: numbers of blocks of inputs and of results. With `wide_bias` the last block of
        lines, ones for the bias, is int16, as after an LSTM; other lines are int8.
        """
        samples = writer.layout.samples
        self.inputs, self.results = sizes
        self._writer = writer
        self._task = task
        self._place = place
        self._tiles = tiles
        self._wide = wide_bias
        self._blocks = self.inputs + wide_bias
        self._rooms = [writer.allocate(self._blocks * samples) for _ in range(2)]
        self._slots = writer.config.accumulator_rows // samples
        if self._slots < 2:
            raise NoRoomError(
                f"the accumulators of '{writer.config.name}' have no room for {2 * samples} sums"
            )

    def once(self) -> Iterator[tuple[Task, int, Accumulated]]:
        """Write the product once; for each block of each turn yield (task of the turn, block's
        number, sums).

        A block is yielded after the instructions for the next block of the same turn, so that the
        array has work meanwhile.
        """
        for task, block, row in self._all():
            yield task, block, Accumulated(self._writer, row, self._writer.layout.samples)

    def twice(
        self,
        measure: Callable[[Task, int, Accumulated], range],
        end: Callable[[], None],
        *,
        masked: bool = False,
    ) -> Iterator[tuple[Task, int, Sums]]:
        """Write the product a first time for `measure`, and a second time to yield its blocks.

        `measure` is called with the task of a turn, a block's number and the block's sums, and
        `end` after the last sums. Then all blocks are yielded as by `once`. If `masked`, `measure`
        returns the lines of the block's mask.

        With more than FEW_BLOCKS blocks but fewer than MOST_INPUTS inputs, the sums are kept in
        host memory, and there is no second product. If `masked`, the kept sums are multiplied with
        the mask.
        """
        few = self.inputs <= FEW_BLOCKS
        again = few or self.inputs * self._writer.layout.size >= MOST_INPUTS
        keeper = None if again else Keeper(self._writer, masked=masked)
        for task, block, sums in self.once():
            mask = measure(task, block, sums)
            if keeper:
                keeper.keep(block, sums.row, mask if masked else range(0))
        if keeper:
            keeper.end()
        end()
        if not keeper:
            yield from self.once()
            return
        for task in each_turn(self._writer, self._task):
            for block in range(self.results):
                yield task, block, keeper.kept(block)
        keeper.free()

    def _all(self) -> Iterator[tuple[Task, int, int]]:
        writer, samples, results = self._writer, self._writer.layout.samples, self.results
        last, number = self._task.turns - 1, 0
        self._read(0, range(self._blocks))
        tile = self._tiles.read(0)
        for task in each_turn(writer, self._task):
            lines = self._rooms[task.turn % 2]
            before: tuple[Task, int, int] | None = None
            for block in range(results):
                row = number % self._slots * samples
                self._multiply(lines.start, tile, row)
                number += 1
                if block + 1 < results or task.turn < last:
                    tile = self._tiles.read((block + 1) % results)
                if task.turn < last:
                    # A part of the lines of the next turn is read with each block.
                    ends = (n * self._blocks // results for n in (block, block + 1))
                    self._read(task.turn + 1, range(*ends))
                if before:
                    yield before
                before = task, block, row
            if before:
                yield before

    def _multiply(self, line: int, tile: int, row: int) -> None:
        writer, samples, size = self._writer, self._writer.layout.samples, self._writer.layout.size
        if not self._wide:
            writer.multiply(line, tile, row, samples, self.inputs, 1)
            return
        narrow = self.inputs - 1
        writer.multiply(line, tile, row, samples, narrow, 1)
        at = line + narrow * samples, tile + narrow * size, row, samples, 1, 1
        writer.multiply(*at, accumulate=1, wide_vectors=1)

    def _read(self, turn: int, blocks: range) -> None:
        """Read some blocks of the lines of a turn into the buffer."""
        writer, layout = self._writer, self._writer.of_turn(turn)
        lines = self._rooms[turn % 2][blocks.start * layout.samples : blocks.stop * layout.samples]
        first = blocks.start * layout.samples * layout.pitch
        writer.read(self._place(layout) + first, lines)

    def free(self) -> None:
        """Give all lines of the product back to the buffer, the lines of the weights included."""
        self._writer.free(*self._rooms)
        self._tiles.free()
