# SPDX-License-Identifier: Apache-2.0
"""Prints the table of a network's layers, as Keras does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any

from systola.training.building import stages
from systola.training.joining_layers import Add, Concatenate, From
from systola.training.layer_base import pair
from systola.training.layers import (
    GRU,
    LSTM,
    BatchNormalization,
    Conv1D,
    Conv2D,
    Dense,
    DepthwiseConv2D,
    Embedding,
    Flatten,
    GlobalPooling,
    Input,
    Layer,
    Pooling1D,
    Pooling2D,
)
from systola.training.state import keras_shapes
from systola.training.weight_files import count_of, snake_case
from systola.training.windows import convolved, pooled

_TITLES = ("Layer (type)", "Output Shape", "Param #")
_WIDTHS = (31, 22, 13)
_MASTER_BYTES = 2
_PLAIN = str.maketrans("━─┃│┏┳┓┡╇┩├┼┤└┴┘", "--||++++++++++++")
"""Plain characters in place of line-drawing characters, for terminals without them."""


def names(layers: Sequence[Layer]) -> list[str]:
    """Return the name of each layer: its own, or Keras's name for the class, such as dense_1."""
    taken = {layer.name for layer in layers if layer.name}
    found: list[str] = []
    for layer in layers:
        name = "" if isinstance(layer, From) else layer.name
        if name is None:
            name = kind = snake_case(layer)
            number = 0
            while name in taken:
                number += 1
                name = f"{kind}_{number}"
            taken.add(name)
        found.append(name)
    return found


def weights_of_layers(layers: Sequence[Layer]) -> list[int] | None:
    """Return how many weights each layer has; None if the shape of a sample is not known.

    Raises TrainingError for layers that cannot be trained.
    """
    if not (layers and isinstance(layers[0], Input)):
        return None
    sizes = iter([prod(shape) for shape in keras_shapes(stages(layers, None))])
    return [sum(next(sizes) for _ in range(count_of(layer))) for layer in layers]


def table(layers: Sequence[Layer], name: str) -> str:
    """Return the text of the table of a network called `name`.

    Sizes in bytes are for int16 masters. Raises TrainingError for layers that cannot be trained.
    """
    counts, shapes = weights_of_layers(layers), _shapes(layers)
    cells: list[tuple[str, str, str]] = []
    for number, (layer, own) in enumerate(zip(layers, names(layers), strict=True)):
        if isinstance(layer, Input | From):
            continue
        shape = "?" if shapes is None else str((None, *shapes[number]))
        count = f"{counts[number]:,}" if counts else "0 (unbuilt)"
        cells.append((f"{own} ({type(layer).__name__})", shape, count))
    columns = zip(_TITLES, *cells, strict=True)
    widths = [max(least, *map(len, column)) for least, column in zip(_WIDTHS, columns, strict=True)]
    lines = [f'Model: "{name}"', _rule("┏━┳┓", widths), _row("┃", _TITLES, widths)]
    lines += [_rule("┡━╇┩", widths)]
    for number, row in enumerate(cells):
        if number:
            lines.append(_rule("├─┼┤", widths))
        lines.append(_row("│", row, widths))
    lines.append(_rule("└─┴┘", widths))
    total = sum(counts or [])
    # Half of the numbers of a BatchNormalization are its moving mean and variance.
    moving = sum(
        count // (1 + layer.trainable)
        for count, layer in zip(counts or [], layers, strict=False)
        if isinstance(layer, BatchNormalization)
    )
    lines += [f" Total params: {_size(total)}", f" Trainable params: {_size(total - moving)}"]
    return "\n".join([*lines, f" Non-trainable params: {_size(moving)}", ""])


def printable(text: str) -> str:
    """Return a table in characters that standard output can show."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return text.translate(_PLAIN)
    return text


def _shapes(layers: Sequence[Layer]) -> list[tuple[int, ...]] | None:
    """Return the shape of each layer's results; None if the shape of a sample is not known."""
    if not (layers and isinstance(layers[0], Input)):
        return None
    shape: Any = ()
    found: list[tuple[int, ...]] = []
    for layer in layers:
        match layer:
            case Input(shape=shape):
                pass
            case From(layer=link):
                shape = found[link]
            case Add(sources=sources):
                shape = found[sources[0]]
            case Concatenate(sources=sources):
                shape = found[sources[0]]
                shape = (*shape[:-1], sum(found[link][-1] for link in sources))
            case Flatten():
                shape = (prod(shape),)
            case Dense(units=units):
                shape = (units,)
            case Conv2D(filters=filters):
                kernel = pair("kernel_size", layer.kernel_size, 15)
                strides = pair("strides", layer.strides, 2)
                window = convolved((shape[0], shape[1]), kernel, strides, layer.padding)
                shape = (*window.out, filters)
            case DepthwiseConv2D():
                kernel = pair("kernel_size", layer.kernel_size, 15)
                strides = pair("strides", layer.strides, 2)
                window = convolved((shape[0], shape[1]), kernel, strides, layer.padding)
                shape = (*window.out, shape[2])
            case Conv1D(filters=filters):
                kernel, strides = (1, layer.kernel_size), (1, layer.strides)
                window = convolved((1, shape[0]), kernel, strides, layer.padding)
                shape = (window.out[1], filters)
            case Pooling2D(pool_size=size):
                sizes = pair("pool_size", size, 15), pair("strides", layer.strides, 15)
                window = pooled((shape[0], shape[1]), *sizes)
                shape = (*window.out, shape[2])
            case Pooling1D(pool_size=size):
                window = pooled((1, shape[0]), (1, size), (1, layer.strides or 1))
                shape = (window.out[1], shape[1])
            case GlobalPooling():
                shape = shape[-1:]
            case Embedding(output_dim=numbers):
                shape = (*shape, numbers)
            case LSTM(units=units) | GRU(units=units):
                shape = (*shape[:1], units) if layer.return_sequences else (units,)
            case _:
                pass
        found.append(shape)
    return found


def _rule(corners: str, widths: Sequence[int]) -> str:
    left, line, middle, right = corners
    return left + middle.join(line * (width + 2) for width in widths) + right


def _row(line: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    first, second, third = (f" {cell:<{width}} " for cell, width in zip(cells, widths, strict=True))
    third = f" {cells[2]:>{widths[2]}} "
    return line + line.join((first, second, third)) + line


def _size(count: int) -> str:
    """Return the text for a number of weights, with the bytes of their masters."""
    size, unit = float(count * _MASTER_BYTES), "B"
    for larger in ("KB", "MB", "GB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{count:,} ({size:.2f} {unit})"
