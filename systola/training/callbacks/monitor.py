# SPDX-License-Identifier: Apache-2.0
"""The base of callbacks that look at one number in the logs of each epoch."""

from __future__ import annotations

from systola.training.callbacks.callback import Callback, Logs
from systola.training.checks import check_name, choice, real
from systola.training.errors import TrainingError

MODES = ("auto", "min", "max")


class Monitor(Callback):
    """A callback that compares the number `monitor` of each epoch with the best number so far.

    `mode` is "min" where small numbers are better, and "max" where large numbers are; "auto" is
    "max" for accuracies. A number that is better by no more than `min_delta` does not count as
    better. Raises TrainingError for other arguments.
    """

    def __init__(self, monitor: str, mode: str, min_delta: float = 0.0) -> None:
        check_name("monitor", monitor)
        self.monitor = monitor
        self.mode = choice("mode", mode, MODES)
        self.min_delta = abs(real("min_delta", min_delta))
        self.best: float | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Raise TrainingError if the logs of epochs will not have the number `monitor`."""
        known = self.model.log_names
        if self.monitor not in known:
            more = ": give validation_data" if self.monitor.startswith("val_") else ""
            raise TrainingError(
                f"{type(self).__name__} monitors '{self.monitor}', which is not there "
                f"(known: {', '.join(known)}){more}"
            )

    def is_better(self, value: float, best: float | None) -> bool:
        """Return whether a value is better than the best value so far. Any value is better than
        None, the best value at first.
        """
        if best is None:
            return True
        rises = self.mode == "max" or (self.mode == "auto" and "acc" in self.monitor.lower())
        return value - self.min_delta > best if rises else value + self.min_delta < best
