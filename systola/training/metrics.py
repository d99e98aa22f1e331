# SPDX-License-Identifier: Apache-2.0
"""Measures loss and metrics of samples, batch by batch, as Keras counts them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from systola.training.loss import BINARY
from systola.training.names import metric_name
from systola.training.numbers import LOGIT_BITS
from systola.training.stages import Stage

Numbers = NDArray[np.float64]
_PROBABILITY = 32767
"""The int16 code of the label 1.0, if labels are probabilities."""


class Totals:
    """A collector of the sums of the loss and of each metric over batches.

    `metrics`: names as compile() got them.
    """

    def __init__(self, metrics: Sequence[str], loss: str, last: Stage) -> None:
        self._metrics = [metric_name(name, loss) for name in metrics]
        self._names = ["loss", *metrics]
        self._loss, self._last = loss, last
        self._count = 0
        self._sums = np.zeros(len(self._names))

    def add(self, loss: float, logits: Numbers, targets: NDArray[np.int16]) -> None:
        """Add a batch: the sum of its losses, and its logits and targets, (samples, units)."""
        self._count += len(targets)
        found = [self._measured(name, logits, targets).sum() for name in self._metrics]
        self._sums += [loss, *found]

    def logs(self) -> dict[str, float]:
        """Return the means of loss and metrics over the samples so far, by name."""
        return dict(zip(self._names, (self._sums / self._count).tolist(), strict=True))

    def _measured(self, metric: str, logits: Numbers, targets: NDArray[np.int16]) -> Numbers:
        """Return the value of a metric for each sample."""
        if metric in ("mse", "mae"):
            bits = 2**LOGIT_BITS if self._loss == "mse" else _PROBABILITY
            error = self._outputs(logits) - targets / bits
            return (error**2 if metric == "mse" else abs(error)).mean(axis=1)
        if self._loss == BINARY:
            return ((logits > 0) == (targets > _PROBABILITY // 2)).mean(axis=1)
        if metric == "binary_accuracy" or (self._loss == "mse" and logits.shape[1] == 1):
            ones = self._outputs(logits) > 0.5
            return (ones == targets / 2**LOGIT_BITS).mean(axis=1)
        return (logits.argmax(axis=1) == targets.argmax(axis=1)).astype(np.float64)

    def _outputs(self, logits: Numbers) -> Numbers:
        """Return the outputs of the network in float64; predict() gives them with only 15 bits."""
        if self._last.sigmoid:
            return 1 / (1 + np.exp(-logits))
        if self._last.softmax:
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            return powers / powers.sum(axis=1, keepdims=True)
        return logits
