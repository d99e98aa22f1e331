# SPDX-License-Identifier: Apache-2.0
"""Reads models from .keras files, by means of Keras itself if it is installed."""

from __future__ import annotations

import io
import json
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

from systola.compiler.printable import reason_of
from systola.training.errors import TrainingError

_MEMBERS = ("metadata.json", "config.json", "model.weights.h5")
"""Names of the files in a .keras file, which is a zip archive. The JSON files come first."""
_MOST_JSON = 1 << 26
"""Largest size of a JSON file in a .keras file, in bytes."""


def read_keras(path: str) -> Any:
    """Read the Keras model in a file, in Keras's safe mode: no code from the file runs.

    Raises TrainingError if there is no model, if the file is damaged, and if Keras or a back end
    for it is missing.
    """
    try:
        _check(Path(path).read_bytes())
    except OSError as error:
        raise TrainingError(f"cannot read it: {(error.strerror or str(error)).lower()}") from None
    models = _keras_models()
    try:
        return models.load_model(path, compile=False, safe_mode=True)
    # Keras, h5py and the back end raise any exception for a file that does not fit together.
    except Exception as error:
        raise TrainingError(f"Keras cannot read it: {reason_of(error)}") from None


def _check(content: bytes) -> None:
    """Raise TrainingError for bytes that are no whole .keras file."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in _MEMBERS:
                if name not in archive.namelist():
                    raise TrainingError(f"it is no .keras file: it has no {name}")
                if not name.endswith(".json"):
                    continue
                if archive.getinfo(name).file_size > _MOST_JSON:
                    raise TrainingError(f"it is no .keras file: {name} is too long")
                if not isinstance(json.loads(archive.read(name)), dict):
                    raise TrainingError(f"it is no .keras file: {name} is no object")
            if damaged := archive.testzip():
                raise TrainingError(f"it is damaged: the checksum of {damaged} is wrong")
    except TrainingError:
        raise
    # zipfile and json raise almost any exception for damaged bytes.
    except Exception as error:
        raise TrainingError(f"it is no .keras file, or damaged: {reason_of(error)}") from None


def _keras_models() -> Any:
    """Import keras.models.

    Raises TrainingError if Keras is not installed, or does not start.
    """
    try:
        return import_module("keras.models")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "keras":
            raise TrainingError(
                "Keras is not installed here: pip install 'systola[keras]' and a back end, "
                "such as jax"
            ) from None
        reason = reason_of(error)
    # Without a back end Keras raises ImportError or ValueError; which one depends on the back end.
    except Exception as error:
        reason = reason_of(error)
    raise TrainingError(
        f"Keras has no back end here ({reason}): install one, such as jax or torch, and name it in "
        "the environment: KERAS_BACKEND=jax"
    )
