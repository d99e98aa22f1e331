# SPDX-License-Identifier: Apache-2.0
"""Weights in files: arrays of numpy, or Keras's .weights.h5 where h5py is installed."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from importlib import import_module
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.runtime.npz import Npz, NpzError
from systola.runtime.write_file import write_file
from systola.training.errors import TrainingError
from systola.training.layers import (
    BatchNormalization,
    Conv1D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Embedding,
    Layer,
)
from systola.training.numbers import Floats
from systola.training.recurrent_layers import Recurring

_COUNTS: dict[type, int] = {Embedding: 1, BatchNormalization: 4}
"""Number of arrays of weights of a layer that has no argument `use_bias`, by its class."""
_HDF5 = b"\x89HDF\r\n\x1a\n"
_MOST_HEADER = 1 << 12
"""Largest size of the header of an array in a file of numpy, in bytes."""


def count_of(layer: Layer) -> int:
    """Return the number of arrays of weights that a layer has."""
    if isinstance(layer, Dense | Conv2D | Conv1D | DepthwiseConv2D):
        return 1 + layer.use_bias
    if isinstance(layer, Recurring):
        return 2 + layer.use_bias
    return _COUNTS.get(type(layer), 0)


def snake_case(layer: Layer) -> str:
    """Return the name that Keras makes of a layer's class, such as max_pooling2d."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", type(layer).__name__)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def write_weights(
    path: str | PathLike[str], layers: Sequence[Layer], weights: Sequence[Floats]
) -> None:
    """Write weights, in Keras's order, to a file; a name that ends in .h5 makes a file for Keras.

    Raises TrainingError for such a name if h5py is not installed, OSError if the file cannot be
    written.
    """
    content = io.BytesIO()
    if str(path).endswith(".h5"):
        file: Any
        with _h5py("write").File(content, "w") as file:
            for name, values in zip(_places(layers), weights, strict=True):
                file[name] = values
    else:
        np.savez_compressed(content, *weights)
    write_file(path, content.getvalue())


def read_weights(
    content: bytes, layers: Sequence[Layer], shapes: Sequence[tuple[int, ...]]
) -> list[NDArray[Any]]:
    """Read weights of these shapes from a file that write_weights or Keras has written.

    Raises TrainingError for any other file. The error's message begins with "it", for the file.
    """
    if content.startswith(_HDF5):
        module = _h5py("read")
        # h5py raises almost any exception for damaged bytes.
        try:
            with module.File(io.BytesIO(content), "r") as file:
                found = [file[name] for name in _places(layers)]
                there: list[str] = []
                file["layers"].visit(there.append)
                arrays = [name for name in there if hasattr(file["layers"][name], "shape")]
                if len(arrays) != len(found):
                    raise TrainingError(
                        f"it has {len(arrays)} arrays of weights, the model has {len(found)}"
                    )
                _check([tuple(each.shape) for each in found], shapes)
                return [np.asarray(each) for each in found]
        except TrainingError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise TrainingError(f"it has no weights of these layers: {reason}") from None
    try:
        archive = Npz(content)
        names = [f"arr_{n}" for n in range(len(shapes))]
        if set(names) != set(archive.names):
            raise TrainingError(f"it has not the {len(shapes)} arrays of this model's weights")
        for name, shape in zip(names, shapes, strict=True):
            if archive.stored_bytes(name) > 8 * prod(shape) + _MOST_HEADER:
                raise TrainingError(f"it has weights that do not fit, {list(shapes)} do")
        arrays = [archive.read(name) for name in names]
    except NpzError as error:
        raise TrainingError(f"it is no file of weights: {error}") from None
    _check([each.shape for each in arrays], shapes)
    return arrays


def check_weights_path(path: str | PathLike[str]) -> None:
    """Raise TrainingError for a name that ends in .h5 if h5py is not installed."""
    if str(Path(path)).endswith(".h5"):
        _h5py("write")


def _check(found: Sequence[tuple[int, ...]], wanted: Sequence[tuple[int, ...]]) -> None:
    if list(found) != list(wanted):
        raise TrainingError(f"it has weights of shapes {list(found)}, {list(wanted)} fit")


def _places(layers: Sequence[Layer]) -> list[str]:
    """Return the path of each array of weights within a .weights.h5 file of Keras 3."""
    found: list[str] = []
    counts: dict[str, int] = {}
    for layer in layers:
        name = snake_case(layer)
        number = counts.get(name, 0)
        counts[name] = number + 1
        folder = f"layers/{name}_{number}" if number else f"layers/{name}"
        cell = "/cell" if isinstance(layer, Recurring) else ""
        found += [f"{folder}{cell}/vars/{n}" for n in range(count_of(layer))]
    return found


def _h5py(verb: str) -> Any:
    """Import h5py. Raises TrainingError if it is not installed."""
    try:
        return import_module("h5py")
    except ImportError:
        raise TrainingError(
            f"h5py is needed to {verb} .h5 files: pip install h5py, or take another name, "
            "such as weights.npz"
        ) from None
