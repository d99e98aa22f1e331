# SPDX-License-Identifier: Apache-2.0
"""The stages of a network: a Dense each, with what follows it up to the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from systola.training.errors import TrainingError
from systola.training.layers import Activation, Dense, Dropout, Flatten, Input, Layer

MOST_STAGES = 5
"""The inputs of all but the first have an exponent register each, 4 to 7."""
MOST_CLASSES = 128


@dataclass(frozen=True)
class Stage:
    """One Dense: `inputs` numbers and a one for the bias, to `units` numbers."""

    inputs: int
    units: int
    relu: bool = False
    softmax: bool = False
    rate: float = 0.0
    """Of the dropout after it; 0: none."""


def stages(layers: Sequence[Layer], features: int | None) -> tuple[Stage, ...]:
    """The stages of `layers` for samples of `features` numbers, where no Input tells.

    Raises TrainingError for layers that the machine does not train.
    """
    found: list[Stage] = []
    for number, layer in enumerate(layers):
        match layer:
            case Input(shape=shape):
                if number:
                    raise TrainingError("Input must be the first layer")
                features = prod(shape)
            case Flatten():
                if found:
                    raise TrainingError("Flatten must come before the first Dense")
            case Dense(units=units, activation=activation):
                inputs = found[-1].units if found else features
                if inputs is None:
                    raise TrainingError("the shape of a sample is not known: begin with Input")
                relu, softmax = activation == "relu", activation == "softmax"
                found.append(Stage(inputs, units, relu, softmax))
            case Activation(activation=activation):
                last = _last(found, "an Activation")
                if last.relu or last.softmax or last.rate:
                    raise TrainingError(f"Activation '{activation}' must come right after a Dense")
                relu, softmax = activation == "relu", activation == "softmax"
                found[-1] = Stage(last.inputs, last.units, relu, softmax)
            case Dropout(rate=rate):
                last = _last(found, "Dropout")
                if last.rate:
                    raise TrainingError("one Dropout after the other cannot be trained")
                found[-1] = Stage(last.inputs, last.units, last.relu, last.softmax, rate)
            case _:
                raise TrainingError(f"layer {type(layer).__name__} cannot be trained")
    _check(found)
    return tuple(found)


def _last(found: Sequence[Stage], what: str) -> Stage:
    if not found:
        raise TrainingError(f"{what} must come after a Dense")
    return found[-1]


def _check(found: Sequence[Stage]) -> None:
    if not 1 <= len(found) <= MOST_STAGES:
        raise TrainingError(f"1 to {MOST_STAGES} Dense layers can be trained, not {len(found)}")
    if any(stage.softmax for stage in found[:-1]):
        raise TrainingError("softmax belongs to the last layer")
    last = found[-1]
    if last.relu or last.rate:
        raise TrainingError("the last Dense must be linear or softmax, with no Dropout after it")
    if last.units > MOST_CLASSES:
        raise TrainingError(f"the last Dense has at most {MOST_CLASSES} units, not {last.units}")
