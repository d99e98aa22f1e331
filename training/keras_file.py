# SPDX-License-Identifier: Apache-2.0
"""Models in .keras files: Keras itself reads them, where it is installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from systola.training.errors import TrainingError


def read_keras(path: str) -> Any:
    """Returns the model in a file, which Keras reads in its safe mode: no code from the file runs.

    Raises TrainingError where there is no model, or no Keras.
    """
    try:
        models: Any = import_module("keras.models")
    except ImportError:
        raise TrainingError("Keras is not installed here: pip install 'systola[keras]'") from None
    try:
        return models.load_model(path, compile=False, safe_mode=True)
    except (ValueError, OSError) as error:
        raise TrainingError(" ".join(str(error).split())) from None
