# SPDX-License-Identifier: Apache-2.0
"""Models of Keras and PyTorch as files, by the exporters of these frameworks."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from systola.compiler.errors import ModelError
from systola.runtime.quantiser.libraries import refusals

Inputs = Sequence[ArrayLike | Mapping[str, ArrayLike]]


def export(model: object, x: Inputs) -> bytes:
    """Return the content of a .tflite or .onnx file of a Keras model or a torch.nn.Module.

    `x` has samples as quantize takes them; the first one gives the shapes for PyTorch. Raises
    ModelError for anything else, where an exporter refuses the model, and where it is missing.
    """
    # A Keras model on the back end torch is a Module, too.
    if _is(model, "keras", "Model"):
        return _keras(model, x)
    if _is(model, "torch.nn", "Module"):
        return export_module(model, *_first(x))
    raise ModelError(
        "a model is the path or the content of a file, a Keras model or a torch.nn.Module, "
        f"not {type(model).__name__}"
    )


def _is(model: object, module: str, name: str) -> bool:
    """Return whether `model` is of a class of a library, which is then imported already."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(model, kind)


def _keras(model: Any, x: Inputs) -> bytes:
    """Return the .tflite file of a Keras model, or where the back end makes none, the .onnx file.

    Sizes that the model leaves open stay open.
    """
    form = "litert" if sys.modules["keras"].backend.backend() == "tensorflow" else "onnx"
    arguments, names = _first(x)
    with _exporter("Keras"), TemporaryDirectory() as folder:
        # Keras exports no model that has not been called before.
        model(names or (list(arguments) if len(arguments) > 1 else arguments[0]), training=False)
        path = Path(folder, "model.tflite" if form == "litert" else "model.onnx")
        model.export(str(path), format=form, verbose=False)
        return path.read_bytes()


def export_module(
    module: Any, arguments: Sequence[NDArray[Any]], names: Mapping[str, NDArray[Any]]
) -> bytes:
    """Return the .onnx file of a torch.nn.Module for the shapes of `arguments` and `names`.

    Raises ModelError if PyTorch's exporter refuses the module, and if it is missing.
    """
    torch: Any = sys.modules["torch"]
    training = module.training
    with _exporter("PyTorch"):
        try:
            program = torch.onnx.export(
                module.eval(),
                tuple(torch.from_numpy(each) for each in arguments),
                kwargs={name: torch.from_numpy(each) for name, each in names.items()},
                dynamo=True,
                verbose=False,
            )
        finally:
            module.train(training)
        return program.model_proto.SerializeToString()


def _first(x: Inputs) -> tuple[list[NDArray[Any]], dict[str, NDArray[Any]]]:
    """Return the first sample, with an axis of samples: arrays in order, or arrays by name."""

    def first(samples: ArrayLike) -> NDArray[Any]:
        array = np.asarray(samples)
        if not array.ndim or not len(array):
            raise ModelError("there are no samples to calibrate with")
        return array[:1].astype(np.float32 if array.dtype.kind == "f" else array.dtype)

    if len(x) == 1 and isinstance(x[0], Mapping):
        return [], {name: first(each) for name, each in x[0].items()}
    return [first(each) for each in x if not isinstance(each, Mapping)], {}


@contextmanager
def _exporter(framework: str) -> Generator[None]:
    """Turn exceptions of an exporter into a ModelError, also of one that is missing."""
    with refusals(f"{framework} cannot export it"):
        try:
            yield
        except ImportError as error:
            if error.name is None:
                raise
            raise ModelError(
                f"exporting it takes {error.name}, which is missing: pip install {error.name}"
            ) from None
