# SPDX-License-Identifier: Apache-2.0
"""Whose integer arithmetic a network's results equal byte by byte."""

from __future__ import annotations

from enum import Enum


class Semantics(Enum):
    """A reference interpreter, by the name that the user chooses it with."""

    LITERT_2 = "litert-2"
    """ai-edge-litert 2.3.0, reference kernels: FULLY_CONNECTED rounds once."""
    LITERT_1_2 = "litert-1.2"
    """ai-edge-litert 1.2.0, reference kernels: FULLY_CONNECTED rounds twice, as convolutions do.

    No other operator differs.
    """
    ONNX = "onnx"
    """ONNX Runtime 1.31."""
    TRAINING = "training"
    """What predict() of a network that systola.training has trained gives."""
