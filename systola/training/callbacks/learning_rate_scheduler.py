# SPDX-License-Identifier: Apache-2.0
"""LearningRateScheduler: a function makes the learning rate of each epoch."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

from systola.training.arguments import constructor
from systola.training.callbacks.callback import Callback, Logs
from systola.training.callbacks.learning_rate_log import begin_rate_log, log_rate
from systola.training.checks import real, shown, whole
from systola.training.errors import TrainingError


@constructor()
class LearningRateScheduler(Callback):
    """A callback that sets the rate before each epoch, to the result of `schedule`.

    The arguments of `schedule` are the number of the epoch, from 0, and the present rate. The rate
    is left out if `schedule` takes one argument. Raises TrainingError if `schedule` is no function,
    and if its result is no rate.
    """

    def __init__(
        self,
        schedule: Callable[[int, float], float] | Callable[[int], float],
        verbose: int = 0,
    ) -> None:
        if not callable(schedule):
            raise TrainingError(f"schedule must be a function, not {shown(schedule)}")
        self.schedule = schedule
        self.verbose = whole("verbose", verbose, 0, 1)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Raise TrainingError if a schedule of the optimiser makes the learning rate."""
        begin_rate_log(self.model)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Set the learning rate of the epoch to the result of `schedule`."""
        optimizer = self.model.optimizer
        given: list[float] = [epoch, optimizer.learning_rate]
        try:
            signature(self.schedule).bind(*given)
        except TypeError:
            given.pop()
        except ValueError:  # a function written in C has no signature
            pass
        call: Callable[..., float] = self.schedule
        optimizer.learning_rate = real("the rate that schedule returns", call(*given))
        if self.verbose:
            rate = optimizer.learning_rate
            print(f"\nEpoch {epoch + 1}: LearningRateScheduler setting learning rate to {rate}.")

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Add the learning rate of the epoch to its logs."""
        log_rate(self.model, logs)
