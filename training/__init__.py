# SPDX-License-Identifier: Apache-2.0
"""Training on the machine: Keras's names, int8 block floating point, every step a program."""

from systola.training.callbacks import Callback, History, ModelCheckpoint
from systola.training.checkpoint import load
from systola.training.errors import TrainingError
from systola.training.keras_model import from_keras, to_keras
from systola.training.layers import (
    LSTM,
    Activation,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Input,
    MaxPooling2D,
    ReLU,
)
from systola.training.model import Sequential
from systola.training.not_there import INSTEAD
from systola.training.optimizers import SGD

__all__ = [
    "LSTM",
    "SGD",
    "Activation",
    "Callback",
    "Conv2D",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "History",
    "Input",
    "MaxPooling2D",
    "ModelCheckpoint",
    "ReLU",
    "Sequential",
    "TrainingError",
    "from_keras",
    "load",
    "to_keras",
]


def __getattr__(name: str) -> object:
    """Raise TrainingError for a name of Keras that is not there, AttributeError for any other."""
    if name in INSTEAD:
        raise TrainingError(f"{name} is not there: {INSTEAD[name]}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
