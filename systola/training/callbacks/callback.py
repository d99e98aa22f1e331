# SPDX-License-Identifier: Apache-2.0
"""The base of all callbacks: methods that are called during a training, named as in Keras."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Protocol

from systola.training.arguments import constructor
from systola.training.checks import items, shown
from systola.training.errors import TrainingError
from systola.training.running_optimizer import RunningOptimizer
from systola.training.state import State

Logs = dict[str, float]
"""Numbers measured in an epoch or batch, such as the loss, by name. At the end of an epoch a
callback may add numbers for the callbacks after it."""


class Model(Protocol):
    """The parts of a model that callbacks use."""

    stop_training: bool
    """Whether training ends after the present batch."""
    log_names: Sequence[str]
    """Names of the numbers in the logs of an epoch."""
    epochs: int
    steps: int

    @property
    def optimizer(self) -> RunningOptimizer:
        """The optimiser of the model, with a learning rate to read and to set."""
        ...

    @property
    def input_bits(self) -> int | None:
        """Fraction bits of the samples; None before the first samples."""
        ...

    def state(self) -> State:
        """Return everything that has been learnt."""
        ...

    def restore(self, state: State, bits: int | None, *, epochs: int, steps: int) -> None:
        """Continue the training from an earlier `state`; `bits`: fraction bits of the samples."""
        ...

    def save(self, filepath: str | PathLike[str]) -> None:
        """Save the whole model to a file."""
        ...

    def save_weights(self, filepath: str | PathLike[str]) -> None:
        """Save the weights of the model to a file."""
        ...


@constructor()
class Callback:
    """The base of callbacks: override the methods of interest. All of them can use `model`.

    Setting `model.stop_training` ends the training after the batch, or after the epoch.
    """

    model: Model
    params: Mapping[str, int]
    """Arguments of fit() by name: verbose, epochs, and steps of an epoch."""

    def __init__(self) -> None:
        pass

    def set_params(self, params: Mapping[str, int]) -> None:
        """Take the arguments of fit(), before any other method is called."""
        self.params = params

    def set_model(self, model: Model) -> None:
        """Take the model, before the training begins."""
        self.model = model

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Act before the first epoch."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Act after the last epoch."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Act before an epoch; epochs count from 0."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Act after an epoch. `logs`: loss and metrics of the epoch; if there are validation data,
        also loss and metrics of these data, with val_ before the name.
        """

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Act before a batch; batches count from 0 in each epoch."""

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Act after a batch. `logs`: loss and metrics of the epoch so far."""


CALLS = tuple(name for name in vars(Callback) if name.startswith(("on_", "set_")))
"""The names of all methods that a training calls."""


def check_callbacks(callbacks: object) -> list[Callback]:
    """Return callbacks as a list; raise TrainingError for anything else.

    An object with the methods of a callback, such as a callback of Keras, counts as a callback.
    """
    if callbacks is None:
        return []
    if isinstance(callbacks, Callback):
        return [callbacks]
    found = items("callbacks", callbacks, "callbacks")
    for each in found:
        if isinstance(each, type) or not all(callable(getattr(each, n, None)) for n in CALLS):
            raise TrainingError(f"{shown(each)} is no callback")
    return found
