# SPDX-License-Identifier: Apache-2.0
"""EarlyStopping: ends a training that no longer gets better."""

from __future__ import annotations

from systola.training.arguments import constructor
from systola.training.callbacks.callback import Logs
from systola.training.callbacks.monitor import Monitor
from systola.training.checks import flag, real, whole
from systola.training.state import State


@constructor()
class EarlyStopping(Monitor):
    """A callback that stops the training after `patience` epochs in which a number got no better.

    The number is `monitor`, see Monitor. Epochs before `start_from_epoch` do not count. If there is
    a `baseline`, a number must also be better than the baseline to begin the count anew. With
    `restore_best_weights` the model finally gets back every byte that it had after the best epoch.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.patience = whole("patience", patience, 0)
        self.verbose = whole("verbose", verbose, 0, 1)
        self.baseline = None if baseline is None else real("baseline", baseline)
        self.restore_best_weights = flag("restore_best_weights", restore_best_weights)
        self.start_from_epoch = whole("start_from_epoch", start_from_epoch, 0)
        self._reset()

    def _reset(self) -> None:
        self.wait = self.stopped_epoch = self.best_epoch = 0
        self.best = None
        self._best_state: State | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Begin to count the epochs in which the monitored number gets no better."""
        super().on_train_begin(logs)
        self._reset()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Stop the training after too many epochs in which the monitored number got no better."""
        current = (logs or {}).get(self.monitor)
        if current is None or epoch < self.start_from_epoch:
            return
        self.wait += 1
        if self.is_better(current, self.best):
            self.best, self.best_epoch = current, epoch
            if self.restore_best_weights:
                self._best_state = self.model.state()
            if self.baseline is None or self.is_better(current, self.baseline):
                self.wait = 0
        elif self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Restore the state that the model had after the best epoch, if `restore_best_weights`."""
        if self.stopped_epoch and self.verbose:
            print(f"Epoch {self.stopped_epoch + 1}: early stopping")
        if self._best_state is None:
            return
        if self.verbose:
            print(f"Restoring model weights from the end of the best epoch: {self.best_epoch + 1}.")
        model = self.model
        epochs, steps = model.epochs, model.steps
        model.restore(self._best_state, model.input_bits, epochs=epochs, steps=steps)
