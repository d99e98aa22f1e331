# SPDX-License-Identifier: Apache-2.0
"""Shows the progress of a training on the terminal."""

from __future__ import annotations

from typing import NoReturn

from tqdm import tqdm

from systola.training.callbacks import Callback, Logs


class Progress(Callback):
    """A callback that shows a progress bar for each epoch; with `verbose` 0 it shows nothing.

    The bar of an epoch stays on the terminal, with loss and metrics of the epoch.
    """

    def __init__(self, verbose: int, epochs: int, batches: int) -> None:
        self.batches = batches
        self._silent = not verbose
        self._epochs = epochs
        self._bar: tqdm[NoReturn] | None = None

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Show a new progress bar for the epoch."""
        title = f"Epoch {epoch + 1}/{self._epochs}"
        self._bar = tqdm(total=self.batches, desc=title, unit="step", disable=self._silent)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Move the progress bar on by one batch."""
        assert self._bar is not None
        self._bar.set_postfix_str(_text(logs or {}), refresh=False)
        self._bar.update()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """End the bar of the epoch, and leave it on the terminal with loss and metrics."""
        assert self._bar is not None
        self._bar.set_postfix_str(_text(logs or {}))
        self._bar.close()


def _text(logs: Logs) -> str:
    return " - ".join(f"{name}: {value:.4f}" for name, value in logs.items())
