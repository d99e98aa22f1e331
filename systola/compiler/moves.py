# SPDX-License-Identifier: Apache-2.0
"""Moves of elements: operations that fill each element of a result with an element of their source.

A move is described by its origin, an array of the result's size. For each element of the result the
origin has the position of an element of the source, or -1 for a fill value. From the origin the
compiler chooses the cheapest operations that make the move on the machine. A move that would take
too many operations stays on the host.
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
"""Largest number of weights, nearly all of them zero, of a convolution that only moves channels."""
MAX_TOP, MAX_LEFT, MAX_KERNEL = 2047, 127, 255
MAX_STRIDE, MAX_SIDE = 255, 4095
"""Largest operands of Set_Config_Window: row and column of the first window, kernel, stride, and
height or width of a map.
"""

Positions = NDArray[np.int64]


def check_size(*values: Value) -> None:
    """Raise ModelError if a value has too many elements to be moved.

    A move needs an array with the origin of each element.
    """
    for value in values:
        if value.pixels * value.channels > MOST_ELEMENTS:
            raise ModelError(f"moving a value of shape {value.shape} is not supported")


def moved(
    operator: str, source: Value, result: Value, origin: Positions, fill: int = 0
) -> list[Item]:
    """Return the operations that move elements from `source` to `result`, a value of the same type.

    `origin` has for each element of the result a position in the source, or -1 for `fill`. The
    shape of `origin` may be any shape. Raises ModelError unless `origin` has as many elements as
    the result.
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
    """Return the operations that give `source` the shape of `result` and lay its elements out
    accordingly in lines of the buffer.
    """
    order = np.arange(source.pixels * source.channels)
    items = on_the_machine(operator, source, result, order, 0)
    if items is not None:
        return items
    return [HostStage(operator=operator, sources=(source,), result=result, function=View())]


def on_the_machine(
    operator: str, source: Value, result: Value, origin: Positions, fill: int
) -> list[Item] | None:
    """Return the operations for a move of int8 on the machine, or None if they would be too
    many.
    """
    mover = _Mover(operator, source, result, fill)
    positions = origin.reshape(result.pixels, result.channels)
    separate = _separate(positions, source.channels)
    done = mover.separate(*separate) if separate else mover.pieces(positions)
    return mover.finished() if done else None


def check_moves(source: int, result: int) -> None:
    """Raise ModelError if a convolution that only moves channels would have too many weights.

    `source` and `result` are numbers of channels.
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
    """Return a convolution that only moves channels: `channels`[c] of the source becomes channel c.

    If `channels`[c] is -1, channel c is filled with `fill`. A `window` with a single tap also moves
    pixels; without it pixels stay in their places.
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
    """Return a value of constants, and the operation that makes it, a sum of the constants and
    zeros.
    """
    result = Value(name, data.shape)
    # The scale multiplies by 2^30 * 2^(20 - 31) = 2^19, which the output's scale takes back.
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
    """Return a move as two lists, or None if pixels do not all take the same channels.

    The first list has a pixel of the source for each pixel of the result. The second list has a
    channel of the source for each channel of the result. Pixels and channels count from 0; -1
    stands for the fill.
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
    """A window that moves over a map, and in each position sees one pixel, or none outside the map.

    `height` and `width` are the size of the map.
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
        """Return the collected operations, without a last change of shape that changes nothing."""
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
        """Add operations that move whole pixels, and move the channels of all pixels in the same
        way.

        Returns False if the machine cannot do this move.
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
            # The pixels lie in the right order already, so nothing moves.
            self._view(self._cut_pixels(source, int(pixels[0]), len(pixels)), self.result)
            return True
        if walk:
            self._pool(source, walk)
            return True
        return self._runs(source, pixels) or self._spread(source, pixels)

    def pieces(self, positions: Positions) -> bool:
        """Add operations that join pieces of the source's pixels to each pixel of the result;
        return whether this is possible.
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
        """Add operations that join runs of consecutive pixels to the result; return whether the
        runs are few enough.
        """
        edges = np.flatnonzero(np.diff(pixels) != 1) + 1
        if len(edges) >= MOST_PARTS:
            return False
        flat = self._flat(source)
        parts = [self._cut(flat, 0, int(run[0]), len(run)) for run in np.split(pixels, edges)]
        self._view(self._joined(parts, 0), self.result)
        return True

    def _spread(self, source: Value, pixels: Positions) -> bool:
        """Add a pooling that repeats each pixel of a column along a row, or of a row along a
        column.

        Each window of the pooling sees a single pixel. Returns False if the result is no such
        repetition.
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
        """Add a max pooling that only moves pixels, as each of its windows sees a single pixel."""
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
        """Return a part of a value along an axis, and add the operation that cuts it.

        The axis must count channels, or all axes before it must have size 1.
        """
        if count == source.shape[axis]:
            return source
        part = self._value((*source.shape[:axis], count, *source.shape[axis + 1 :]))
        self.items.append(
            Slice(operator=self.operator, source=source, result=part, axis=axis, start=start)
        )
        return part

    def _cut_pixels(self, source: Value, start: int, count: int) -> Value:
        """Return `count` consecutive pixels of a value.

        If the pixels are whole parts along a dimension, the value is cut along this dimension.
        Otherwise it is cut as a matrix of pixels x channels.
        """
        for axis, size in enumerate(source.shape[:-1]):
            inner = math.prod(source.shape[axis + 1 : -1])
            if size > 1 and start % inner == count % inner == 0:
                return self._cut(source, axis, start // inner, count // inner)
            if size > 1:
                break
        return self._cut(self._flat(source), 0, start, count)

    def _joined(self, parts: list[Value], axis: int) -> Value:
        """Return the matrices `parts` joined along an axis, and add the operation that
        joins them.
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
        """Return `source` as a matrix of pixels x channels, by a change of shape if needed."""
        if len(source.shape) == 2:
            return source
        flat = self._value((source.pixels, source.channels))
        self._view(source, flat)
        return flat

    def _map(self, source: Value, walk: _Walk) -> Value:
        """Return `source` with the shape of the map over which the window of `walk` goes."""
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
    """Yield (height, width) of each map into which the pixels of a value can be grouped.

    The width is the product of some last sizes of the value's shape, without the channels: of all,
    of all but the first, and so on.
    """
    sizes = value.shape[:-1]
    seen: set[int] = set()
    for axis in range(len(sizes) + 1):
        width = int(np.prod(sizes[axis:], dtype=np.int64))
        if width not in seen:
            seen.add(width)
            yield value.pixels // width, width


def _walk(source: Value, result: Value, pixels: Positions) -> _Walk | None:
    """Return a window of one tap that visits `pixels` in their order, or None if there is none.

    A -1 in `pixels` means that the window must be outside the map there.
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
    """Return the first of several rows or columns at equal distances, and this distance.

    `places` has rows or columns of a map that has `size` of them; -1 stands for any place outside
    the map. Returns None if all places are outside, or if the distance cannot be a stride.
    """
    inside = np.flatnonzero(places >= 0)
    if len(inside) == 0:
        return None
    if len(inside) == 1:
        # If only one of several places is inside the map, the distance is the size of the map,
        # which puts all others outside.
        step = 1 if len(places) == 1 else size
    else:
        step = int(places[inside[1]] - places[inside[0]])
    if not 1 <= step <= MAX_STRIDE:
        return None
    return int(places[inside[0]] - inside[0] * step), step
