# SPDX-License-Identifier: Apache-2.0
"""The operators of TensorFlow Lite that only move elements, as functions of any array.

The compiler also calls such a function with the positions 0, 1, 2, ... of the elements in place of
the elements. The result then has the position in the source from which each element comes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.shape_checks import checked_axis
from systola.compiler.tflite.graph import Operator

VIEWS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
"""Kinds of operators that change only the shape and keep the order of all elements."""
OUTSIDE = -1
"""Mark in place of a position, for an element that padding adds and that is not in the source."""


@dataclass(frozen=True)
class Call:
    """An operator that moves elements, with a function that returns its constant inputs, and with
    the shapes of its results.
    """

    operator: Operator
    constant: Callable[[int], NDArray[np.int64]]
    """Function that returns input i of the operator, counted from 0, as an array of whole numbers.

    The function raises ModelError if the input is not constant.
    """
    shapes: Sequence[tuple[int, ...]]
    """Shapes of the operator's results, in order, as the model file has them."""

    def option(self, name: str) -> int:
        """Return the operator's option `name` as a number; 0 if the operator lacks this option."""
        return int(self.operator.options.get(name, 0))

    def options(self, name: str) -> tuple[int, ...]:
        """Return the operator's option `name` as a tuple; () if the operator lacks this option."""
        return self.operator.options.get(name, ())

    def pairs(self, position: int, axes: int) -> list[tuple[int, int]]:
        """Return the constant input number `position`: a pair of numbers for each of `axes` axes.

        Raises ModelError if the input has another shape.
        """
        values = self.constant(position)
        if values.shape != (axes, 2):
            raise ModelError(f"its pairs of numbers have shape {values.shape}, not {(axes, 2)}")
        return [(int(before), int(behind)) for before, behind in values]


def source_position(operator: Operator) -> int:
    """Return the number, counted from 0, of the input from which elements are moved."""
    return 1 if operator.kind == "SPLIT" else 0


