# SPDX-License-Identifier: Apache-2.0
"""Brings weights into the buffer as the array takes them: int8, from masters in host memory."""

from __future__ import annotations

from systola.training.numbers import MASTER_SHIFT
from systola.training.writer import NARROWING, Writer, shifted


class Columns:
    """A reader of the int8 weights of a stage, one block of units after the other.

    A block has a line for each input. At most two blocks are in the buffer at one time.
    """

    def __init__(self, writer: Writer, number: int) -> None:
        lines = writer.layout.shapes[number].lines
        self._writer = writer
        self._number = number
        self._masters = writer.allocate(2 * lines)
        self._narrow = [writer.allocate(lines) for _ in range(2)]

    def read(self, block: int) -> None:
        """Read the masters of a block of units, and make int8 weights of them."""
        writer, layout = self._writer, self._writer.layout
        lines = layout.shapes[self._number].lines
        writer.read(layout.masters[self._number] + 2 * block * lines * layout.pitch, self._masters)
        narrow(writer, self._masters.start, self[block], lines)

    def __getitem__(self, block: int) -> int:
        """Return the first line of a block that has been read."""
        return self._narrow[block % 2].start

    def free(self) -> None:
        """Give the lines of masters and weights back to the buffer."""
        self._writer.free(self._masters, *self._narrow)


class Turning:
    """A reader that transposes the int8 weights of a block of inputs: a block has a line for each
    unit.
    """

    def __init__(self, writer: Writer, number: int) -> None:
        self.lines = writer.layout.shapes[number].units * writer.layout.size
        """Number of lines of a block of transposed weights."""
        self._writer = writer
        self._number = number
        self._masters = writer.allocate(2 * self.lines)
        self._narrow = writer.allocate(self.lines)

    def read_to(self, block: int, line: int) -> None:
        """Read the weights of a block of inputs, transposed, to the buffer from line `line` on."""
        writer, layout = self._writer, self._writer.layout
        shape, size = layout.shapes[self._number], layout.size
        # Each block of units has lines for this block of inputs; these lines are read one after the
        # other.
        host = layout.masters[self._number] + 2 * block * size * layout.pitch
        writer.read_rows(host, self._masters, 2 * size, 2 * shape.lines)
        narrow(writer, self._masters.start, self._narrow.start, self.lines)
        writer.transpose(self._narrow.start, line, shape.units, size)

    def free(self) -> None:
        """Give the lines of masters and weights back to the buffer."""
        self._writer.free(self._masters, self._narrow)


class Turned(Turning):
    """A reader of the transposed weights of a stage, one block of inputs after the other.

    A block has a line for each unit. At most two blocks are in the buffer at one time.
    """

    def __init__(self, writer: Writer, number: int) -> None:
        super().__init__(writer, number)
        self._turned = [writer.allocate(self.lines) for _ in range(2)]

    def read(self, block: int) -> int:
        """Read the transposed weights of a block of inputs; return their first line."""
        turned = self._turned[block % 2].start
        self.read_to(block, turned)
        return turned

    def free(self) -> None:
        """Give the lines of masters and weights back to the buffer."""
        super().free()
        self._writer.free(*self._turned)


def all_turned(writer: Writer, number: int) -> range:
    """Bring all int8 weights of a stage, transposed, to the buffer, [block of inputs][unit]."""
    layout = writer.layout
    shape = layout.shapes[number]
    result = writer.allocate(shape.units * shape.lines)
    if shape.units > 1:
        turned = Turned(writer, number)
        for block in range(shape.inputs):
            turned.read_to(block, result.start + block * shape.units * layout.size)
        turned.free()
        return result
    masters, lines = writer.allocate(2 * shape.lines), writer.allocate(shape.lines)
    writer.read(layout.masters[number], masters)
    narrow(writer, masters.start, lines.start, shape.lines)
    writer.transpose(lines.start, result.start, shape.inputs, layout.size)
    writer.free(masters, lines)
    return result


def all_narrow(writer: Writer, number: int) -> range:
    """Bring all int8 weights of a stage to the buffer in the masters' order: [block of
    units][input].
    """
    layout = writer.layout
    shape = layout.shapes[number]
    result = writer.allocate(shape.units * shape.lines)
    masters = writer.allocate(2 * shape.lines)
    for block in range(shape.units):
        host = layout.masters[number] + block * len(masters) * layout.pitch
        writer.read(host, masters)
        narrow(writer, masters.start, result.start + block * shape.lines, shape.lines)
    writer.free(masters)
    return result


def all_tiles(writer: Writer, number: int) -> range:
    """Bring all int8 weights of a tensor, except biases, to the buffer in the masters' order.

    The order is [block of units][input].
    """
    layout = writer.layout
    shape = layout.shapes[number]
    blocks = 2 * shape.bias
    masters, result = (writer.allocate(shape.units * lines) for lines in (blocks, shape.bias))
    writer.read_rows(layout.masters[number], masters, blocks, 2 * shape.lines)
    narrow(writer, masters.start, result.start, len(result))
    writer.free(masters)
    return result


def biases(writer: Writer, number: int, block: int, lines: range) -> None:
    """Read the masters of the biases of a block of units to `lines`, which are C pairs of lines."""
    layout = writer.layout
    shape = layout.shapes[number]
    first = 2 * (block * shape.lines + shape.bias)
    writer.read(layout.masters[number] + first * layout.pitch, lines)


def narrow(writer: Writer, masters: int, weights: int, rows: int) -> None:
    """Write int8 weights, rounded from int16 masters."""
    writer.copy(masters, weights, rows, shifted(MASTER_SHIFT - 1), NARROWING)
