# SPDX-License-Identifier: Apache-2.0
"""Models of Keras 3 as they are: layers and weights taken over, trained weights given back.

Nothing of Keras is imported: what is needed of a model are `layers` and `get_weights`.
"""

from __future__ import annotations

from typing import Any

from systola.training.errors import TrainingError
from systola.training.layers import (
    LSTM,
    Activation,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    Input,
    Layer,
    MaxPooling2D,
)
from systola.training.model import Sequential

_LSTM: dict[str, Any] = {
    **{"use_bias": True, "return_sequences": False, "return_state": False},
    **{"go_backwards": False, "stateful": False, "dropout": 0.0, "recurrent_dropout": 0.0},
}
"""What an LSTM must have."""


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
            _need(layer, kind, use_bias=True)
            return [Dense(int(layer.units), _activation(layer))]
        case "Activation":
            return [Activation(_activation(layer) or "linear")]
        case "ReLU" | "Softmax":
            return [Activation(kind.lower())]
        case "Conv2D":
            _need(
                *(layer, kind),
                use_bias=True,
                groups=1,
                dilation_rate=(1, 1),
                data_format="channels_last",
            )
            sizes = layer.kernel_size, layer.strides, layer.padding
            return [Conv2D(int(layer.filters), *sizes, _activation(layer))]
        case "MaxPooling2D":
            _need(
                *(layer, kind),
                strides=layer.pool_size,
                padding="valid",
                data_format="channels_last",
            )
            return [MaxPooling2D(layer.pool_size)]
        case "Embedding":
            _need(layer, kind, mask_zero=False)
            return [Embedding(int(layer.input_dim), int(layer.output_dim))]
        case "LSTM":
            _need(layer, kind, **_LSTM)
            for name, wanted in (("activation", "tanh"), ("recurrent_activation", "sigmoid")):
                found = getattr(getattr(layer, name), "__name__", None)
                _check(layer, kind, name, found, wanted)
            return [LSTM(int(layer.units))]
        case "Dropout":
            return [Dropout(float(layer.rate))]
        case _:
            raise TrainingError(f"layer '{layer.name}', a {kind}, cannot be trained")


def _need(layer: Any, kind: str, **values: Any) -> None:
    for name, value in values.items():
        _check(layer, kind, name, getattr(layer, name), value)


def _check(layer: Any, kind: str, name: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise TrainingError(
            f"{kind} '{layer.name}' has {name} {found}: only {wanted} can be trained"
        )


def _activation(layer: Any) -> str | None:
    name = getattr(layer.activation, "__name__", str(layer.activation))
    return None if name == "linear" else name
