# SPDX-License-Identifier: Apache-2.0
"""Computes units of a curve from int8 sums, with the same numbers as `systola.training.curved`."""

from __future__ import annotations

import numpy as np

from systola.training.curves import CURVES, scaled_up
from systola.training.fast.arithmetic import Narrow, narrow, scaled
from systola.training.passes import mask_entry
from systola.training.stages import Stage
from systola.training.writer import shifted


def curved(stage: Stage, sums: Narrow) -> tuple[Narrow, Narrow]:
    """Return the units of a stage with a curve, and the slopes of the curve."""
    curve, place = CURVES[stage.curve], sums.view(np.uint8)
    return curve.values()[place], curve.slopes()[place]


def scale_up(stage: Stage, units: Narrow) -> Narrow:
    """Multiply the units of a curve with the scale of Dropout, 1 / (1 - rate)."""
    scale = scaled_up(stage.curve, stage.rate)
    return narrow(scaled(units, shifted(scale.right, multiplier=scale.multiplier)))


def masked(stage: Stage, gradient: Narrow, mask: Narrow) -> Narrow:
    """Return the gradient of a stage's sums, from the gradient of the stage's units and the stage's
    mask.
    """
    if not stage.curve:
        return gradient * mask
    return narrow(scaled(np.multiply(gradient, mask, dtype=np.int32), mask_entry(stage)))
