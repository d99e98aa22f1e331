# SPDX-License-Identifier: Apache-2.0
"""Trains networks on the machine, with Keras's names.

Numbers are int8 block floating point, and each training step is a program. Docstrings of this
package use these terms. docs/training.md explains the numbers.

- Fraction bits f of a tensor: a code c stands for c / 2^f. An exponent register of the machine
  holds f, or a shift.
- Masters: the int16 weights that learn. The array multiplies with int8 weights made of the masters.
- Stage: a layer with weights, and the layers after it up to the next layer with weights. A join is
  an Add or Concatenate. Stages are counted from 0.
- Sums of a stage: products of inputs and weights, added up in 32 bits.
- Units of a stage: the int8 outputs, which an activation makes of the sums.
- Result number 0 is the samples. Result number n is the output of stage n - 1.
- C: the number of columns of the array. A line has C bytes; C int16 numbers take a pair of lines.
- Block: C inputs, units, channels or samples. In shapes, [group] is a block of samples.
- Tap: a place in the window of a convolution or pooling.
- Turn: samples of a core that go through the buffer at one time. A batch takes several turns if the
  buffer has no room for all samples of a core.
- The forward pass goes from samples to logits, the backward pass from the losses to the updates.
- Moments: running means of gradients and of their squares, for Adam and RMSprop. The machine keeps
  the root of the second moment.
"""

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
    GRU,
    LSTM,
    Activation,
    Add,
    AveragePooling1D,
    AveragePooling2D,
    BatchNormalization,
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
    "GRU",
    "LSTM",
    "SGD",
    "Activation",
    "Adam",
    "AdamW",
    "Add",
    "AveragePooling1D",
    "AveragePooling2D",
    "BatchNormalization",
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
    """Raise TrainingError for a name of Keras that Systola lacks, AttributeError for any other."""
    if name in INSTEAD:
        raise TrainingError(f"{name} is not there: {INSTEAD[name]}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
