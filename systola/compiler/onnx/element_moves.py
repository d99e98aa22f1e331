# SPDX-License-Identifier: Apache-2.0
"""The ONNX operators that only move elements, as functions of any array.

For an array of constants, a function gives the operator's results. It can also be given an array of
the positions of a tensor's elements. Then it gives, for each element of a result, the position from
which the element comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from systola.compiler.errors import ModelError
from systola.compiler.onnx.model import Constant, OnnxNode
from systola.compiler.shape_checks import MOST_ELEMENTS, checked_axis

OUTSIDE = -1
"""Number that stands, in an array of positions, for an element that Pad adds."""


@dataclass(frozen=True)
class Call:
    """A node that moves elements, with access to its constant inputs."""

    node: OnnxNode
    opset: int
    whole_numbers: Callable[[int], list[int] | None]
    """Function that returns one of the node's inputs as constant whole numbers, by the input's
    position from 0; None if the input is left out.
    """
    constant: Callable[[int], Constant | None]
    """Function that returns one of the node's inputs as a constant array, by the input's position
    from 0; None if the input is left out.
    """

    def given(self, name: str, position: int) -> list[int] | None:
        """Return whole numbers from the attribute `name`, or from the input at `position` if there
        is no such attribute.

        Old versions of operators have the attribute, newer ones the input. Returns None if both are
        left out.
        """
        if name in self.node.attributes:
            return list(self.node.integers(name))
        return self.whole_numbers(position)


def move_elements(call: Call, x: Constant) -> list[Constant]:
    """Return the node's results for the array `x`.

    Raises ModelError if the node's parameters do not fit the shape of `x`.
    """
    try:
        # Some functions of numpy return a plain number, and not an array without dimensions. So
        # each result is made an array again.
        results = [np.asarray(each) for each in ELEMENT_MOVES[call.node.kind](call, x)]
    except (ValueError, IndexError, OverflowError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"its parameters do not fit its input of shape {x.shape}") from None
    if any(result.size == 0 for result in results):
        raise ModelError("a result without elements is not supported")
    return results


def _check_size(shape: Sequence[int]) -> None:
    """Raise ModelError if an array of this shape, which is not made yet, would be too large."""
    size = 1
    for each in shape:
        size *= max(each, 0)
    if size > MOST_ELEMENTS:
        raise ModelError(f"a result of shape {tuple(shape)} is not supported")


def _slice(call: Call, x: Constant) -> list[Constant]:
    starts, ends = call.given("starts", 1), call.given("ends", 2)
    if starts is None or ends is None:
        raise ModelError("it has no starts or ends")
    axes = call.given("axes", 3)
    axes = list(range(len(starts))) if axes is None else axes
    steps = call.whole_numbers(4) or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError("its starts, ends, axes and steps do not fit one another")
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = checked_axis(axis, x.ndim)
        size = x.shape[place]
        # With a negative step, an end before the first element must be None: Python counts negative
        # ends from the array's end.
        last = None if step < 0 and end < -size else end
        index[place] = slice(start, last, step)
    return [x[tuple(index)]]


def _split(call: Call, x: Constant) -> list[Constant]:
    axis = checked_axis(call.node.integer("axis", 0), x.ndim)
    sizes = call.given("split", 1)
    count = len(call.node.outputs)
    if sizes is None:
        whole = -(-x.shape[axis] // count)
        sizes = [whole] * (count - 1)
        sizes.append(x.shape[axis] - sum(sizes))
    if len(sizes) != count or min(sizes) < 1 or sum(sizes) != x.shape[axis]:
        raise ModelError(f"it cannot make parts of {sizes} of {x.shape[axis]} elements")
    return np.split(x, np.cumsum(sizes)[:-1].tolist(), axis)


def _gather(call: Call, x: Constant) -> list[Constant]:
    axis = checked_axis(call.node.integer("axis", 0), x.ndim)
    indices = call.constant(1)
    if indices is None or indices.dtype.kind != "i":
        raise ModelError("its indices must be constant whole numbers")
    _check_size((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
    return [np.take(x, indices, axis)]


def _pad(call: Call, x: Constant) -> list[Constant]:
    pads = call.given("pads", 1)
    axes = call.whole_numbers(3)
    axes = list(range(x.ndim)) if axes is None else axes
    if pads is None or len(pads) != 2 * len(axes) or min(pads, default=0) < 0:
        raise ModelError("its pads must be two for each axis, at least 0")
    pairs = [(0, 0)] * x.ndim
    for number, axis in enumerate(axes):
        pairs[checked_axis(axis, x.ndim)] = pads[number], pads[number + len(axes)]
    shape = [size + sum(pair) for size, pair in zip(x.shape, pairs, strict=True)]
    _check_size(shape)
    mode = call.node.text("mode", "constant")
    if mode == "constant":
        return [np.pad(x, pairs, constant_values=OUTSIDE)]
    if mode not in ("reflect", "edge", "wrap"):
        raise ModelError(f"the mode {mode} is not supported")
    if mode == "reflect" and any(
        max(pair) >= size for size, pair in zip(x.shape, pairs, strict=True)
    ):
        raise ModelError("it reflects more than there is")
    return [np.pad(x, pairs, mode=mode)]  # pyright: ignore[reportArgumentType]


def _expand(call: Call, x: Constant) -> list[Constant]:
    shape = call.whole_numbers(1)
    if shape is None:
        raise ModelError("it has no shape")
    result = np.broadcast_shapes(x.shape, tuple(shape))
    _check_size(result)
    return [np.broadcast_to(x, result)]


def _tile(call: Call, x: Constant) -> list[Constant]:
    repeats = call.whole_numbers(1)
    if repeats is None or len(repeats) != x.ndim or min(repeats, default=1) < 1:
        raise ModelError("its repeats must be at least 1 for each axis")
    _check_size([size * count for size, count in zip(x.shape, repeats, strict=True)])
    return [np.tile(x, repeats)]


def _depth_to_space(call: Call, x: Constant) -> list[Constant]:
    block = call.node.integer("blocksize", 0)
    n, depth, height, width = x.shape
    if block < 1 or depth % block**2:
        raise ModelError(f"blocks of {block} do not fit {depth} channels")
    inner = depth // block**2
    if call.node.text("mode", "DCR") == "DCR":
        parts = x.reshape(n, block, block, inner, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, inner, block, block, height, width).transpose(0, 1, 4, 2, 5, 3)
    return [parts.reshape(n, inner, height * block, width * block)]


def _space_to_depth(call: Call, x: Constant) -> list[Constant]:
    block = call.node.integer("blocksize", 0)
    n, depth, height, width = x.shape
    if block < 1 or height % block or width % block:
        raise ModelError(f"blocks of {block} do not fit {height} x {width}")
    parts = x.reshape(n, depth, height // block, block, width // block, block)
    return [
        parts.transpose(0, 3, 5, 1, 2, 4).reshape(
            n, depth * block**2, height // block, width // block
        )
    ]


_ROUNDED: Mapping[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""Functions that round a coordinate to a pixel beside it; the key is the attribute `nearest_mode`.
"""


