# SPDX-License-Identifier: Apache-2.0
"""Gathers the pixels under the taps of windows, and puts them back into maps.

A tap is a place in a window. A map is (height * width, channels).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.training.windows import Window


def gathered(maps: NDArray[Any], window: Window) -> NDArray[Any]:
    """Return the pixels under the taps of each window, (samples, windows, taps, channels).

    Pixels outside the map are zeros.
    """
    outside = np.zeros((len(maps), 1, maps.shape[2]), maps.dtype)
    return np.concatenate((maps, outside), axis=1)[:, _pixels(window)]


def spread(taps: NDArray[Any], window: Window) -> NDArray[Any]:
    """Return maps, (samples, height * width, channels), in which each pixel is a sum over its taps.

    `taps`: a number for each tap, (samples, windows, taps, channels). A pixel adds up all taps that
    lie on it. Taps outside the map are dropped.
    """
    size = window.map[0] * window.map[1]
    found = np.zeros((len(taps), size, taps.shape[3]), taps.dtype)
    for tap, pixels in enumerate(_pixels(window).T):
        (inside,) = np.nonzero(pixels < size)
        found[:, pixels[inside]] += taps[:, inside, tap]
    return found


@cache
def _pixels(window: Window) -> NDArray[np.intp]:
    """Return the index of the pixel under each tap, row by row from 0, (windows, taps).

    A tap outside the map has the index height * width.
    """
    axes: list[NDArray[np.intp]] = []
    for axis in range(2):
        first = np.arange(window.out[axis]) * window.stride[axis] - window.before[axis]
        axes.append(first[:, np.newaxis] + np.arange(window.kernel[axis]))
    height, width = window.map
    y, x = axes[0][:, np.newaxis, :, np.newaxis], axes[1][np.newaxis, :, np.newaxis, :]
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    return np.where(inside, y * width + x, height * width).reshape(-1, window.taps)
