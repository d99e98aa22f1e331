# SPDX-License-Identifier: Apache-2.0
"""ModelCheckpoint: saves the model epoch by epoch."""

from __future__ import annotations

import os
from os import PathLike

from systola.training.arguments import Only, constructor
from systola.training.callbacks.callback import Logs
from systola.training.callbacks.monitor import Monitor
from systola.training.checkpoint_names import EPOCH, CheckpointNames
from systola.training.checks import flag, real, whole
from systola.training.paths import check_path
from systola.training.weight_files import check_weights_path


@constructor(save_freq=Only(("epoch",), "models are saved after epochs"))
class ModelCheckpoint(Monitor):
    """A callback that saves the model after each epoch, or the weights alone.

    `filepath` may have fields: {epoch}, from 1, and names of logs, as in
    `digits{val_loss:.2f}.tpu`. With `save_best_only` an epoch is saved only if it is better than
    all earlier epochs, and than `initial_value_threshold`. Monitor compares the epochs. Raises
    TrainingError for other arguments.
    """

    def __init__(
        self,
        filepath: str | PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        *,
        initial_value_threshold: float | None = None,
    ) -> None:
        super().__init__(monitor, mode)
        check_path(filepath)
        self._names = CheckpointNames(os.fspath(filepath))
        self.verbose = whole("verbose", verbose, 0, 1)
        self.save_best_only = flag("save_best_only", save_best_only)
        self.save_weights_only = flag("save_weights_only", save_weights_only)
        if initial_value_threshold is not None:
            self.best = real("initial_value_threshold", initial_value_threshold)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Raise TrainingError for unknown names in `filepath`, OSError if no file can be
        written.
        """
        if self.save_best_only:
            super().on_train_begin(logs)
        self._names.check_fields((EPOCH, *self.model.log_names))
        if self.save_weights_only:
            check_weights_path(str(self._names))
        self._names.check_writable()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Save the model after an epoch. With `save_best_only`, do so only after an epoch that is
        better than all earlier epochs.
        """
        logs = logs or {}
        current = logs.get(self.monitor)
        if self.save_best_only and current is not None:
            if not self.is_better(current, self.best):
                self._show(
                    f"Epoch {epoch + 1}: {self.monitor} did not improve from {self.best:.5f}"
                )
                return
            self.best = current
        path = self._names.name({EPOCH: epoch + 1, **logs})
        self._show(f"Epoch {epoch + 1}: saving model to {path}")
        save = self.model.save_weights if self.save_weights_only else self.model.save
        save(path)

    def _show(self, text: str) -> None:
        if self.verbose:
            print(f"\n{text}")
