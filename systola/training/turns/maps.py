# SPDX-License-Identifier: Apache-2.0
"""Writes a Conv2D for all turns (parts) of a batch, which have their maps in host memory.

Masks and gradients of each turn are in host memory, too. Maps of a turn are stored as [block of
channels][sample][pixel]. Maps that one Dense alone takes are stored as rows,
[pixel][block][sample]. Sums are written twice: first they are measured, then units are made of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from systola.arch.isa import Source
from systola.training.exchange import agree
from systola.training.maps import Maps, MapSums
from systola.training.maps_backward import BelowMaps, MapsBackward, update_maps
from systola.training.moves import unflattened
from systola.training.numbers import MASTER_SHIFT
from systola.training.passes import Pass, UnitScale
from systola.training.task import GRADIENT, SHIFT, Task
from systola.training.turns.results import leave
from systola.training.turns.walk import each_turn, inputs, spilled
from systola.training.update import begin_telling, tell
from systola.training.writer import AnyEntry, Entry, Writer


class TurnedMaps:
    """A writer of the forward pass and the backward pass of stages with a Conv2D."""

    def __init__(self, writer: Writer, task: Task, left: Pass, *, train: bool) -> None:
        self._writer = writer
        self._task = task
        self._left = left
        self._train = train
        self._masks: dict[int, int] = {}
        """Number of lines of the mask of each Conv2D that has a mask, by number of the stage."""
        self._routes: dict[int, list[int]] = {}
        """Numbers of lines of the marks of a pooling, one for each tap, by number of the stage. The
        marks of a tap show in which windows this tap is the largest."""

    def forward(self, number: int) -> None:
        """Write the forward pass of a Conv2D for all turns of the batch."""
        writer, task, shape = self._writer, self._task, self._writer.layout.shapes[number]
        scale = UnitScale(writer, task, self._left, number, train=self._train)
        sums = MapSums(writer, task, number, self._left.inputs[number])
        x = writer.allocate(shape.given * writer.layout.samples)
        for of_turn in () if scale.known else each_turn(writer, task):
            writer.read(inputs(writer.layout, number), x)
            sums.measure(x, len(of_turn.share(writer.layout.size)), scale)
        scale.end()
        for of_turn in each_turn(writer, task):
            writer.read(inputs(writer.layout, number), x)
            maps = Maps(writer, of_turn, self._left, train=self._train)
            units, mask = maps.activated(number, sums, scale, x)
            made = maps.shaped(number, units, mask)
            leave(writer, task, number, made.units, self._left.inputs[-1])
            if made.mask and self._train:
                self._masks[number] = len(made.mask)
                writer.write(spilled(writer.layout).masks[number], made.mask)
            self._routes[number] = [len(each) for each in made.routes]
            for place, lines in self._places(number, made.routes):
                writer.write(place, lines)
            writer.free(made.mask or range(0), *made.routes)
        sums.free()
        writer.free(x)

    def _places(self, number: int, routes: list[range]) -> Iterator[tuple[int, range]]:
        """Yield the place in host memory and the buffer lines of each tap's marks of a pooling, for
        the present turn.
        """
        layout = self._writer.layout
        place = spilled(layout).routes[number]
        for lines in routes:
            yield place, lines
            place += len(lines) * layout.pitch

    def below(
        self,
        number: int,
        scratch: int,
        scale: tuple[int, int],
        leave_below: Callable[[range], None],
    ) -> None:
        """Write the gradient of the inputs of a Conv2D for all turns of the batch.

        Exponent register `scratch` is overwritten. `scale`: scale of the gradient, see
        `passes.gradient_scale`. `leave_below` writes the lines of a turn's gradient to host memory.
        """
        writer, task, layout = self._writer, self._task, self._writer.layout
        lines = layout.samples * layout.shapes[number].units * layout.shapes[number].made
        gradient, sums = writer.allocate(lines), BelowMaps(writer, task, number)
        q, lost = scale
        writer.measure(SHIFT, value=-8)
        for _ in each_turn(writer, task):
            writer.read(spilled(writer.layout).gradients[number], gradient)
            sums.take(gradient)
            for part in sums.parts:
                sums.multiply(part)
                rows = len(part) * sums.rows
                writer.measure(SHIFT, Source.ACCUMULATORS, rows=rows, bits=8, first=SHIFT)
        agree(writer, task, scratch)
        bits = task.master_bits[number] - MASTER_SHIFT - lost
        writer.measure(GRADIENT, first=GRADIENT, third=SHIFT, value=bits)
        for _ in each_turn(writer, task):
            writer.read(spilled(writer.layout).gradients[number], gradient)
            sums.take(gradient)
            below = writer.allocate(sums.lines)
            for part in sums.parts:
                sums.multiply(part)
                for row, line, rows in sums.places(part):
                    writer.activate(row, below.start + line, rows, Entry(q), exponent=SHIFT)
            leave_below(below)
        sums.free()
        writer.free(gradient)

    def below_rows(self, number: int) -> None:
        """Write the gradient of a stage's sums for all turns, if a Dense takes the maps of the
        stage.

        This gradient replaces the gradient of the stage's units in host memory, which the Dense has
        written as rows.
        """
        writer, layout, shape = (
            self._writer,
            self._writer.layout,
            self._writer.layout.shapes[number],
        )
        for _ in each_turn(writer, self._task):
            maps = writer.allocate(layout.samples * shape.units * shape.left)
            writer.read(spilled(writer.layout).gradients[number], maps)
            if shape.left > 1:
                rows, maps = maps, writer.allocate(len(maps))
                unflattened(writer, rows.start, maps, shape.units, shape.left)
                writer.free(rows)
            self.through(number, maps)

    def through(self, number: int, gradient: range) -> None:
        """Write the gradient of a stage's sums for a turn to host memory, from the gradient of its
        units.
        """
        writer, mask = self._writer, None
        places = spilled(writer.layout)
        if lines := self._mask_lines(number):
            mask = writer.allocate(lines)
            writer.read(places.masks[number], mask)
        routes = [writer.allocate(lines) for lines in self._routes.get(number, [])]
        for place, lines in self._places(number, routes):
            writer.read(place, lines)
        below = MapsBackward(writer, self._task).through(number, gradient, mask, routes)
        writer.write(places.gradients[number], below)
        writer.free(below)

    def _mask_lines(self, number: int) -> int:
        """Return the number of lines of the mask of a stage that makes maps; 0 if it has no
        mask.
        """
        stage = self._task.stages[number]
        if stage.join and (stage.relu or stage.rate):
            return self._writer.layout.result_lines(self._task.stages, number + 1)
        return self._masks.get(number, 0)

    def update(self, number: int, entry: AnyEntry) -> None:
        """Add the products of inputs and gradient of all turns to a Conv2D's masters (int16
        weights).
        """
        writer, task = self._writer, self._task
        begin_telling(writer, task, number)
        loads = _Turned(writer, task, number)
        update_maps(writer, task, number, self._left.inputs[number], entry, loads)
        tell(writer, task, number)
        loads.free()


class _Turned:
    """A source of the maps for the update of a Conv2D, which reads one turn after the other.

    For a Conv2D all channels of a turn are in the buffer. For a DepthwiseConv2D only two blocks of
    channels are in the buffer, of which one can be read while the array uses the other.
    """

    def __init__(self, writer: Writer, task: Task, number: int) -> None:
        layout, shape = writer.layout, writer.layout.shapes[number]
        lines = layout.samples * shape.given, layout.samples * shape.units * shape.made
        self._writer = writer
        self._task = task
        self._number = number
        parts = shape.channels if task.stages[number].depthwise else 1
        self._rooms = [
            [writer.allocate(count // parts) for count in lines] for _ in range(min(2, parts))
        ]

    def all(self) -> Iterator[tuple[range, range]]:
        """Yield the lines of inputs and gradient of all channels, for each turn."""
        yield from self._block(0)

    def block(self, block: int) -> Iterator[tuple[range, range]]:
        """Yield the lines of inputs and gradient of one block of channels, for each turn."""
        yield from self._block(block)

    def gradient(self, block: int) -> Iterator[range]:
        """Yield the lines of the gradient of one block of channels, for each turn."""
        for _, gradient in self._block(block, inputs_too=False):
            yield gradient

    def _block(self, block: int, *, inputs_too: bool = True) -> Iterator[tuple[range, range]]:
        writer, number = self._writer, self._number
        for _ in each_turn(writer, self._task):
            layout = writer.layout
            self._rooms.reverse()
            x, gradient = self._rooms[0]
            if inputs_too:
                writer.read(inputs(layout, number) + block * len(x) * layout.pitch, x)
            place = spilled(layout).gradients[number] + block * len(gradient) * layout.pitch
            writer.read(place, gradient)
            yield x, gradient

    def free(self) -> None:
        """Give the lines of the maps back to the buffer."""
        self._writer.free(*(lines for room in self._rooms for lines in room))
