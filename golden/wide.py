# SPDX-License-Identifier: Apache-2.0
"""int16 values in the unified buffer: low bytes in one line, high bytes in the next."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def joined(pairs: NDArray[np.int8]) -> NDArray[np.int16]:
    """The int16 values of pairs of lines: (..., 2, bytes) to (..., bytes)."""
    low = pairs[..., 0, :].astype(np.int16) & 0xFF
    return low | pairs[..., 1, :].astype(np.int16) << 8


def parted(values: NDArray[np.int16]) -> NDArray[np.int8]:
    """The pairs of lines of int16 values: (..., bytes) to (..., 2, bytes)."""
    return np.stack((values & 0xFF, values >> 8), axis=-2).astype(np.int8)
