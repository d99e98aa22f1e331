# SPDX-License-Identifier: Apache-2.0
"""LambdaCallback: functions that are called during a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from systola.training.arguments import constructor
from systola.training.callbacks.callback import Callback
from systola.training.checks import shown
from systola.training.errors import TrainingError

Function = Callable[..., Any] | None


@constructor()
class LambdaCallback(Callback):
    """A callback that is made of functions.

    Each argument has the name of a method of Callback, such as on_epoch_end, and is a function with
    the arguments of that method. Raises TrainingError for anything that cannot be called.
    """

    def __init__(
        self,
        on_epoch_begin: Function = None,
        on_epoch_end: Function = None,
        on_train_begin: Function = None,
        on_train_end: Function = None,
        on_train_batch_begin: Function = None,
        on_train_batch_end: Function = None,
    ) -> None:
        functions = {
            "on_epoch_begin": on_epoch_begin,
            "on_epoch_end": on_epoch_end,
            "on_train_begin": on_train_begin,
            "on_train_end": on_train_end,
            "on_train_batch_begin": on_train_batch_begin,
            "on_train_batch_end": on_train_batch_end,
        }
        for name, function in functions.items():
            if function is None:
                continue
            if not callable(function):
                raise TrainingError(f"{name} must be a function, not {shown(function)}")
            setattr(self, name, function)
