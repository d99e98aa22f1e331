# SPDX-License-Identifier: Apache-2.0
"""The optimiser of a model while it trains: its settings, and a learning rate that may change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from systola.training.errors import TrainingError
from systola.training.optimizers import Optimizer
from systola.training.schedules import rate_at


class _Owner(Protocol):
    """A model with an optimiser, on which compile() was called."""

    settings: dict[str, Any] | None
    steps: int

    def use_optimizer(self, optimizer: Optimizer) -> None:
        """Continue the training with another optimiser."""
        ...


class RunningOptimizer:
    """The optimiser of a model, with Keras's `learning_rate`, which may be set at any time.

    All settings of the optimiser can be read.
    """

    def __init__(self, model: _Owner) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chosen, name)

    @property
    def _chosen(self) -> Optimizer:
        assert self._model.settings is not None
        return self._model.settings["optimizer"]

    @property
    def iterations(self) -> int:
        """Number of steps trained so far."""
        return self._model.steps

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step.

        To set a rate raises TrainingError if the rate is out of range, or if a schedule makes the
        rates.
        """
        return rate_at(self._chosen.learning_rate, self._model.steps)

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self.check_settable()
        self._model.use_optimizer(replace(self._chosen, learning_rate=rate))

    def check_settable(self) -> None:
        """Raise TrainingError if a schedule makes the learning rate."""
        if not isinstance(self._chosen.learning_rate, float):
            raise TrainingError(
                "the learning rate has a schedule: compile with a number to set it in callbacks"
            )