def _resize(call: Call, x: Constant) -> list[Constant]:
    """Resize an array: each pixel of the result is the nearest pixel of the source.

    Coordinates are calculated in float32, as in ONNX Runtime.
    """
    node = call.node
    if node.text("mode", "nearest") != "nearest":
        raise ModelError("a mode other than nearest is not supported")
    scales, sizes = _scales_and_sizes(call, x)
    if len(sizes) != x.ndim:
        raise ModelError(f"its sizes {sizes} do not fit its input of shape {x.shape}")
    _check_size(sizes)
    rounding = _ROUNDED.get(node.text("nearest_mode", "round_prefer_floor"))
    if rounding is None:
        raise ModelError("its way to round is not supported")
    for axis, (scale, out) in enumerate(zip(scales, sizes, strict=True)):
        size = x.shape[axis]
        if out == size:
            continue
        places = _places(
            node.text("coordinate_transformation_mode", "half_pixel"), out, size, scale
        )
        x = np.take(x, np.clip(rounding(places).astype(np.int64), 0, size - 1), axis)
    return [x]


def _scales_and_sizes(call: Call, x: Constant) -> tuple[list[np.float32], list[int]]:
    first = 1 if call.opset < 11 else 2
    if call.node.attributes.get("axes") or call.node.text(
        "keep_aspect_ratio_policy", "stretch"
    ) != ("stretch"):
        raise ModelError("axes and aspect ratios are not supported")
    given = call.constant(first)
    if given is not None and given.size:
        scales = [np.float32(each) for each in given.reshape(-1)]
        if not bool(np.isfinite(given).all() and (given > 0).all()):
            raise ModelError("its scales must be positive numbers")
        return scales, [int(size * scale) for size, scale in zip(x.shape, scales, strict=True)]
    sizes = call.whole_numbers(3) or []
    return [np.float32(out / size) for out, size in zip(sizes, x.shape, strict=True)], sizes


def _places(mode: str, out: int, size: int, scale: np.float32) -> Any:
    """Return for each pixel of a result its coordinate in the source, along one axis.

    The axis has `out` pixels in the result, and `size` pixels in the source. `scale` is the
    result's size divided by the source's size. `mode` is the attribute
    coordinate_transformation_mode.
    """
    numbers, half = np.arange(out, dtype=np.float32), np.float32(0.5)
    match mode:
        case "asymmetric":
            return numbers / scale
        case "half_pixel":
            return (numbers + half) / scale - half
        case "pytorch_half_pixel":
            return (numbers + half) / scale - half if out > 1 else numbers * 0
        case "align_corners":
            return numbers * np.float32(size - 1) / np.float32(out - 1) if out > 1 else numbers * 0
        case _:
            raise ModelError(f"coordinates by {mode} are not supported")


ELEMENT_MOVES: Mapping[str, Callable[[Call, Any], list[Any]]] = {
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Gather": _gather,
    "Pad": _pad,
    "Resize": _resize,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Tile": _tile,
}
"""Functions that move the elements of an array; the key is the kind of operator."""
