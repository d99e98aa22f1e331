# SPDX-License-Identifier: Apache-2.0
"""A chain of products as layers that many rows go through at a time."""

from __future__ import annotations

from dataclasses import dataclass

from systola.compiler.layer import Layer
from systola.compiler.operations import Operations, Product, Reshape


@dataclass(frozen=True)
class Chain:
    """Layers that the machine calculates, one fed by the other."""

    layers: tuple[Layer, ...]
    operators: tuple[str, ...]
    """The operator that each layer comes from."""
    rows: int
    """Input vectors of one sample."""


def as_chain(operations: Operations) -> Chain | None:
    """The chain that `operations` are; None where they are something else."""
    if len(operations.inputs) != 1 or len(operations.outputs) != 1:
        return None
    current = operations.inputs[0]
    layers: list[Layer] = []
    operators: list[str] = []
    rows = 0
    for node in operations.nodes:
        if node.sources != (current,):
            return None
        match node:
            case Product(wide=False):
                size = current.pixels * current.channels
                if layers and size != rows * node.layer.k:
                    return None
                rows = size // node.layer.k
                layers.append(node.layer)
                operators.append(node.operator)
            case Reshape():
                pass
            case _:
                return None
        current = node.result
    return Chain(tuple(layers), tuple(operators), rows) if layers else None
