# SPDX-License-Identifier: Apache-2.0
"""Finds losses and metrics by Keras's names, in any case and spelling that Keras has for them."""

from __future__ import annotations

from collections.abc import Mapping

from systola.training.checks import shown
from systola.training.errors import TrainingError
from systola.training.loss import BINARY, LOSSES

SPARSE, CATEGORICAL = "sparse_categorical_crossentropy", "categorical_crossentropy"
_LONG = {"mse": "mean_squared_error", "mae": "mean_absolute_error"}
"""Keras's long names of losses and metrics by their short names."""
_ERRORS = ("mse", "mae")
ACCURACIES = ("accuracy", "acc")
"""Short names that stand for the accuracy that goes with a loss."""
OWN_ACCURACY = {
    SPARSE: "sparse_categorical_accuracy",
    CATEGORICAL: "categorical_accuracy",
    BINARY: "binary_accuracy",
}
"""Long name of the accuracy that goes with each loss."""
METRICS: Mapping[str, tuple[str, ...]] = {
    SPARSE: (*ACCURACIES, OWN_ACCURACY[SPARSE]),
    CATEGORICAL: (*ACCURACIES, OWN_ACCURACY[CATEGORICAL], *_ERRORS),
    BINARY: (*ACCURACIES, OWN_ACCURACY[BINARY], *_ERRORS),
    "mse": (*ACCURACIES, "categorical_accuracy", "binary_accuracy", *_ERRORS),
}
"""Names of the metrics that go with each loss."""


def loss_name(given: object) -> str:
    """Return the name that a loss has in LOSSES; raise TrainingError for an unknown loss."""
    return _known("loss", given, LOSSES, "")


def metric_name(given: object, loss: str) -> str:
    """Return the name that a metric has in METRICS[loss]; raise TrainingError for an unknown
    metric.
    """
    return _known("metric", given, METRICS[loss], f" with loss {loss}")


def _known(what: str, given: object, known: tuple[str, ...], more: str) -> str:
    """Return the name in `known` that `given` stands for: case and underscores do not matter."""
    spellings = {_letters(name): name for name in known}
    spellings |= {_letters(_LONG[name]): name for name in known if name in _LONG}
    found = spellings.get(_letters(given)) if isinstance(given, str) else None
    if found is None:
        raise TrainingError(f"{what} {shown(given)} is not there{more} (known: {', '.join(known)})")
    return found


def _letters(name: str) -> str:
    return name.replace("_", "").lower()