def move_elements(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the results of the operator for an input with the content `x`.

    Raises ModelError if the results have other shapes than in the model.
    """
    try:
        results = ELEMENT_MOVES[call.operator.kind](call, x)
    except (ValueError, IndexError, ZeroDivisionError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"its parameters do not fit its input of shape {x.shape}") from None
    if len(results) != len(call.shapes):
        raise ModelError(f"it makes {len(results)} results, not {len(call.shapes)}")
    for result, shape in zip(results, call.shapes, strict=True):
        if result.shape != shape:
            raise ModelError(f"it makes shape {shape} of shape {x.shape}")
    return results


def view_shape(call: Call, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that RESHAPE, SQUEEZE or EXPAND_DIMS makes of `shape`.

    The shape follows from the operator's options and constant inputs. The result's shape in the
    model is ignored.
    """
    match call.operator.kind:
        case "RESHAPE":
            return _reshaped(call, shape)
        case "SQUEEZE":
            axes = {checked_axis(axis, len(shape)) for axis in call.options("SqueezeDims")}
            if any(shape[axis] != 1 for axis in axes):
                raise ModelError(f"its axes {sorted(axes)} of shape {shape} are not all 1")
            axes = axes or {axis for axis, size in enumerate(shape) if size == 1}
            return tuple(size for axis, size in enumerate(shape) if axis not in axes)
        case _:
            axis = checked_axis(_number(call, 1), len(shape) + 1)
            return (*shape[:axis], 1, *shape[axis:])


def _reshaped(call: Call, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that RESHAPE makes of `shape`.

    The wanted shape is a constant input, or an option in older models. One of its sizes may be -1;
    this size is calculated so that the number of elements stays the same.
    """
    wanted = call.options("NewShape")
    if len(call.operator.inputs) > 1:
        wanted = tuple(call.constant(1).reshape(-1).tolist())
    elif wanted == (0,):
        wanted = ()
    known = -math.prod(wanted) if -1 in wanted else 0
    if known > 0 and wanted.count(-1) == 1:
        wanted = tuple(math.prod(shape) // known if size == -1 else size for size in wanted)
    if math.prod(wanted) != math.prod(shape) or min(wanted, default=1) < 0:
        raise ModelError(f"it cannot make shape {wanted} of shape {shape}")
    return wanted


def _view(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    return [x.reshape(view_shape(call, x.shape))]


def _number(call: Call, position: int) -> int:
    """Return the number in constant input `position`; raise ModelError for several numbers."""
    values = call.constant(position)
    if values.size != 1:
        raise ModelError(f"its input {position} of shape {values.shape} should be one number")
    return int(values.reshape(()))


def reduced_shape(shape: tuple[int, ...], axes: Set[int], *, keep: bool) -> tuple[int, ...]:
    """Return the shape of the result of a reduction along `axes` of an array of `shape`.

    If `keep` is true, a reduced axis stays with size 1; otherwise the axis is left out.
    """
    sizes = (1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(sizes) if keep or axis not in axes)


def _transpose(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    return [x.transpose(call.constant(1).reshape(-1).tolist())]


def _split(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    axis = checked_axis(_number(call, 0), x.ndim)
    return np.split(x, len(call.shapes), axis)


def _split_v(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    axis = checked_axis(_number(call, 2), x.ndim)
    sizes = call.constant(1).reshape(-1).tolist()
    known = sum(size for size in sizes if size >= 0)
    sizes = [size if size >= 0 else x.shape[axis] - known for size in sizes]
    if sum(sizes) != x.shape[axis]:
        raise ModelError(f"its parts have {sum(sizes)} of {x.shape[axis]} elements")
    return np.split(x, np.cumsum(sizes)[:-1].tolist(), axis)


def _unpack(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    axis = checked_axis(call.option("Axis"), x.ndim)
    if x.shape[axis] != len(call.shapes):
        raise ModelError(f"it makes {len(call.shapes)} of {x.shape[axis]} elements")
    return list(np.moveaxis(x, axis, 0))


def _slice(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    starts, sizes = call.constant(1).reshape(-1).tolist(), call.constant(2).reshape(-1).tolist()
    if not len(starts) == len(sizes) == x.ndim:
        raise ModelError("its bounds do not fit its input")
    ranges: list[slice] = []
    for start, size, whole in zip(starts, sizes, x.shape, strict=True):
        end = whole if size == -1 else start + size
        if not 0 <= start <= end <= whole:
            raise ModelError(f"its bounds do not fit its input of shape {x.shape}")
        ranges.append(slice(start, end))
    return [x[tuple(ranges)]]


def _strided_slice(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    begin, end, strides = (call.constant(number).reshape(-1).tolist() for number in (1, 2, 3))
    if not len(begin) == len(end) == len(strides):
        raise ModelError("its bounds do not fit its input")
    if 0 in strides:
        raise ModelError("a stride of 0 is not supported")
    index: list[Any] = []
    for axis, (low, high, stride) in enumerate(zip(begin, end, strides, strict=True)):

        def masked(name: str, bit: int = axis) -> bool:
            return bool(call.option(name) >> bit & 1)

        first = None if masked("BeginMask") else low
        if masked("EllipsisMask"):
            index.append(Ellipsis)
        elif masked("NewAxisMask"):
            index.append(None)
        elif masked("ShrinkAxisMask"):
            if stride < 0:
                # ShrinkAxisMask takes one element and removes the axis. TensorFlow refuses a
                # negative stride for such an axis. LiteRT allows it, but its result depends on the
                # size of the stride, which makes no sense for a single element.
                raise ModelError(f"a stride of {stride} along an axis that goes is not supported")
            index.append(first or 0)
        else:
            if call.option("Offset"):
                high = low + high
                # With the option Offset, the end is counted from the begin. LiteRT may then take
                # elements outside of the array in two cases, which are refused: with new axes or
                # an ellipsis, and with bounds outside of the array.
                other_axes = call.option("NewAxisMask") or call.option("EllipsisMask")
                if other_axes or not 0 <= low <= high <= x.shape[axis]:
                    raise ModelError(f"its bounds do not fit its input of shape {x.shape}")
            index.append(slice(first, None if masked("EndMask") else high, stride))
    return [x[tuple(index)]]


def _gather(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    if call.option("BatchDims"):
        raise ModelError("batch dimensions are not supported")
    axis, numbers = checked_axis(call.option("Axis"), x.ndim), call.constant(1)
    if bool(((numbers < 0) | (numbers >= x.shape[axis])).any()):
        raise ModelError(f"an index is outside 0 to {x.shape[axis] - 1}")
    return [np.take(x, numbers, axis)]


def _reverse(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    for axis in call.constant(1).reshape(-1).tolist():
        x = np.flip(x, checked_axis(axis, x.ndim))
    return [x]


def _tile(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    counts = call.constant(1).reshape(-1).tolist()
    if tuple(size * count for size, count in zip(x.shape, counts, strict=True)) != call.shapes[0]:
        raise ModelError(f"it makes shape {call.shapes[0]} of shape {x.shape}")
    return [np.tile(x, counts)]


def _broadcast(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    if tuple(call.constant(1).reshape(-1).tolist()) != call.shapes[0]:
        raise ModelError(f"it makes shape {call.shapes[0]} of shape {x.shape}")
    return [np.broadcast_to(x, call.shapes[0])]


def _pad(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    return [np.pad(x, read_padding(call, x.shape), constant_values=OUTSIDE)]


def _mirror_pad(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    mode = "symmetric" if call.option("Mode") else "reflect"
    return [np.pad(x, read_padding(call, x.shape), mode=mode)]


def read_padding(call: Call, shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return a pair for each axis: numbers of elements that padding adds before and after `shape`.

    Raises ModelError if the padded shape is not the shape of the result.
    """
    pairs = call.pairs(1, len(shape))
    if any(min(pair) < 0 for pair in pairs):
        raise ModelError(f"its padding does not fit its input of shape {shape}")
    padded = tuple(
        before + size + after for size, (before, after) in zip(shape, pairs, strict=True)
    )
    if padded != call.shapes[0]:
        raise ModelError(f"its result should have the shape {padded}, not {call.shapes[0]}")
    return pairs


def _space_to_depth(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    size = call.option("BlockSize")
    n, height, width, channels = x.shape
    blocks = x.reshape(n, height // size, size, width // size, size, channels)
    shape = (n, height // size, width // size, size**2 * channels)
    return [blocks.transpose(0, 1, 3, 2, 4, 5).reshape(shape)]


def _depth_to_space(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    size = call.option("BlockSize")
    n, height, width, channels = x.shape
    blocks = x.reshape(n, height, width, size, size, channels // size**2)
    shape = (n, height * size, width * size, channels // size**2)
    return [blocks.transpose(0, 1, 3, 2, 4, 5).reshape(shape)]


def _nearest(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    """Return a list of one array: `x` resized as RESIZE_NEAREST_NEIGHBOR does.

    The row and column of the source pixel for each result are calculated in float32, as in LiteRT.
    """
    if x.ndim != 4 or len(call.shapes[0]) != 4:
        raise ModelError(f"its input should be a feature map, not of shape {x.shape}")
    if tuple(call.constant(1).reshape(-1).tolist()) != call.shapes[0][1:3]:
        raise ModelError(f"it makes shape {call.shapes[0]} of shape {x.shape}")
    align, half = call.option("AlignCorners"), call.option("HalfPixelCenters")
    for axis in (1, 2):
        size, out = x.shape[axis], call.shapes[0][axis]
        aligned = align and out > 1
        scale = np.float32(size - 1) / np.float32(out - 1) if aligned else np.float32(size) / out
        offset = np.float32(0.5 if half else 0)
        places = (np.arange(out, dtype=np.float32) + offset) * np.float32(scale)
        rounded = np.floor(places + np.float32(0.5)) if align else np.floor(places)
        x = np.take(x, np.clip(rounded.astype(np.int64), 0, size - 1), axis)
    return [x]


def _block_and_pairs(call: Call) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the block size of each axis that is cut, and a pair of numbers for each such axis.

    The pair has the numbers of elements to add (SPACE_TO_BATCH_ND) or to cut off
    (BATCH_TO_SPACE_ND) before and after.
    """
    block = call.constant(1).reshape(-1)
    return block.tolist(), call.pairs(2, len(block))


def _space_to_batch(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    block, pairs = _block_and_pairs(call)
    padding = [(0, 0), *pairs, *[(0, 0)] * (x.ndim - 1 - len(block))]
    padded = math.prod(size + sum(pair) for size, pair in zip(x.shape, padding, strict=True))
    if padded != math.prod(call.shapes[0]) or min(min(pair) for pair in padding) < 0:
        raise ModelError(f"it makes shape {call.shapes[0]} of shape {x.shape}")
    x = np.pad(x, padding, constant_values=OUTSIDE)
    count = len(block)
    split = [x.shape[0]]
    for size, step in zip(x.shape[1:], block, strict=False):
        split += [size // step, step]
    x = x.reshape(*split, *x.shape[1 + count :])
    steps, places = range(2, 2 * count + 1, 2), range(1, 2 * count, 2)
    order = (*steps, 0, *places, *range(2 * count + 1, x.ndim))
    sizes = (x.shape[place] for place in places)
    shape = (math.prod(block) * split[0], *sizes, *x.shape[1 + 2 * count :])
    return [x.transpose(order).reshape(shape)]


def _batch_to_space(call: Call, x: NDArray[Any]) -> list[NDArray[Any]]:
    block, crops = _block_and_pairs(call)
    count = len(block)
    samples = x.shape[0] // math.prod(block)
    rest = x.shape[1:]
    x = x.reshape(*block, samples, *rest)
    order = [count]
    for axis in range(count):
        order += [count + 1 + axis, axis]
    x = x.transpose(*order, *range(2 * count + 1, x.ndim))
    spread = [size * step for size, step in zip(rest, block, strict=False)]
    x = x.reshape(samples, *spread, *rest[count:])
    inside = [
        slice(before, size - after) for size, (before, after) in zip(spread, crops, strict=True)
    ]
    return [x[(slice(None), *inside)]]


ELEMENT_MOVES: Mapping[str, Callable[[Call, NDArray[Any]], list[NDArray[Any]]]] = {
    **dict.fromkeys(VIEWS, _view),
    "TRANSPOSE": _transpose,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "UNPACK": _unpack,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "GATHER": _gather,
    "REVERSE_V2": _reverse,
    "TILE": _tile,
    "BROADCAST_TO": _broadcast,
    **dict.fromkeys(("PAD", "PADV2"), _pad),
    "MIRROR_PAD": _mirror_pad,
    "SPACE_TO_DEPTH": _space_to_depth,
    "DEPTH_TO_SPACE": _depth_to_space,
    "RESIZE_NEAREST_NEIGHBOR": _nearest,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "BATCH_TO_SPACE_ND": _batch_to_space,
}
