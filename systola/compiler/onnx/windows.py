# SPDX-License-Identifier: Apache-2.0
"""The windows of ONNX's convolutions and pools, from their common attributes."""

from __future__ import annotations

from collections.abc import Sequence

from systola.compiler.errors import ModelError
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.operations import Window

MOST = 1 << 20
"""Largest accepted kernel size, stride, dilation or padding of a window; no map is as large."""


def read_window(
    node: OnnxNode, sizes: Sequence[int], kernel: Sequence[int] | None = None
) -> Window:
    """Return the windows of a node over a map of `sizes`: rows and columns, or columns only.

    `kernel` has the kernel's sizes from the shape of the weights; it is None for a node without
    weights.
    """
    spatial = len(sizes)
    if spatial not in (1, 2):
        raise ModelError(f"a map of {spatial} dimensions is not supported")
    given = node.integers("kernel_shape", None if kernel is None else tuple(kernel))
    if kernel is not None and given != tuple(kernel):
        raise ModelError(f"its kernel_shape {given} is not that of its weights")
    strides = node.integers("strides", (1,) * spatial)
    dilations = node.integers("dilations", (1,) * spatial)
    pads = node.integers("pads", (0,) * (2 * spatial))
    if not (len(given) == len(strides) == len(dilations) == spatial and len(pads) == 2 * spatial):
        raise ModelError("its kernel, strides, dilations and pads do not fit one another")
    if min(*given, *strides, *dilations) < 1 or min(pads) < 0:
        raise ModelError("its window, strides and dilations must be at least 1, its pads 0")
    if max(*given, *strides, *dilations, *pads) > MOST:
        raise ModelError("its window is too large")
    automatic = node.text("auto_pad", "NOTSET")
    first: list[int] = []
    out: list[int] = []
    for axis, size in enumerate(sizes):
        extent = (given[axis] - 1) * dilations[axis] + 1
        before, behind = pads[axis], pads[axis + spatial]
        if automatic in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-size // strides[axis])
            total = max((count - 1) * strides[axis] + extent - size, 0)
            before = total // 2 if automatic == "SAME_UPPER" else total - total // 2
        elif automatic in ("NOTSET", "VALID"):
            if automatic == "VALID":
                before = behind = 0
            room = size + before + behind - extent
            if node.integer("ceil_mode", 0):
                count = -(-room // strides[axis]) + 1
                # A last window that would begin in the padding at the end of the map is left out.
                count -= (count - 1) * strides[axis] >= size + before
            else:
                count = room // strides[axis] + 1
        else:
            raise ModelError(f"auto_pad {automatic} is not supported")
        if count < 1:
            raise ModelError(f"its window does not fit a map of {tuple(sizes)}")
        first.append(-before)
        out.append(count)
    one = (1,) * (2 - spatial)
    return Window(
        kernel=_pair(one, given),
        stride=_pair(one, strides),
        dilation=_pair(one, dilations),
        first=_pair((0,) * (2 - spatial), first),
        out=_pair(one, out),
    )


def _pair(before: Sequence[int], values: Sequence[int]) -> tuple[int, int]:
    first, second = (*before, *values)
    return first, second
