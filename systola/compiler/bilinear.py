# SPDX-License-Identifier: Apache-2.0
"""The pixels that LiteRT's RESIZE_BILINEAR of integers mixes, and their shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BILINEAR_BITS = 10
"""Number of fractional bits of LiteRT's places between pixels."""


@dataclass(frozen=True, eq=False)
class Places:
    """The places of all pixels of a result along one axis, between the `size` pixels of a map."""

    size: int
    lower: NDArray[np.int64]
    """Number of the pixel before each place."""
    upper: NDArray[np.int64]
    """Number of the pixel after each place, or of the same one at an edge or on a pixel."""
    share: NDArray[np.int64]
    """Share of the upper pixel, in units of 2^-BILINEAR_BITS; the lower one has the rest."""

    @property
    def count(self) -> int:
        """Number of pixels of the result."""
        return len(self.lower)


def bilinear_places(
    size: int, out: int, *, align_corners: bool, half_pixel_centers: bool
) -> Places:
    """Return the places of `out` pixels among `size`, as ResizeBilinearInteger calculates them."""
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
