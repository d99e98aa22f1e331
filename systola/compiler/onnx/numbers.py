# SPDX-License-Identifier: Apache-2.0
"""QuantizeLinear and DequantizeLinear, exactly as ONNX Runtime calculates them in float32.

Codes and zero points are int8, as the machine has them. A uint8 code or zero point of the model is
larger by 128.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CODES = np.arange(-128, 128, dtype=np.int64)
"""All codes of int8, from -128 to 127; tables with an entry for each code have this order."""


@dataclass(frozen=True)
class Quantisation:
    """A quantisation, which gives codes a meaning: number = scale * (code - zero point)."""

    scale: np.float32
    zero_point: int
    """Zero point as an int8, also for a model with uint8."""
    unsigned: bool
    """True if the model has the codes of this quantisation as uint8, False for int8."""

    @property
    def numbers(self) -> NDArray[np.float32]:
        """Return the number for which each code stands, from code -128 on."""
        return self.scale * (CODES - self.zero_point).astype(np.float32)

    def codes(self, numbers: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the code of each number, rounded and clamped."""
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.rint(numbers / self.scale)
        # A not-a-number compares as false, and becomes the least code.
        steps = np.where(steps > -1000, np.minimum(steps, 1000), -1000)
        return np.clip(steps.astype(np.int64) + self.zero_point, -128, 127)

    def same(self, other: Quantisation) -> bool:
        """Return whether codes stand for the same numbers with both quantisations."""
        return self.scale == other.scale and self.zero_point == other.zero_point
