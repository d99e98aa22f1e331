# SPDX-License-Identifier: Apache-2.0
"""int16 values in the unified buffer: low bytes in one line, high bytes in the next."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def joined(pairs: NDArray[np.int8]) -> NDArray[np.int16]:
    """Join pairs of lines to int16 values: (..., 2, bytes) to (..., bytes)."""
    low = pairs[..., 0, :].astype(np.int16) & 0xFF
    return low | pairs[..., 1, :].astype(np.int16) << 8


def parted(values: NDArray[np.int16]) -> NDArray[np.int8]:
    """Split int16 values into pairs of lines: (..., bytes) to (..., 2, bytes)."""
    return np.stack((values & 0xFF, values >> 8), axis=-2).astype(np.int8)
