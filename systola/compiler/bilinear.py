# SPDX-License-Identifier: Apache-2.0
"""The pixels that LiteRT's RESIZE_BILINEAR of integers mixes, and their shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BILINEAR_BITS = 10
"""Number of fractional bits of a position between two pixels, which is a fixed-point number."""


@dataclass(frozen=True, eq=False)
class Places:
    """The positions along one axis at which a resize takes its results from a map of `size` pixels.

    Each pixel of the result has a position, called a place, between two pixels of the map.
    """

    size: int
    lower: NDArray[np.int64]
    """Number of the map's pixel just before each place."""
    upper: NDArray[np.int64]
    """Number of the map's pixel just after each place; equal to `lower` on a pixel or at an edge.
    """
    share: NDArray[np.int64]
    """Share of pixel `upper` in the result, in units of 2^-BILINEAR_BITS; pixel `lower` has the
    rest.
    """

    @property
    def count(self) -> int:
        """Number of pixels of the result."""
        return len(self.lower)


def bilinear_places(
    size: int, out: int, *, align_corners: bool, half_pixel_centers: bool
) -> Places:
    """Return the places of a result of `out` pixels in a map of `size` pixels.

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
