# SPDX-License-Identifier: Apache-2.0
"""Training on the machine: Keras's names, int8 block floating point, every step a program."""

from systola.training import mixed_precision
from systola.training.callbacks import (
    Callback,
    CSVLogger,
    EarlyStopping,
    History,
    LambdaCallback,
    LearningRateScheduler,
    ModelCheckpoint,
    ReduceLROnPlateau,
    TerminateOnNaN,
)
from systola.training.checkpoint import load
from systola.training.errors import TrainingError
from systola.training.functional import Model
from systola.training.keras_model import from_keras, to_keras
from systola.training.layers import (
    LSTM,
    Activation,
    Add,
    AveragePooling1D,
    AveragePooling2D,
    Concatenate,
    Conv1D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalMaxPooling1D,
    GlobalMaxPooling2D,
    Input,
    MaxPooling1D,
    MaxPooling2D,
    ReLU,
    Rescaling,
)
from systola.training.model import Sequential
from systola.training.not_there import INSTEAD
from systola.training.optimizers import SGD, Adam, AdamW, RMSprop
from systola.training.schedules import (
    CosineDecay,
    CosineDecayRestarts,
    ExponentialDecay,
    InverseTimeDecay,
    PiecewiseConstantDecay,
    PolynomialDecay,
)

__all__ = [
    "LSTM",
    "SGD",
    "Activation",
    "Adam",
    "AdamW",
    "Add",
    "AveragePooling1D",
    "AveragePooling2D",
    "CSVLogger",
    "Callback",
    "Concatenate",
    "Conv1D",
    "Conv2D",
    "CosineDecay",
    "CosineDecayRestarts",
    "Dense",
    "DepthwiseConv2D",
    "Dropout",
    "EarlyStopping",
    "Embedding",
    "ExponentialDecay",
    "Flatten",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "History",
    "Input",
    "InverseTimeDecay",
    "LambdaCallback",
    "LearningRateScheduler",
    "MaxPooling1D",
    "MaxPooling2D",
    "Model",
    "ModelCheckpoint",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
    "RMSprop",
    "ReLU",
    "ReduceLROnPlateau",
    "Rescaling",
    "Sequential",
    "TerminateOnNaN",
    "TrainingError",
    "from_keras",
    "load",
    "mixed_precision",
    "to_keras",
]


def __getattr__(name: str) -> object:
    """Raise TrainingError for a name of Keras that is not there, AttributeError for any other."""
    if name in INSTEAD:
        raise TrainingError(f"{name} is not there: {INSTEAD[name]}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
