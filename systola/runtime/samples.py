# SPDX-License-Identifier: Apache-2.0
"""The forms in which users may give the inputs of a model, and the form of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from systola.compiler.errors import ModelError
from systola.compiler.operations import Value


@dataclass(frozen=True)
class Samples:
    """A model's inputs, sample by sample, and arrays for its outputs."""

    count: int
    arrays: tuple[NDArray[Any], ...]
    """An array of shape (count, *shape of the input) for each input."""
    outputs: tuple[NDArray[Any], ...]
    """An array of shape (count, *shape of the output) for each output, to be filled in."""
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the outputs as the user gets them."""

    def results(self) -> tuple[NDArray[Any], ...]:
        """Return the outputs in the shapes that the user gets."""
        return tuple(y.reshape(to) for y, to in zip(self.outputs, self.shapes, strict=True))


def as_samples(
    x: Sequence[ArrayLike | Mapping[str, ArrayLike]],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
) -> Samples:
    """Turn a user's data for `inputs` into samples, see as_arrays, sample_count and as_input."""
    arrays = as_arrays(x, inputs)
    given = [each.shape for each in arrays]
    samples = sample_count(inputs, given)
    count = 1 if samples is None else samples
    return Samples(
        count,
        tuple(
            as_input(each, value).reshape(count, *value.shape)
            for each, value in zip(arrays, inputs, strict=True)
        ),
        tuple(np.empty((count, *value.shape), value.dtype) for value in outputs),
        output_shapes(inputs, outputs, given),
    )


def as_arrays(
    x: Sequence[ArrayLike | Mapping[str, ArrayLike]], inputs: Sequence[Value]
) -> list[NDArray[Any]]:
    """Return the arrays that are given for `inputs`, in their order.

    `x` has the arrays, or one mapping from the names of the inputs to the arrays. Raises ModelError
    if a name is missing, is not an input's name, or is the name of several inputs.
    """
    if len(x) != 1 or not isinstance(x[0], Mapping):
        return [np.asarray(each) for each in x]
    given = x[0]
    names = [each.name for each in inputs]
    if sorted(given) != sorted(names):
        raise ModelError(f"the model takes {', '.join(names)}, not {', '.join(given) or 'nothing'}")
    return [np.asarray(given[name]) for name in names]


def as_input(x: NDArray[Any], value: Value) -> NDArray[Any]:
    """Return `x` in the data type of an input.

    Floating-point numbers of any size are accepted for float32 if they are finite in it. Whole
    numbers of any size are accepted for whole numbers of more than 8 bits. Raises ModelError for
    anything else.
    """
    if value.dtype == "float32" and np.issubdtype(x.dtype, np.floating):
        with np.errstate(over="ignore"):
            result = x.astype(np.float32)
        if not bool(np.isfinite(result).all()):
            raise ModelError("an input has values that are not finite in float32")
        return result
    wide = value.dtype not in ("int8", "uint8") and np.issubdtype(value.dtype, np.integer)
    if wide and np.issubdtype(x.dtype, np.integer):
        limits = np.iinfo(value.dtype)
        if x.size and not (limits.min <= int(x.min()) and int(x.max()) <= limits.max):
            raise ModelError(f"an input has values that are no {value.dtype}")
        return x.astype(value.dtype)
    if x.dtype.name != value.dtype:
        raise ModelError(f"an input is {x.dtype}, the model takes {value.dtype}")
    return x


def sample_count(inputs: Sequence[Value], shapes: Sequence[tuple[int, ...]]) -> int | None:
    """Return the number of samples in arrays of `shapes`; None for a single sample without an axis.

    There is a shape for each input. Along their first axis the arrays have samples of the model's
    shape. A leading 1 of the model's shape, which stands for a batch, may be left out. Raises
    ModelError for any other shape.
    """
    if len(shapes) != len(inputs):
        raise ModelError(f"the model takes {len(inputs)} inputs, not {len(shapes)}")
    pairs = list(zip(shapes, (each.shape for each in inputs), strict=True))
    if all(shape == model for shape, model in pairs):
        return None
    for shape, model in pairs:
        if not shape or (shape[1:] != model and (model[:1] != (1,) or shape[1:] != model[1:])):
            raise ModelError(
                f"an input of shape {shape} does not fit the model: "
                f"it takes samples of shape {model}"
            )
    if len({shape[0] for shape in shapes}) > 1:
        counts = ", ".join(str(shape[0]) for shape in shapes)
        raise ModelError(f"the inputs have different numbers of samples: {counts}")
    return shapes[0][0]


def output_shapes(
    inputs: Sequence[Value], outputs: Sequence[Value], shapes: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the outputs for inputs of `shapes`, with the same axes for samples."""
    samples = sample_count(inputs, shapes)
    results = [each.shape for each in outputs]
    if samples is None:
        return tuple(results)
    if shapes[0][1:] != inputs[0].shape:
        results = [shape[1:] if shape[:1] == (1,) else shape for shape in results]
    return tuple((samples, *shape) for shape in results)
