# SPDX-License-Identifier: Apache-2.0
"""Finds the layers of a Keras model, and for each layer the layers that give its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from systola.training.errors import TrainingError


def linked_layers(keras_model: Any) -> list[tuple[Any, Sequence[int]]]:
    """Return the layers of a Keras model in its order, each with the indices of its source layers.

    A source layer gives an input of the layer; indices count from 0 in the returned list. Raises
    TrainingError for anything but a Sequential or functional model, for a layer that is used twice,
    and for several outputs.
    """
    layers = list(keras_model.layers)
    names = {kind.__name__ for kind in type(keras_model).__mro__}
    if not names & {"Sequential", "Functional"}:
        raise TrainingError("only Sequential and functional Keras models can be trained")
    if len(set(map(id, layers))) < len(layers):
        raise TrainingError("the Keras model uses a layer twice: take one for each place")
    if "Sequential" in names:
        return [(layer, [number - 1][:number]) for number, layer in enumerate(layers)]
    places: dict[int, int] = {}
    found: list[tuple[Any, Sequence[int]]] = []
    for layer in layers:
        sources: list[Any] = []
        try:
            if type(layer).__name__ != "InputLayer":
                several = isinstance(layer.input, list | tuple)
                sources = list(layer.input) if several else [layer.input]
            result = layer.output
        except (AttributeError, ValueError):
            raise TrainingError(  # Keras gives no input or output of a layer that is used twice
                f"'{layer.name}' of the Keras model is used twice: take one for each place"
            ) from None
        if not all(id(each) in places for each in sources):
            raise TrainingError(f"'{layer.name}' of the Keras model takes no layer before it")
        found.append((layer, [places[id(each)] for each in sources]))
        places[id(result)] = len(found) - 1
    outputs = list(keras_model.outputs)
    if len(outputs) != 1 or places.get(id(outputs[0])) != len(found) - 1:
        raise TrainingError(
            "the Keras model has several outputs, or one inside: take one at a time"
        )
    return found
