# SPDX-License-Identifier: Apache-2.0
"""The quantisation of a float network on samples, and measures of how near the result is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from systola.compiler.errors import ModelError
from systola.compiler.read_model import ONNX_START
from systola.compiler.tflite.reader import IDENTIFIER
from systola.runtime.quantiser.comparison import Comparison, check_labels, compare
from systola.runtime.quantiser.exported import export
from systola.runtime.quantiser.float_model import FloatModel, Sample
from systola.runtime.samples import as_samples
from systola.runtime.write_file import write_file

FORMS = ("int8", "16x8")
"""Codes of activations and weights: both of 8 bits, or of 16 and 8."""
WORST = 5
"""Number of layers that the report names as those with the most noise."""


@dataclass(frozen=True, kw_only=True)
class QuantizedModel:
    """A network that a quantiser has made, with float32 inputs and outputs."""

    content: bytes
    """Content of the file, .tflite or .onnx, in the format of the float network."""
    samples: int
    """Number of samples that calibrated the network."""
    comparison: Comparison
    worst_layers: Mapping[str, float]
    """The WORST layers with the most noise: decibels by name, the worst first.

    Empty where the library of the format cannot compare them."""

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file of the network. Raises OSError if that fails."""
        write_file(path, self.content)


def quantize(
    model: object,
    *x: ArrayLike | Mapping[str, ArrayLike],
    labels: ArrayLike | None = None,
    shapes: Sequence[Sequence[int]] | None = None,
    to: str = FORMS[0],
) -> QuantizedModel:
    """Quantise a float .tflite or .onnx model, given as content or path, on samples.

    A Keras model or a torch.nn.Module goes through the exporter of its framework first.

    `x` has an array for each input, with samples along the first axis, or it is one mapping from
    names to arrays. `labels` are the classes of the samples. `shapes` has a shape for each input,
    where the model leaves sizes open; an open first size is 1 otherwise. `to` is one of FORMS;
    "16x8", activations of int16 and weights of int8, is for .tflite. Raises OSError if there is no
    such file, and ModelError for everything else that does not fit: a model that is damaged or
    quantised already, samples of another shape, a library that is missing.
    """
    if isinstance(model, bytes):
        content = model
    elif isinstance(model, str | PathLike):
        content = Path(cast("str | PathLike[str]", model)).read_bytes()
    else:
        content = export(model, x)
    return quantize_float(read_float(content, shapes, to), x, labels)


def read_float(
    content: bytes, shapes: Sequence[Sequence[int]] | None = None, to: str = FORMS[0]
) -> FloatModel:
    """Read the content of a float model, to be quantised to a form; see quantize."""
    if to not in FORMS:
        raise ModelError(f"unknown form '{to}' (known: {', '.join(FORMS)})")
    # Each format is imported where it is asked for: every command would wait for package onnx.
    if content[4:8] == IDENTIFIER:
        from systola.runtime.quantiser.tflite_model import TfliteModel

        return TfliteModel(content, shapes, wide=to != FORMS[0])
    if not content.startswith(ONNX_START):
        raise ModelError("neither a TensorFlow Lite nor an ONNX model")
    if to != FORMS[0]:
        raise ModelError(f"only .tflite models can be of {to}: quantise to {FORMS[0]}")
    from systola.runtime.quantiser.onnx_model import OnnxModel

    return OnnxModel(content, shapes)


def quantize_float(
    model: FloatModel,
    x: Sequence[ArrayLike | Mapping[str, ArrayLike]],
    labels: ArrayLike | None = None,
) -> QuantizedModel:
    """Quantise a model that has been read, see quantize."""
    given = as_samples(x, model.inputs, ())
    if not given.count:
        raise ModelError("there are no samples to calibrate with")
    names = [each.name for each in model.inputs]
    samples: list[Sample] = [
        # np.asarray: a sample of an input without axes would be a numpy number, not an array.
        {name: np.asarray(array) for name, array in zip(names, arrays, strict=True)}
        for arrays in zip(*given.arrays, strict=True)
    ]
    expected = model.run(samples)
    classes = None if labels is None else check_labels(labels, expected)
    content = model.quantise(samples)
    found = model.run_quantised(content, samples)
    noise: dict[str, float] = {}
    # The libraries compare fewer kinds of networks than they quantise.
    with suppress(ModelError):
        noise = model.signal_to_noise(content, samples)
    worst = sorted(noise, key=lambda name: noise[name])[:WORST]
    return QuantizedModel(
        content=content,
        samples=given.count,
        comparison=compare(expected, found, classes),
        worst_layers={name: noise[name] for name in worst},
    )
