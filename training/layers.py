# SPDX-License-Identifier: Apache-2.0
"""Layers as the user writes them; names and arguments are those of Keras."""

from __future__ import annotations

from dataclasses import dataclass

from systola.training.errors import TrainingError

ACTIVATIONS = ("linear", "relu", "softmax")


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


@dataclass(frozen=True)
class Activation:
    """An activation of its own, after a Dense."""

    activation: str

    def __post_init__(self) -> None:
        check_activation(self.activation)


class ReLU(Activation):
    """max(x, 0), after a Dense."""

    def __init__(self) -> None:
        super().__init__("relu")


@dataclass(frozen=True)
class Dropout:
    """In training, makes a fraction `rate` of its inputs zero and scales the others up."""

    rate: float

    def __post_init__(self) -> None:
        _need(0 <= self.rate <= 0.99, f"Dropout needs a rate from 0 to 0.99, not {self.rate}")


Layer = Input | Flatten | Dense | Activation | Dropout


def check_activation(name: str | None) -> None:
    """Raises TrainingError for an activation that cannot be trained."""
    _need(
        name is None or name in ACTIVATIONS,
        f"activation '{name}' cannot be trained (known: {', '.join(ACTIVATIONS)})",
    )


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _need(holds: bool, reason: str) -> None:
    if not holds:
        raise TrainingError(reason)
