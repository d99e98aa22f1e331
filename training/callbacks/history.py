# SPDX-License-Identifier: Apache-2.0
"""History: the logs of all epochs."""

from __future__ import annotations

from systola.training.arguments import constructor
from systola.training.callbacks.callback import Callback, Logs


@constructor()
class History(Callback):
    """A callback that keeps the logs: `history` by name, `epoch` their numbers."""

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[float]] = {}

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Add the logs of an epoch."""
        self.epoch.append(epoch)
        for name, value in (logs or {}).items():
            self.history.setdefault(name, []).append(value)
