# SPDX-License-Identifier: Apache-2.0
"""BatchNormalization in float32 with numpy, by Keras's equations, but without gamma and beta."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.training.stages import Normalization

Floats = NDArray[np.float32]


class Normal:
    """A BatchNormalization in float32 of the last axis, with moving means and variances."""

    def __init__(self, settings: Normalization) -> None:
        self._momentum = np.float32(settings.momentum)
        self._epsilon = np.float32(settings.epsilon)
        self.mean = self.variance = self._root = self._codes = np.zeros(0, np.float32)

    def forward(self, x: Floats) -> Floats:
        """Normalise by the batch's mean and variance, and update the moving mean and variance."""
        rows = x.reshape(-1, x.shape[-1])
        mean, variance = rows.mean(axis=0), rows.var(axis=0)
        for name, found in (("mean", mean), ("variance", variance)):
            before = getattr(self, name)
            setattr(self, name, before * self._momentum + found * (1 - self._momentum))
        self._root = 1 / np.sqrt(variance + self._epsilon)
        self._codes = (rows - mean) * self._root
        return self._codes.reshape(x.shape)

    def backward(self, gradient: Floats) -> Floats:
        """Compute the gradient of the layer's inputs from the gradient of its results."""
        given = gradient.reshape(-1, gradient.shape[-1])
        slope = (given * self._codes).mean(axis=0)
        below = self._root * (given - given.mean(axis=0) - self._codes * slope)
        return below.reshape(gradient.shape)

    def at_rest(self, x: Floats) -> Floats:
        """Normalise by the moving mean and variance, as in a prediction."""
        return (x - self.mean) / np.sqrt(self.variance + self._epsilon)
