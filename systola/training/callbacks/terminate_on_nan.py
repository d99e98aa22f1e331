# SPDX-License-Identifier: Apache-2.0
"""TerminateOnNaN: ends a training with a loss of NaN or infinity."""

from __future__ import annotations

from math import isfinite

from systola.training.arguments import Only, constructor
from systola.training.callbacks.callback import Callback, Logs


@constructor(raise_error=Only((False,)))
class TerminateOnNaN(Callback):
    """A callback that stops after a batch with a loss of NaN or infinity.

    The machine computes with whole numbers, so its losses are finite: this callback is for programs
    that were written for Keras.
    """

    def __init__(self) -> None:
        pass

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Stop the training if the loss of the batch is no finite number."""
        if not isfinite((logs or {}).get("loss", 0.0)):
            print(f"Batch {batch}: Invalid loss, terminating training")
            self.model.stop_training = True
