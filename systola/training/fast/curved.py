# SPDX-License-Identifier: Apache-2.0
"""The units of a curve from int8 sums, with the same numbers as `systola.training.curved`."""

from __future__ import annotations

import numpy as np

from systola.training.curves import CURVES, scaled_up
from systola.training.fast.arithmetic import Narrow, narrow, scaled
from systola.training.passes import mask_entry
from systola.training.stages import Stage
from systola.training.writer import shifted


def curved(stage: Stage, sums: Narrow) -> tuple[Narrow, Narrow]:
    """Return the units of a stage and their slopes."""
    curve, place = CURVES[stage.curve], sums.view(np.uint8)
    return curve.values()[place], curve.slopes()[place]


def scale_up(stage: Stage, units: Narrow) -> Narrow:
    """Scale the units of a curve up for Dropout."""
    scale = scaled_up(stage.curve, stage.rate)
    return narrow(scaled(units, shifted(scale.right, multiplier=scale.multiplier)))


def masked(stage: Stage, gradient: Narrow, mask: Narrow) -> Narrow:
    """Turn the gradient of the units of a stage into the gradient of its sums."""
    if not stage.curve:
        return gradient * mask
    return narrow(scaled(np.multiply(gradient, mask, dtype=np.int32), mask_entry(stage)))
