# SPDX-License-Identifier: Apache-2.0
"""Computes poolings, the largest pixel or the mean of each window, and their backward pass."""

from __future__ import annotations

import numpy as np

from systola.training.fast.arithmetic import Narrow, narrow, scaled
from systola.training.fast.windows import gathered, spread
from systola.training.moves import mean_entry
from systola.training.windows import Window


def largest(maps: Narrow, window: Window) -> Narrow:
    """Return the largest pixel of each window, (samples, windows, channels)."""
    return gathered(maps, window).max(axis=2)


def routes(maps: Narrow, window: Window) -> Narrow:
    """Return marks, (samples, windows, taps, channels): 1 for the first largest pixel of a window,
    else 0.
    """
    first = gathered(maps, window).argmax(axis=2)
    taps = np.arange(window.taps)[:, np.newaxis]
    return (taps == first[:, :, np.newaxis]).astype(np.int8)


def back(gradient: Narrow, marks: Narrow, window: Window) -> Narrow:
    """Return maps with the gradient of each window at its marked pixel, zeros elsewhere."""
    return spread(gradient[:, :, np.newaxis] * marks, window)


def means(maps: Narrow, window: Window) -> Narrow:
    """Return the mean of each window, (samples, windows, channels)."""
    sums = gathered(maps, window).sum(axis=2, dtype=np.int32)
    return narrow(scaled(sums, mean_entry(window)))


def back_to_all(gradient: Narrow, window: Window) -> Narrow:
    """Return maps with the gradient of each window at all of its pixels, zeros elsewhere."""
    samples, windows, channels = gradient.shape
    taps = np.broadcast_to(gradient[:, :, np.newaxis], (samples, windows, window.taps, channels))
    return spread(taps, window)
