# SPDX-License-Identifier: Apache-2.0
"""The applications as operations, which are built from their shapes."""

from __future__ import annotations

from typing import Any

from systola.bench.original.builder import CELL_SCALE, Builder, Tensor
from systola.bench.original.shapes import Application
from systola.compiler.operations import Operations

SIGMOID_CODE, TANH_CODE = 1 / 256, 1 / 128
"""Scales of the curves' results, which are the value of one code: of SIGMOID, and of TANH."""


def operations_of(application: Application) -> Operations:
    """Return the network of an application, with its weights."""
    builder = Builder(application.seed)
    shape = application.shape
    if "cells" in shape:
        return _recurrent(builder, shape)
    if "modules" in shape:
        return _branched(builder, shape)
    if "convolutions" in shape:
        return _convolutional(builder, shape)
    return _fully_connected(builder, shape)


def _fully_connected(builder: Builder, shape: dict[str, Any]) -> Operations:
    first, *sizes = shape["layers"]
    x = builder.input(1, first)
    for size in sizes:
        x = builder.dense(x, size)
    return builder.operations(x)


def _recurrent(builder: Builder, shape: dict[str, Any]) -> Operations:
    x = builder.input(1, shape["inputs"])
    results: list[Tensor] = []
    states: list[Tensor] = []
    for cell in shape["cells"]:
        sources = [x if source == "input" else results[source] for source in cell["from"]]
        hidden, state = (builder.input(1, cell["size"]) for _ in range(2))
        hidden, state = _cell(builder, [*sources, hidden], state)
        states += [hidden, state]
        if cell.get("residual", False):
            hidden = builder.added(hidden, sources[0], 0.7)
        results.append(hidden)
    last = results[-1]
    if "projection" in shape:
        last = builder.dense(last, shape["projection"])
    outputs = dict.fromkeys((last, *states))
    return builder.operations(*outputs)


def _cell(builder: Builder, inputs: list[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    """Append a step of an LSTM cell with gates i, f, g, o: c = f c + i g, h = o tanh(c).

    Returns its hidden state h and its cell state c.
    """
    size = state.value.channels
    x = builder.side_by_side(inputs)
    into, forget, new, out = (
        builder.dense(x, size, curve=curve)
        for curve in ("LOGISTIC", "LOGISTIC", "TANH", "LOGISTIC")
    )
    kept = builder.multiplied(forget, state, SIGMOID_CODE)
    added = builder.multiplied(into, new, SIGMOID_CODE * TANH_CODE / CELL_SCALE)
    state = builder.added(kept, added)
    return builder.multiplied(out, builder.tanh(state), SIGMOID_CODE), state


def _convolutional(builder: Builder, shape: dict[str, Any]) -> Operations:
    x = _image(builder, shape)
    for layer in shape["convolutions"]:
        for _ in range(layer.get("times", 1)):
            x = _on_a_map(builder, x, layer)
    return builder.operations(x)


def _branched(builder: Builder, shape: dict[str, Any]) -> Operations:
    x = _image(builder, shape)
    for layer in shape["stem"]:
        x = _on_a_map(builder, x, layer)
    for _ in range(shape["modules"]):
        ends: list[Tensor] = []
        for branch in shape["branches"]:
            end = x
            for layer in branch:
                end = _on_a_map(builder, end, layer)
            ends.append(end)
        x = builder.side_by_side(ends)
    x = builder.flat(_on_a_map(builder, x, shape["top"]))
    for size in shape["layers"]:
        x = builder.dense(x, size)
    return builder.operations(x)


def _image(builder: Builder, shape: dict[str, Any]) -> Tensor:
    return builder.input(1, shape["size"], shape["size"], shape["channels"])


def _on_a_map(builder: Builder, x: Tensor, layer: dict[str, Any]) -> Tensor:
    if "pool" in layer:
        return builder.pooling(x, layer["pool"], layer["stride"], valid=layer.get("valid", False))
    return builder.convolution(x, layer["kernel"], layer["channels"], relu=layer.get("relu", True))
