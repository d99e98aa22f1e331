# SPDX-License-Identifier: Apache-2.0
"""QuantizeLinear and DequantizeLinear, exactly as ONNX Runtime calculates them in float32.

Codes are the machine's, int8: a uint8 of the model is 128 more, and so is its zero point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CODES = np.arange(-128, 128, dtype=np.int64)
"""All codes, in the order of tables of numbers."""


@dataclass(frozen=True)
class Quantisation:
    """A quantisation, which gives codes a meaning: number = scale * (code - zero point)."""

    scale: np.float32
    zero_point: int
    """Zero point in codes of the machine."""
    unsigned: bool
    """True if the model has uint8 here."""

    @property
    def numbers(self) -> NDArray[np.float32]:
        """Return the numbers that all codes stand for."""
        return self.scale * (CODES - self.zero_point).astype(np.float32)

    def codes(self, numbers: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the codes of numbers."""
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.rint(numbers / self.scale)
        # A not-a-number compares as false, and becomes the least code.
        steps = np.where(steps > -1000, np.minimum(steps, 1000), -1000)
        return np.clip(steps.astype(np.int64) + self.zero_point, -128, 127)

    def same(self, other: Quantisation) -> bool:
        """Return whether codes mean the same to the machine."""
        return self.scale == other.scale and self.zero_point == other.zero_point
