# SPDX-License-Identifier: Apache-2.0
"""The choice of the interpreter to which the results of a network are equal, byte by byte."""

from __future__ import annotations

from enum import Enum


class Semantics(Enum):
    """A reference interpreter; the value is the name by which the user chooses it."""

    LITERT_2 = "litert-2"
    """Reference kernels of ai-edge-litert 2.3.0: FULLY_CONNECTED rounds once."""
    LITERT_1_2 = "litert-1.2"
    """Reference kernels of ai-edge-litert 1.2.0: FULLY_CONNECTED rounds twice, as convolutions do.

    No other operator differs from 2.3.0.
    """
    ONNX = "onnx"
    """ONNX Runtime 1.31."""
    TRAINING = "training"
    """Method `predict()` of a network that was trained with systola.training."""
