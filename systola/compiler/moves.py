# SPDX-License-Identifier: Apache-2.0
"""Moves of elements: operations that fill each element of a result with an element of their source.

A move is described by its origin, an array of the result's size. For each element of the result,
the origin has the position of an element of the source, or -1 for a fill value. Positions count the
elements of a value from 0, with the last dimension fastest. From the origin the compiler chooses
the cheapest operations that make the move on the machine. A move that would take too many
operations stays on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Operation, Reduction, Rounding
from systola.compiler.errors import ModelError
from systola.compiler.host_stage import HostStage, Rearrange, View
from systola.compiler.operations import (
    Binary,
    Concatenation,
    Convolution,
    Node,
    Pooling,
    Requantisation,
    Reshape,
    Scale,
    Slice,
    Value,
    Window,
    identity,
    scalar_requantisation,
)
from systola.compiler.partition import Item
from systola.compiler.shape_checks import MOST_ELEMENTS

MOST_PARTS = 64
"""Largest number of parts into which a move on the machine may cut a value."""
MOST_WEIGHTS = 1 << 22
"""Largest number of weights of a convolution that only moves channels. Nearly all of its weights
are 0.
"""
MAX_TOP, MAX_LEFT, MAX_KERNEL = 2047, 127, 255
MAX_STRIDE, MAX_SIDE = 255, 4095
"""Largest operands of Set_Config_Window: row and column of the first window, kernel, stride, and
height or width of a map.
"""

Positions = NDArray[np.int64]


def check_size(*values: Value) -> None:
    """Raise ModelError if one of the values has more elements than a move may have.

    The limit bounds memory: a move is described by an array with an origin for each element.
    """
    for value in values:
        if value.pixels * value.channels > MOST_ELEMENTS:
            raise ModelError(f"moving a value of shape {value.shape} is not supported")


def moved(
    operator: str, source: Value, result: Value, origin: Positions, fill: int = 0
) -> list[Item]:
    """Return the operations that move elements from `source` to `result`, a value of the same type.

    For each element of the result, `origin` has a position in the source, or -1 for the value
    `fill`. The shape of `origin` does not matter. Raises ModelError if `origin` has another number
    of elements than the result, or if a value is too large.
    """
    check_size(source, result)
    size = source.pixels * source.channels
    if origin.size != result.pixels * result.channels:
        raise ModelError(f"it makes shape {result.shape} of {origin.size} elements")
    flat = origin.reshape(-1)
    if flat.size == size and np.array_equal(flat, np.arange(size)):
        return [_view(operator, source, result)]
    if source.dtype == "int8":
        items = on_the_machine(operator, source, result, flat, fill)
        if items is not None:
            return items
    function = Rearrange(flat, fill)
    return [HostStage(operator=operator, sources=(source,), result=result, function=function)]


def repacked(operator: str, source: Value, result: Value) -> list[Item]:
    """Return the operations that give `source` the shape of `result`, and move its elements to the
    buffer lines that this shape needs.

    The elements keep their order.
    """
    order = np.arange(source.pixels * source.channels)
    items = on_the_machine(operator, source, result, order, 0)
    if items is not None:
        return items
    return [HostStage(operator=operator, sources=(source,), result=result, function=View())]


def on_the_machine(
    operator: str, source: Value, result: Value, origin: Positions, fill: int
) -> list[Item] | None:
    """Return the operations that make a move of int8 on the machine.

    Returns None if the machine cannot make the move, or if it would take too many operations.
    """
    mover = _Mover(operator, source, result, fill)
    positions = origin.reshape(result.pixels, result.channels)
    separate = _separate(positions, source.channels)
    done = mover.separate(*separate) if separate else mover.pieces(positions)
    return mover.finished() if done else None


def check_moves(source: int, result: int) -> None:
    """Raise ModelError if a convolution that only moves channels would have too many weights.

    `source` and `result` are the numbers of channels of its source and result.
    """
    if source * result > MOST_WEIGHTS:
        raise ModelError(f"moving {source} channels to {result} is not supported")


def gathered(
    operator: str,
    source: Value,
    result: Value,
    channels: Positions,
    fill: int,
    window: Window | None = None,
) -> Convolution:
    """Return a convolution that only moves: channel c of the result is channel `channels`[c] of the
    source.

    Where `channels`[c] is -1, channel c of the result has the value `fill`. A `window`, which must
    have a single tap, also moves pixels. Without a window all pixels stay in their places.
    """
    weights = np.zeros((1, 1, source.channels, len(channels)), np.int8)
    there = channels >= 0
    weights[0, 0, channels[there], np.flatnonzero(there)] = 1
    unit = identity()
    return Convolution(
        operator=operator,
        source=source,
        result=result,
        weights=weights,
        counts=False,
        window=window or _one_tap(source.grid),
        fill=fill,
        output=Requantisation(
            bias=np.where(there, 0, fill).astype(np.int32),
            multiplier=np.broadcast_to(unit.multiplier, channels.shape),
            shift=np.broadcast_to(unit.shift, channels.shape),
            rounding=Rounding.SINGLE,
        ),
    )


def constant_value(operator: str, name: str, data: NDArray[np.int8]) -> tuple[Value, Binary]:
    """Return a value of constants, and the operation that makes this value on the machine.

    The operation adds zeros to the constants.
    """
    result = Value(name, data.shape)
    # The scale multiplies by 2^30 * 2^(20 - 31) = 2^19. The output's multiplier and shift divide by
    # 2^19.
    scale = Scale(0, 1 << 30, 0)
    return result, Binary(
        operator=operator,
        result=result,
        operation=Operation.ADD,
        a=data,
        b=np.zeros_like(data),
        scale_a=scale,
        scale_b=scale,
        output=scalar_requantisation(1 << 30, -18),
    )


def _view(operator: str, source: Value, result: Value) -> Item:
    if source.dtype == "int8":
        return Reshape(operator=operator, source=source, result=result)
    return HostStage(operator=operator, sources=(source,), result=result, function=View())


def _separate(positions: Positions, channels: int) -> tuple[Positions, Positions] | None:
    """Return the origin of a move as two arrays, for pixels and for channels; None if this is
    impossible.

    The first array has a pixel of the source for each pixel of the result. The second one has a
    channel of the source for each channel of the result. Pixels and channels count from 0; -1
    stands for the fill value. It is impossible if pixels of the result take different channels, or
    if all elements are filled.
    """
    there = positions >= 0
    rows: NDArray[np.bool_] = np.logical_or.reduce(there, axis=1)
    columns: NDArray[np.bool_] = np.logical_or.reduce(there, axis=0)
    if not rows.any():
        return None
    pixel, channel = np.divmod(positions, channels)
    from_pixel = np.where(rows, pixel[:, columns.argmax()], -1)
    from_channel = np.where(columns, channel[rows.argmax()], -1)
    expected = from_pixel[:, np.newaxis] * channels + from_channel
    whole = rows[:, np.newaxis] & columns
    if not np.array_equal(np.where(whole, expected, -1), positions):
        return None
    return from_pixel, from_channel


@dataclass(frozen=True)
class _Walk:
    """A window of one tap that moves over a map. In each position it sees one pixel of the map, or
    none if it is outside.

    `height` and `width` are the size of the map, in pixels.
    """

    height: int
    width: int
    window: Window


class _Mover:
    """A collector of the operations that make one move on the machine."""

    def __init__(self, operator: str, source: Value, result: Value, fill: int) -> None:
        self.operator = operator
        self.source = source
        self.result = result
        self.fill = fill
        self.items: list[Item] = []

    def finished(self) -> list[Item]:
        """Return the collected operations; a last Reshape that leaves the shape as it is is left
        out.
        """
        if len(self.items) > 1:
            *others, producer, view = self.items
            if (
                isinstance(view, Reshape)
                and isinstance(producer, Node)
                and producer.result is view.source
                and producer.result.shape == view.result.shape
            ):
                return [*others, replace(producer, result=view.result)]
        return self.items

    def separate(self, pixels: Positions, channels: Positions) -> bool:
        """Add operations that move whole pixels, and that move the channels of each pixel in the
        same way.

        `pixels` and `channels` are the two arrays of _separate. Returns True, or False if the
        machine cannot make this move.
        """
        source, count = self.source, len(channels)
        same = len(pixels) == source.pixels and np.array_equal(pixels, np.arange(len(pixels)))
        run = channels[0] >= 0 and bool((np.diff(channels) == 1).all())
        together = bool((pixels >= 0).all() and (np.diff(pixels) == 1).all())
        walk = None if together else _walk(source, self.result, pixels)
        if run and count < source.channels:
            source = self._cut(source, len(source.shape) - 1, int(channels[0]), count)
            channels = np.arange(count)
        if not run or (walk and bool((pixels < 0).any())):
            if source.channels * count > MOST_WEIGHTS:
                return False
            if same or walk:
                window = walk or _Walk(1, source.pixels, _one_tap((1, source.pixels)))
                self._gather(source, channels, window)
                return True
            wide = self._value((source.pixels, count))
            whole = _Walk(1, source.pixels, _one_tap((1, source.pixels)))
            source = self._gathered(source, channels, whole, wide)
        if same:
            self._view(source, self.result)
            return True
        if bool((pixels < 0).any()):
            return False
        if together:
            # The pixels are consecutive in the source. So they are cut out, and none of them moves.
            self._view(self._cut_pixels(source, int(pixels[0]), len(pixels)), self.result)
            return True
        if walk:
            self._pool(source, walk)
            return True
        return self._runs(source, pixels) or self._spread(source, pixels)

    def pieces(self, positions: Positions) -> bool:
        """Add operations that make each pixel of the result by joining pieces of the source's
        pixels.

        Returns True. Returns False, and adds nothing, if there are too many pieces or elements to
        fill.
        """
        if bool((positions < 0).any()):
            return False
        channels = self.source.channels
        cuts = (np.diff(positions, axis=1) != 1) | (positions[:, 1:] % channels == 0)
        if np.count_nonzero(cuts) + len(positions) > MOST_PARTS:
            return False
        flat = self._flat(self.source)
        pixels: list[Value] = []
        for row, cut in zip(positions, cuts, strict=True):
            parts: list[Value] = []
            for piece in np.split(row, np.flatnonzero(cut) + 1):
                pixel, channel = divmod(int(piece[0]), channels)
                value = self._cut(flat, 0, pixel, 1)
                parts.append(self._cut(value, 1, channel, len(piece)))
            pixels.append(self._joined(parts, 1))
        self._view(self._joined(pixels, 0), self.result)
        return True

    def _runs(self, source: Value, pixels: Positions) -> bool:
        """Add operations that cut runs of consecutive pixels from `source` and join them to the
        result.

        `pixels` has a pixel of `source` for each pixel of the result. Returns True. Returns False,
        and adds nothing, if there are too many runs.
        """
        edges = np.flatnonzero(np.diff(pixels) != 1) + 1
        if len(edges) >= MOST_PARTS:
            return False
        flat = self._flat(source)
        parts = [self._cut(flat, 0, int(run[0]), len(run)) for run in np.split(pixels, edges)]
        self._view(self._joined(parts, 0), self.result)
        return True

    def _spread(self, source: Value, pixels: Positions) -> bool:
        """Add a pooling that repeats each pixel of a column along a row, or each pixel of a row
        along a column.

        Each window of the pooling sees a single pixel. Returns True. Returns False, and adds
        nothing, if the result is no such repetition of `source`.
        """
        for height, width in _grids(self.result):
            grid = pixels.reshape(height, width)
            if bool((grid == np.arange(height)[:, np.newaxis]).all()):
                size, kernel = (height, 1), (1, width)
            elif bool((grid == np.arange(width)).all()):
                size, kernel = (1, width), (height, 1)
            else:
                continue
            if source.pixels == size[0] * size[1] and max(kernel) <= MAX_KERNEL:
                window = Window(
                    kernel=kernel, first=(1 - kernel[0], 1 - kernel[1]), out=(height, width)
                )
                self._pool(source, _Walk(*size, window))
                return True
        return False

    def _pool(self, source: Value, walk: _Walk) -> None:
        """Add a max pooling that only moves pixels: each of its windows sees a single pixel."""
        taken = self._map(source, walk)
        placed = self._value((1, *walk.window.out, source.channels))
        self.items.append(
            Pooling(
                operator=self.operator,
                source=taken,
                result=placed,
                reduction=Reduction.MAX,
                window=walk.window,
            )
        )
        self._view(placed, self.result)

    def _gather(self, source: Value, channels: Positions, walk: _Walk) -> None:
        placed = self._value((1, *walk.window.out, len(channels)))
        self._view(self._gathered(source, channels, walk, placed), self.result)

    def _gathered(self, source: Value, channels: Positions, walk: _Walk, result: Value) -> Value:
        taken = self._map(source, walk)
        self.items.append(gathered(self.operator, taken, result, channels, self.fill, walk.window))
        return result

    def _cut(self, source: Value, axis: int, start: int, count: int) -> Value:
        """Return `count` neighbouring places of `source` along an axis, and add the operation that
        cuts them out.

        `start` is the first place, counted from 0. The axis must be the last one, which counts
        channels, or all axes before it must have size 1.
        """
        if count == source.shape[axis]:
            return source
        part = self._value((*source.shape[:axis], count, *source.shape[axis + 1 :]))
        self.items.append(
            Slice(operator=self.operator, source=source, result=part, axis=axis, start=start)
        )
        return part

    def _cut_pixels(self, source: Value, start: int, count: int) -> Value:
        """Return `count` consecutive pixels of `source` from pixel `start` on, and add the
        operations for this.

        The cut goes along the first dimension with a size above 1, if it falls between two places
        of this dimension at both ends. Otherwise `source` is first made a matrix of pixels x
        channels.
        """
        for axis, size in enumerate(source.shape[:-1]):
            inner = math.prod(source.shape[axis + 1 : -1])
            if size > 1 and start % inner == count % inner == 0:
                return self._cut(source, axis, start // inner, count // inner)
            if size > 1:
                break
        return self._cut(self._flat(source), 0, start, count)

    def _joined(self, parts: list[Value], axis: int) -> Value:
        """Return the matrices `parts` joined along an axis, and add the operation that joins them.

        A single part is returned as it is.
        """
        if len(parts) == 1:
            return parts[0]
        total = sum(part.shape[axis] for part in parts)
        shape = (total, parts[0].shape[1]) if axis == 0 else (parts[0].shape[0], total)
        result = self._value(shape)
        self.items.append(
            Concatenation(operator=self.operator, result=result, parts=tuple(parts), axis=axis)
        )
        return result

    def _flat(self, source: Value) -> Value:
        """Return `source` as a matrix of pixels x channels, and add a Reshape if one is needed."""
        if len(source.shape) == 2:
            return source
        flat = self._value((source.pixels, source.channels))
        self._view(source, flat)
        return flat

    def _map(self, source: Value, walk: _Walk) -> Value:
        """Return `source` with the shape of the map that `walk` describes, and add a Reshape if one
        is needed.
        """
        shape = (1, walk.height, walk.width, source.channels)
        if source.shape == shape:
            return source
        result = self._value(shape)
        self._view(source, result)
        return result

    def _view(self, source: Value, result: Value) -> None:
        self.items.append(Reshape(operator=self.operator, source=source, result=result))

    def _value(self, shape: tuple[int, ...]) -> Value:
        return Value(f"{self.result.name} in {self.operator}", shape)


def _one_tap(out: tuple[int, int]) -> Window:
    return Window(kernel=(1, 1), out=out)


def _grids(value: Value) -> Iterator[tuple[int, int]]:
    """Yield (height, width) of each map into which the pixels of a value can be grouped in their
    order.

    The width is a product of last sizes of the value's shape, without the channels. So the shape 2
    x 3 x 4 x channels gives (1, 24), (2, 12), (6, 4) and (24, 1).
    """
    sizes = value.shape[:-1]
    seen: set[int] = set()
    for axis in range(len(sizes) + 1):
        width = int(np.prod(sizes[axis:], dtype=np.int64))
        if width not in seen:
            seen.add(width)
            yield value.pixels // width, width


def _walk(source: Value, result: Value, pixels: Positions) -> _Walk | None:
    """Return a window of one tap that visits `pixels` of the source in their order, with the map
    that it moves over.

    `pixels` has a pixel of the source for each pixel of the result. Where it is -1 the window must
    be outside the map. Returns None if there is no such window.
    """
    for height, width in _grids(source):
        for rows, columns in _grids(result):
            if max(height, width, rows, columns) > MAX_SIDE:
                continue
            grid = pixels.reshape(rows, columns)
            there = grid >= 0
            some_rows, some_columns = there.any(axis=1), there.any(axis=0)
            y, x = np.divmod(grid, width)
            along = _steps(np.where(some_rows, y[:, some_columns.argmax()], -1), height)
            across = _steps(np.where(some_columns, x[some_rows.argmax()], -1), width)
            if along is None or across is None:
                continue
            if abs(along[0]) > MAX_TOP or abs(across[0]) > MAX_LEFT:
                continue
            expected_y = along[0] + np.arange(rows) * along[1]
            expected_x = across[0] + np.arange(columns) * across[1]
            inside = ((expected_y >= 0) & (expected_y < height))[:, np.newaxis] & (
                (expected_x >= 0) & (expected_x < width)
            )
            expected = expected_y[:, np.newaxis] * width + expected_x
            if np.array_equal(np.where(inside, expected, -1), grid):
                window = Window(
                    kernel=(1, 1),
                    stride=(along[1], across[1]),
                    first=(along[0], across[0]),
                    out=(rows, columns),
                )
                return _Walk(height, width, window)
    return None


def _steps(places: Positions, size: int) -> tuple[int, int] | None:
    """Return the first of several rows or columns of a map at equal distances, and their distance.

    `places` has the numbers of these rows or columns, counted from 0; -1 stands for any place
    outside the map. `size` is the number of rows or columns of the map. The first one is negative
    if it lies before the map. Returns None if all places are outside, or if the distance cannot be
    a stride. The caller checks that all distances are equal.
    """
    inside = np.flatnonzero(places >= 0)
    if len(inside) == 0:
        return None
    if len(inside) == 1:
        # With a single place inside the map, any distance fits that puts the others outside. The
        # size of the map is such a distance.
        step = 1 if len(places) == 1 else size
    else:
        step = int(places[inside[1]] - places[inside[0]])
    if not 1 <= step <= MAX_STRIDE:
        return None
    return int(places[inside[0]] - inside[0] * step), step
