# SPDX-License-Identifier: Apache-2.0
"""Layers as the user writes them; names and arguments are those of Keras."""

from __future__ import annotations

from dataclasses import dataclass

from systola.training.errors import TrainingError

ACTIVATIONS = ("linear", "relu", "softmax", "sigmoid")
MOST_LSTM_UNITS = 512
"""The sums of so many products of int16 and int8 cannot leave 32 bits."""


@dataclass(frozen=True)
class Input:
    """The shape of a sample."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Flatten:
    """Makes a sample a row of numbers, which the machine takes it for anyway."""


@dataclass(frozen=True)
class Dense:
    """`units` weighted sums of all inputs, with a bias each, and an activation."""

    units: int
    activation: str | None = None

    def __post_init__(self) -> None:
        _need(_whole(self.units) and self.units >= 1, f"Dense needs units >= 1, not {self.units}")
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
        filters, padding = self.filters, self.padding
        _need(_whole(filters) and filters >= 1, f"Conv2D needs filters >= 1, not {filters}")
        _need(padding in ("valid", "same"), f"padding must be valid or same, not {padding}")
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
        _need(0 <= self.rate <= 0.99, f"Dropout needs a rate from 0 to 0.99, not {self.rate}")


@dataclass(frozen=True)
class Embedding:
    """A row of `output_dim` numbers for each word, a whole number from 0 to `input_dim` - 1."""

    input_dim: int
    output_dim: int

    def __post_init__(self) -> None:
        for name in ("input_dim", "output_dim"):
            size = getattr(self, name)
            _need(_whole(size) and size >= 1, f"Embedding needs {name} >= 1, not {size}")


@dataclass(frozen=True)
class LSTM:
    """Long short-term memory, with Keras's defaults: tanh, sigmoid for the gates, biases, those of
    the forget gate one at the start. It gives the `units` numbers of the last step."""

    units: int

    def __post_init__(self) -> None:
        _need(
            _whole(self.units) and 1 <= self.units <= MOST_LSTM_UNITS,
            f"LSTM needs units from 1 to {MOST_LSTM_UNITS}, not {self.units}",
        )


Layer = Input | Flatten | Dense | Conv2D | MaxPooling2D | Activation | Dropout | Embedding | LSTM


def check_activation(name: str | None) -> None:
    """Raises TrainingError for an activation that cannot be trained."""
    _need(
        name is None or name in ACTIVATIONS,
        f"activation '{name}' cannot be trained (known: {', '.join(ACTIVATIONS)})",
    )


def pair(name: str, value: object, most: int) -> Pair:
    """A number, or two, from 1 to `most`, as two."""
    match value:
        case (int() as first, int() as second) | [int() as first, int() as second]:
            pass
        case _:
            first = second = value if isinstance(value, int) else 0
    _need(
        _whole(first) and _whole(second) and 1 <= first <= most and 1 <= second <= most,
        f"{name} must be 1 to {most}, or two of these, not {value}",
    )
    return first, second


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _need(holds: bool, reason: str) -> None:
    if not holds:
        raise TrainingError(reason)
