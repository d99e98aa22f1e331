# SPDX-License-Identifier: Apache-2.0
"""Training on the machine: Keras's names, int8 block floating point, every step a program."""

from systola.training.callbacks import Callback, History
from systola.training.errors import TrainingError
from systola.training.layers import Activation, Dense, Dropout, Flatten, Input, ReLU
from systola.training.model import Sequential

__all__ = [
    "Activation",
    "Callback",
    "Dense",
    "Dropout",
    "Flatten",
    "History",
    "Input",
    "ReLU",
    "Sequential",
    "TrainingError",
]
