# SPDX-License-Identifier: Apache-2.0
"""What is told of a training under way; names and calls are those of Keras."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Protocol

from systola.training.checkpoint_names import EPOCH, CheckpointNames
from systola.training.checks import items, shown
from systola.training.errors import TrainingError

Logs = Mapping[str, float]


class Model(Protocol):
    """What callbacks may do with the model: stop after this epoch, and save it."""

    stop_training: bool
    log_names: Sequence[str]
    """Names in the logs of an epoch."""

    def save(self, filepath: str | PathLike[str]) -> None:
        """Saves it."""
        ...


class Callback:
    """Override what is wanted; `model` is there from on_train_begin on.

    Setting `model.stop_training` ends the training after the epoch.
    """

    model: Model

    def set_model(self, model: Model) -> None:
        """Called before everything else."""
        self.model = model

    def on_train_begin(self) -> None:
        """Before the first epoch."""

    def on_train_end(self) -> None:
        """After the last one."""

    def on_epoch_begin(self, epoch: int) -> None:
        """Epochs count from 0."""

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """`logs`: loss, metrics, and the same with val_ before them."""

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        """`logs`: loss and metrics of the epoch so far."""


_CALLS = tuple(name for name in vars(Callback) if name.startswith(("on_", "set_")))


def check_callbacks(callbacks: object) -> list[Callback]:
    """Return callbacks as a list; raise TrainingError for what is no list of them. Callbacks of
    Keras have the same methods, and so they will do."""
    if callbacks is None:
        return []
    if isinstance(callbacks, Callback):
        return [callbacks]
    found = items("callbacks", callbacks, "callbacks")
    for each in found:
        if isinstance(each, type) or not all(callable(getattr(each, n, None)) for n in _CALLS):
            raise TrainingError(f"{shown(each)} is no callback")
    return found


class History(Callback):
    """Keeps the logs: `history` by name, `epoch` their numbers."""

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[float]] = {}

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """Adds the logs of an epoch."""
        self.epoch.append(epoch)
        for name, value in logs.items():
            self.history.setdefault(name, []).append(value)


class ModelCheckpoint(Callback):
    """A callback that saves the model after each epoch.

    `path` may have {epoch}, from 1, and the names of logs in it, as in `digits{val_loss:.2f}.tpu`.
    Raises TrainingError where it is no such pattern.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._names = CheckpointNames(os.fspath(path))

    def on_train_begin(self) -> None:
        """Raise TrainingError for unknown names, OSError where no file can be written."""
        self._names.check_fields((EPOCH, *self.model.log_names))
        self._names.check_writable()

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """Save the model."""
        self.model.save(self._names.name({EPOCH: epoch + 1, **logs}))
