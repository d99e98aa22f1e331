# SPDX-License-Identifier: Apache-2.0
"""Callbacks of a training, one in each file; names and arguments are Keras's."""

from systola.training.callbacks.callback import Callback, Logs, check_callbacks
from systola.training.callbacks.csv_logger import CSVLogger
from systola.training.callbacks.early_stopping import EarlyStopping
from systola.training.callbacks.history import History
from systola.training.callbacks.lambda_callback import LambdaCallback
from systola.training.callbacks.learning_rate_scheduler import LearningRateScheduler
from systola.training.callbacks.model_checkpoint import ModelCheckpoint
from systola.training.callbacks.reduce_lr_on_plateau import ReduceLROnPlateau
from systola.training.callbacks.terminate_on_nan import TerminateOnNaN

__all__ = [
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "History",
    "LambdaCallback",
    "LearningRateScheduler",
    "Logs",
    "ModelCheckpoint",
    "ReduceLROnPlateau",
    "TerminateOnNaN",
    "check_callbacks",
]
