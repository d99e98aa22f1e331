# SPDX-License-Identifier: Apache-2.0
"""Takes over layers and weights of Keras 3 models, and gives trained weights back.

This module does not import Keras: it reads the attributes of Keras's models and layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from systola.arch.config import Config
from systola.training import layers
from systola.training.arguments import takes
from systola.training.checks import flag, only_item, shown
from systola.training.errors import TrainingError
from systola.training.joining_layers import Add, Concatenate, From, Joining
from systola.training.keras_compile import compile_arguments
from systola.training.keras_links import linked_layers
from systola.training.layers import (
    GRU,
    LSTM,
    Activation,
    BatchNormalization,
    Conv1D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Dropout,
    Embedding,
    Flatten,
    Input,
    Layer,
    ReLU,
    Rescaling,
)
from systola.training.model import Sequential

_RECURRENT: dict[str, Any] = {
    "return_state": False,
    **{"go_backwards": False, "stateful": False, "dropout": 0.0, "recurrent_dropout": 0.0},
}
"""Values that settings of a Keras LSTM or GRU must have, by name."""
_WITH_WEIGHTS = ("Conv1D", "Conv2D", "Dense", "DepthwiseConv2D", "Embedding", "GRU", "LSTM")
"""Classes of Keras layers that have weights, and so must be trainable."""
_NOT_HONOURED = ("_regularizer", "_constraint", "lora_rank", "noise_shape", "quantization_config")
"""Ends of the names of settings that must be None, as training would ignore them."""


@takes()
def from_keras(
    keras_model: Any,
    *,
    compile: bool = True,
    seed: int | None = None,
    preset: str | Config | None = None,
    backend: str | None = None,
    latency: int | None = None,
    cores: int | None = None,
) -> Sequential:
    """Return the network of a Keras model with one input and one output, with its weights.

    If compile() was called on the Keras model, its optimiser, loss and metrics are taken, too,
    unless `compile` is False. The other arguments are for compile(). Raises TrainingError for other
    models, for layers that the machine does not train, and for settings that training would ignore.
    """
    machine: dict[str, Any] = {"seed": seed, "preset": preset, "backend": backend}
    machine |= {"latency": latency, "cores": cores}
    given = {name: value for name, value in machine.items() if value is not None}
    model = _network(keras_model)
    model.keras_model = keras_model
    if flag("compile", compile) and getattr(keras_model, "compiled", False):
        last = model.stages()[-1]
        try:
            arguments = compile_arguments(
                keras_model.get_compile_config(), probabilities=last.softmax or last.sigmoid
            )
            model.compile(**arguments, **given)
        except TrainingError as error:
            raise TrainingError(f"{error} (compile=False leaves it out)") from None
    elif given:
        raise TrainingError(f"{', '.join(given)}: the Keras model has no compile() to go with it")
    return model


def _network(keras_model: Any) -> Sequential:
    """Return a network with the layers and weights of a Keras model."""
    shape: Any = getattr(keras_model, "input_shape", None)
    if not isinstance(shape, tuple) or None in shape[1:]:
        raise TrainingError("the Keras model has no single input of a known shape: build it first")
    found: list[Layer] = [Input(tuple(int(size) for size in keras_model.input_shape[1:]))]
    # For each Keras layer: the index in `found` of the layer that makes its result.
    places: list[int] = []
    for layer, sources in linked_layers(keras_model):
        _need_honoured(layer)
        links = [places[each] for each in sources]
        for made in _layer(layer):
            if isinstance(made, Joining):
                found.append(replace(made, sources=tuple(links)))
                continue
            if links and links[0] != len(found) - 1:
                found.append(From(links[0]))
            found.append(made)
        places.append(len(found) - 1)
    model = Sequential(found)
    model.set_weights(keras_model.get_weights())
    return model


@takes()
def to_keras(model: Sequential, keras_model: Any) -> None:
    """Put the weights of a model into the Keras model that it was made from.

    Raises TrainingError if an argument is no such model.
    """
    if not isinstance(model, Sequential):  # type: ignore[reportUnnecessaryIsInstance]
        raise TrainingError(f"{shown(model)} is no Sequential of systola.training")
    if not callable(getattr(keras_model, "set_weights", None)):
        raise TrainingError(f"{shown(keras_model)} is no Keras model")
    keras_model.set_weights(model.get_weights())


def _layer(layer: Any) -> list[Layer]:
    kind = type(layer).__name__
    match kind:
        case "InputLayer":
            return []
        case "Flatten":
            _need(layer, kind, data_format="channels_last")
            return [Flatten()]
        case "Dense":
            return [Dense(int(layer.units), _activation(layer), bool(layer.use_bias))]
        case "Activation":
            return [Activation(_activation(layer) or "linear")]
        case "ReLU":
            _need(layer, kind, negative_slope=0.0, threshold=0.0)
            return [ReLU(layer.max_value)]
        case "Softmax":
            _need(layer, kind, axis=-1)
            return [Activation("softmax")]
        case "Conv2D":
            _need(
                *(layer, kind),
                groups=1,
                dilation_rate=(1, 1),
                data_format="channels_last",
            )
            sizes = layer.kernel_size, layer.strides, layer.padding
            biased = bool(layer.use_bias)
            return [Conv2D(int(layer.filters), *sizes, _activation(layer), use_bias=biased)]
        case "DepthwiseConv2D":
            about: dict[str, Any] = {"dilation_rate": (1, 1), "data_format": "channels_last"}
            _need(layer, kind, depth_multiplier=1, **about)
            sizes = layer.kernel_size, layer.strides, layer.padding
            biased = bool(layer.use_bias)
            return [DepthwiseConv2D(*sizes, activation=_activation(layer), use_bias=biased)]
        case "Conv1D":
            _need(*(layer, kind), groups=1, data_format="channels_last")
            _check(layer, kind, "dilation_rate", only_item(layer.dilation_rate), 1)
            sizes = layer.kernel_size, layer.strides, layer.padding
            biased = bool(layer.use_bias)
            return [Conv1D(int(layer.filters), *sizes, _activation(layer), use_bias=biased)]
        case "MaxPooling2D" | "AveragePooling2D" | "MaxPooling1D" | "AveragePooling1D":
            _need(layer, kind, padding="valid", data_format="channels_last")
            return [getattr(layers, kind)(layer.pool_size, layer.strides)]
        case (
            "GlobalMaxPooling2D"
            | "GlobalAveragePooling2D"
            | "GlobalMaxPooling1D"
            | "GlobalAveragePooling1D"
        ):
            _need(layer, kind, data_format="channels_last", keepdims=False)
            return [getattr(layers, kind)()]
        case "Rescaling":
            return [Rescaling(layer.scale, layer.offset)]
        case "Embedding":
            _need(layer, kind, mask_zero=False)
            return [Embedding(int(layer.input_dim), int(layer.output_dim))]
        case "LSTM" | "GRU":
            _need(layer, kind, **_RECURRENT)
            if kind == "GRU":
                _need(layer, kind, reset_after=True)
            for name, wanted in (("activation", "tanh"), ("recurrent_activation", "sigmoid")):
                found = getattr(getattr(layer, name), "__name__", None)
                _check(layer, kind, name, found, wanted)
            biased, every = bool(layer.use_bias), bool(layer.return_sequences)
            made = LSTM if kind == "LSTM" else GRU
            return [made(int(layer.units), use_bias=biased, return_sequences=every)]
        case "Add":
            return [Add()]
        case "Concatenate":
            return [Concatenate(int(layer.axis))]
        case "BatchNormalization":
            _need(layer, kind, center=True, scale=True)
            axis, momentum, epsilon = layer.axis, float(layer.momentum), float(layer.epsilon)
            learns = bool(layer.trainable)
            return [BatchNormalization(int(only_item(axis)), momentum, epsilon, trainable=learns)]
        case "Dropout":
            return [Dropout(float(layer.rate))]
        case _:
            raise TrainingError(f"layer '{layer.name}', a {kind}, cannot be trained")


def _need_honoured(layer: Any) -> None:
    """Raise TrainingError if a Keras layer has a setting that training would ignore."""
    kind = type(layer).__name__
    if kind in _WITH_WEIGHTS:
        _need(layer, kind, trainable=True)
    for name, value in layer.get_config().items():
        if value is not None and name.endswith(_NOT_HONOURED):
            raise TrainingError(f"{kind} '{layer.name}' has a {name}: training would ignore it")


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
