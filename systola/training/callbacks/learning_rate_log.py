# SPDX-License-Identifier: Apache-2.0
"""Adds the learning rate to the logs, for callbacks that change it."""

from __future__ import annotations

from systola.training.callbacks.callback import Logs, Model

NAME = "learning_rate"


def begin_rate_log(model: Model) -> None:
    """Add the learning rate to the names of a model's logs.

    Raises TrainingError if a schedule makes the rate.
    """
    model.optimizer.check_settable()
    if NAME not in model.log_names:
        model.log_names = (*model.log_names, NAME)


def log_rate(model: Model, logs: Logs | None) -> None:
    """Add the learning rate of an epoch to its logs."""
    if logs is not None:
        logs[NAME] = model.optimizer.learning_rate
