# SPDX-License-Identifier: Apache-2.0
"""History: the logs of all epochs."""

from __future__ import annotations

from collections.abc import Callable

from systola.training.arguments import constructor
from systola.training.callbacks.callback import Callback, Logs
from systola.training.step_energy import StepEnergy


@constructor()
class History(Callback):
    """A callback that keeps the logs of all epochs.

    `history`: for each name of the logs, a list with the value of each epoch. `epoch`: the numbers
    of the epochs, from 0. `energy`: the energy of a training step, with the number of operations.
    """

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[float]] = {}
        self.count_energy: Callable[[], StepEnergy | None] | None = None
        """Function that counts the energy of a step. fit() sets it, and `energy` calls it."""

    @property
    def energy(self) -> StepEnergy | None:
        """The energy of a training step, counted when this property is read.

        It is None before fit() has returned, and if the machine has no program for the step.
        """
        return self.count_energy() if self.count_energy else None

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Add the logs of an epoch to `history`, and its number to `epoch`."""
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)
