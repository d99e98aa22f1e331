# SPDX-License-Identifier: Apache-2.0
"""The pixels of a map, and their weights, that LiteRT's RESIZE_BILINEAR of integers mixes for each
pixel of the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BILINEAR_BITS = 10
"""Number of fractional bits of a fixed-point position along an axis. Positions are in pixels.
"""


@dataclass(frozen=True, eq=False)
class Places:
    """A list with a position in a map, along one axis, for each pixel of a resized map.

    The position is called a place. A pixel of the result is a mix of the two pixels of the map
    around its place. The map has `size` pixels along the axis.
    """

    size: int
    lower: NDArray[np.int64]
    """Index of the map's pixel just before each place, counted from 0."""
    upper: NDArray[np.int64]
    """Index of the map's pixel just after each place, counted from 0. The index equals `lower` if
    the place is on a pixel or at an edge of the map.
    """
    share: NDArray[np.int64]
    """Weight of pixel `upper` in each result, in units of 2^-BILINEAR_BITS. Pixel `lower` has the
    rest of the weight, up to 1.
    """

    @property
    def count(self) -> int:
        """Number of pixels of the result along the axis."""
        return len(self.lower)


def bilinear_places(
    size: int, out: int, *, align_corners: bool, half_pixel_centers: bool
) -> Places:
    """Return the places in a map of `size` pixels for the `out` pixels of the resized map.

    The arithmetic is the same as in LiteRT's ResizeBilinearInteger.
    """
    one = 1 << BILINEAR_BITS
    if align_corners and out > 1:
        scale = (one * (size - 1) + (out - 1) // 2) // (out - 1)
    else:
        scale = (one * size + out // 2) // out
    place = np.arange(out) * scale
    if half_pixel_centers:
        place += scale // 2 - one // 2
    lower = np.clip(place // one, 0, size - 1)
    upper = np.clip(-(-place // one), 0, size - 1)
    return Places(size, lower, upper, place - one * lower)
