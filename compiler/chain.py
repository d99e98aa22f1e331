# SPDX-License-Identifier: Apache-2.0
"""A chain of products as layers that many rows go through at a time.

What follows a product element by element goes into the layer, as a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function
from systola.compiler.layer import Layer
from systola.compiler.operations import Operations, Product, Reshape, Unary
from systola.compiler.quantise import INT8, table_bytes
from systola.compiler.tables import unary_table


@dataclass(frozen=True)
class Chain:
    """Layers that the machine calculates, one fed by the other."""

    layers: tuple[Layer, ...]
    rows: int
    """Input vectors of one sample."""


def as_chain(operations: Operations) -> Chain | None:
    """The chain that `operations` are; None where they are something else."""
    if len(operations.inputs) != 1 or len(operations.outputs) != 1:
        return None
    current = operations.inputs[0]
    layers: list[Layer] = []
    rows = 0
    for node in operations.nodes:
        if node.sources != (current,):
            return None
        match node:
            case Product():
                size = current.pixels * current.channels
                if layers and size != rows * node.layer.k:
                    return None
                rows = size // node.layer.k
                layers.append(node.layer)
            case Unary() if layers:
                layers[-1] = _with_table(layers[-1], unary_table(node))
            case Reshape():
                pass
            case _:
                return None
        current = node.result
    return Chain(tuple(layers), rows) if layers else None


def _with_table(layer: Layer, table: NDArray[np.int8]) -> Layer:
    """`layer` followed by `table`, which is in the order of INT8."""
    codes = INT8
    if layer.function in (Function.RELU, Function.RELU6):
        codes = np.maximum(codes, layer.zero_point)
    if layer.function == Function.RELU6:
        codes = np.minimum(codes, layer.ceiling)
    if layer.table is not None:
        codes = np.roll(np.frombuffer(layer.table, np.int8), 128).astype(np.int64)
    return replace(layer, function=Function.TABLE, table=table_bytes(table[codes + 128]))
