# SPDX-License-Identifier: Apache-2.0
"""ReduceLROnPlateau: a smaller learning rate when a training no longer gets better."""

from __future__ import annotations

from systola.training.arguments import constructor
from systola.training.callbacks.callback import Logs
from systola.training.callbacks.learning_rate_log import begin_rate_log, log_rate
from systola.training.callbacks.monitor import Monitor
from systola.training.checks import real, whole
from systola.training.errors import TrainingError
from systola.training.schedules import LEAST_RATE


@constructor()
class ReduceLROnPlateau(Monitor):
    """A callback that reduces the learning rate when a number no longer gets better.

    The number is `monitor`, see Monitor. After `patience` epochs in which the number got no better,
    the rate is multiplied by `factor`. The callback then waits `cooldown` epochs before it counts
    again. The rate never falls below `min_lr`, or below the least rate of the machine.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 0,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.factor = real("factor", factor)
        if not 0 < self.factor < 1:
            raise TrainingError(f"factor must be above 0 and below 1, not {self.factor}")
        self.patience = whole("patience", patience, 0)
        self.verbose = whole("verbose", verbose, 0, 1)
        self.cooldown = whole("cooldown", cooldown, 0)
        self.min_lr = real("min_lr", min_lr)
        self._reset()

    def _reset(self) -> None:
        self.wait = self.cooldown_counter = 0
        self.best = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Begin to count the epochs in which the monitored number gets no better."""
        super().on_train_begin(logs)
        begin_rate_log(self.model)
        self._reset()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Reduce the learning rate after too many epochs in which the monitored number got no
        better.
        """
        log_rate(self.model, logs)
        current = (logs or {}).get(self.monitor)
        if current is None:
            return
        if self.cooldown_counter:
            self.cooldown_counter -= 1
            self.wait = 0
        if self.is_better(current, self.best):
            self.best, self.wait = current, 0
        elif not self.cooldown_counter:
            self.wait += 1
            if self.wait >= self.patience:
                self._reduce(epoch)

    def _reduce(self, epoch: int) -> None:
        optimizer = self.model.optimizer
        least = max(self.min_lr, LEAST_RATE)
        if optimizer.learning_rate <= least:
            return
        optimizer.learning_rate = max(optimizer.learning_rate * self.factor, least)
        if self.verbose:
            rate = optimizer.learning_rate
            print(f"\nEpoch {epoch + 1}: ReduceLROnPlateau reducing learning rate to {rate}.")
        self.cooldown_counter, self.wait = self.cooldown, 0
