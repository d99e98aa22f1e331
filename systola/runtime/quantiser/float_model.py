# SPDX-License-Identifier: Apache-2.0
"""A float network in a file of any format, with the interface of that format's quantiser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.operations import Value

Sample = Mapping[str, NDArray[Any]]
"""An array of the model's shape for each input, by the name of the input."""
COMPARED = 8
"""Largest number of samples on which the results of all layers are compared."""


class FloatModel(Protocol):
    """A float network of known sizes."""

    @property
    def inputs(self) -> Sequence[Value]:
        """The inputs, in the order of the model."""
        ...

    def quantise(self, samples: Sequence[Sample]) -> bytes:
        """Return the file of the int8 network, calibrated on `samples`.

        Raises ModelError, with the quantiser's reason, if the quantiser refuses the network.
        """
        ...

    def run(self, samples: Sequence[Sample]) -> list[NDArray[Any]]:
        """Return each output of the float network; its first axis has the samples."""
        ...

    def run_quantised(self, content: bytes, samples: Sequence[Sample]) -> list[NDArray[Any]]:
        """Return each output of the int8 network in the file `content`, from its format's
        interpreter.

        `quantise` has made this file. The first axis of an output has the samples.
        """
        ...

    def signal_to_noise(self, content: bytes, samples: Sequence[Sample]) -> dict[str, float]:
        """Compare the layers' results in the int8 network `content` with the float network's
        results.

        The comparison uses at most COMPARED samples. Returns decibels by the name of the layer.
        """
        ...


def known_shape(
    name: str, stored: Sequence[int | None], given: Sequence[int] | None
) -> tuple[int, ...]:
    """Return the shape of an input with the sizes `stored` in its file; None is an open size.

    `given` is the shape that the user asks for. Without `given`, an open first size becomes 1, for
    a batch of one. Raises ModelError if a size stays open, or if the file has another size than
    `given`.
    """
    text = "x".join("?" if size is None else str(size) for size in stored)
    if given is None:
        shape = [1 if axis == 0 and size is None else size for axis, size in enumerate(stored)]
        if None in shape:
            raise ModelError(
                f"input '{name}' has open sizes, {text}: tpu quantize --shape sets them"
            )
        return tuple(size for size in shape if size is not None)
    if len(given) != len(stored) or any(
        size not in (None, asked) for size, asked in zip(stored, given, strict=True)
    ):
        asked = "x".join(map(str, given))
        raise ModelError(f"input '{name}' is {text} in the model, it cannot be {asked}")
    return tuple(given)


def shapes_in_order(
    names: Sequence[str], shapes: Sequence[Sequence[int]] | None
) -> Iterator[tuple[str, Sequence[int] | None]]:
    """Yield each input's name with its shape in `shapes`, or with None if no shapes are given.

    Raises ModelError if there are not as many shapes as inputs.
    """
    if shapes is None:
        yield from ((name, None) for name in names)
    elif len(shapes) != len(names):
        listed = ", ".join(names)
        raise ModelError(f"{len(shapes)} shapes are given, the model takes {len(names)}: {listed}")
    else:
        yield from zip(names, shapes, strict=True)
