# SPDX-License-Identifier: Apache-2.0
"""Models of Keras 3 as they are: layers and weights taken over, trained weights given back.

Nothing of Keras is imported: what is needed of a model are `layers` and `get_weights`.
"""

from __future__ import annotations

from typing import Any

from systola.training.errors import TrainingError
from systola.training.layers import Activation, Dense, Dropout, Flatten, Input, Layer
from systola.training.model import Sequential


def from_keras(keras_model: Any) -> Sequential:
    """The network of a Keras model that is a chain of layers, with its weights.

    Raises TrainingError for layers that the machine does not train.
    """
    shape: Any = getattr(keras_model, "input_shape", None)
    if not isinstance(shape, tuple) or None in shape[1:]:
        raise TrainingError("the Keras model has no single input of a known shape: build it first")
    layers: list[Layer] = [Input(tuple(int(size) for size in keras_model.input_shape[1:]))]
    for layer in keras_model.layers:
        layers += _layer(layer)
    model = Sequential(layers)
    model.set_weights(keras_model.get_weights())
    return model


def to_keras(model: Sequential, keras_model: Any) -> None:
    """Puts the weights into the Keras model that `from_keras` has taken them from."""
    keras_model.set_weights(model.get_weights())


def _layer(layer: Any) -> list[Layer]:
    kind = type(layer).__name__
    match kind:
        case "InputLayer":
            return []
        case "Flatten":
            return [Flatten()]
        case "Dense":
            if not layer.use_bias:
                raise TrainingError(f"Dense '{layer.name}' has no bias, which cannot be trained")
            return [Dense(int(layer.units), _activation(layer))]
        case "Activation":
            return [Activation(_activation(layer) or "linear")]
        case "ReLU" | "Softmax":
            return [Activation(kind.lower())]
        case "Dropout":
            return [Dropout(float(layer.rate))]
        case _:
            raise TrainingError(f"layer '{layer.name}', a {kind}, cannot be trained")


def _activation(layer: Any) -> str | None:
    name = getattr(layer.activation, "__name__", str(layer.activation))
    return None if name == "linear" else name
