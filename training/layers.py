# SPDX-License-Identifier: Apache-2.0
"""Layers as the user writes them; names and arguments are those of Keras."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from systola.training.checks import is_name, items, real, shown, whole
from systola.training.errors import TrainingError

ACTIVATIONS = ("linear", "relu", "softmax", "sigmoid")
MOST_LSTM_UNITS = 512
"""The sums of so many products of int16 and int8 cannot leave 32 bits."""
MOST_NUMBERS = 1 << 24
"""Numbers that a sample, and units that a layer, can have at most."""


@dataclass(frozen=True)
class Input:
    """The shape of a sample, up to MOST_NUMBERS numbers."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        given = items("the shape of Input", self.shape, "sizes")
        shape = tuple(whole("a size of Input", size, 1, MOST_NUMBERS) for size in given)
        _need(
            len(shape) > 0 and prod(shape) <= MOST_NUMBERS,
            f"Input must have 1 to {MOST_NUMBERS:,} numbers, not the shape {shown(shape)}",
        )
        object.__setattr__(self, "shape", shape)


@dataclass(frozen=True)
class Flatten:
    """Makes a sample a row of numbers, which the machine takes it for anyway."""


@dataclass(frozen=True)
class Dense:
    """`units` weighted sums of all inputs, with a bias each, and an activation."""

    units: int
    activation: str | None = None

    def __post_init__(self) -> None:
        _keep_size(self, "units")
        check_activation(self.activation)


Pair = tuple[int, int]


@dataclass(frozen=True)
class Conv2D:
    """Windows of a map, height x width x channels, times kernels: `filters` sums with a bias each.

    `kernel_size` and `strides` are numbers or pairs, kept as pairs; strides are 1 or 2.
    """

    filters: int
    kernel_size: int | Pair
    strides: int | Pair = 1
    padding: str = "valid"
    activation: str | None = None

    def __post_init__(self) -> None:
        _keep_size(self, "filters")
        _need(
            is_name(self.padding, ("valid", "same")),
            f"padding must be valid or same, not {shown(self.padding)}",
        )
        object.__setattr__(self, "kernel_size", pair("kernel_size", self.kernel_size, 15))
        object.__setattr__(self, "strides", pair("strides", self.strides, 2))
        check_activation(self.activation)


@dataclass(frozen=True)
class MaxPooling2D:
    """The largest of each window of a map; windows lie side by side."""

    pool_size: int | Pair = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "pool_size", pair("pool_size", self.pool_size, 15))


@dataclass(frozen=True)
class Activation:
    """An activation of its own, after a Dense or Conv2D."""

    activation: str

    def __post_init__(self) -> None:
        _need(self.activation is not None, "Activation needs the name of an activation")  # type: ignore[reportUnnecessaryComparison]
        check_activation(self.activation)


class ReLU(Activation):
    """max(x, 0), after a Dense or Conv2D."""

    def __init__(self) -> None:
        super().__init__("relu")


@dataclass(frozen=True)
class Dropout:
    """In training, makes a fraction `rate` of its inputs zero and scales the others up."""

    rate: float

    def __post_init__(self) -> None:
        rate = real("the rate of Dropout", self.rate)
        _need(0 <= rate <= 0.99, f"Dropout needs a rate from 0 to 0.99, not {rate}")
        object.__setattr__(self, "rate", rate)


@dataclass(frozen=True)
class Embedding:
    """A row of `output_dim` numbers for each word, a whole number from 0 to `input_dim` - 1."""

    input_dim: int
    output_dim: int

    def __post_init__(self) -> None:
        for name in ("input_dim", "output_dim"):
            _keep_size(self, name)


@dataclass(frozen=True)
class LSTM:
    """Long short-term memory, with Keras's defaults: tanh, sigmoid for the gates, biases, those of
    the forget gate one at the start. It gives the `units` numbers of the last step."""

    units: int

    def __post_init__(self) -> None:
        _keep_size(self, "units", MOST_LSTM_UNITS)


Layer = Input | Flatten | Dense | Conv2D | MaxPooling2D | Activation | Dropout | Embedding | LSTM


def check_activation(name: str | None) -> None:
    """Raises TrainingError for an activation that cannot be trained."""
    _need(
        name is None or is_name(name, ACTIVATIONS),
        f"activation {shown(name)} cannot be trained (known: {', '.join(ACTIVATIONS)})",
    )


def pair(name: str, value: object, most: int) -> Pair:
    """A number, or two, from 1 to `most`, as two."""
    given: Any = value if type(value) in (list, tuple) else (value, value)
    try:
        first, second = (whole(name, each, 1, most) for each in given)
    except ValueError:
        raise TrainingError(
            f"{name} must be 1 to {most}, or two of these, not {shown(value)}"
        ) from None
    return first, second


def _keep_size(layer: Layer, name: str, most: int = MOST_NUMBERS) -> None:
    """Make a field of a layer an int. Raises TrainingError where it is not 1 to `most`."""
    where = f"{name} of {type(layer).__name__}"
    object.__setattr__(layer, name, whole(where, getattr(layer, name), 1, most))


def _need(holds: bool, reason: str) -> None:
    if not holds:
        raise TrainingError(reason)
