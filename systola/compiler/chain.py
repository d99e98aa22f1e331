# SPDX-License-Identifier: Apache-2.0
"""A network that is a plain chain of matrix products, each one a layer."""

from __future__ import annotations

from dataclasses import dataclass

from systola.compiler.layer import Layer
from systola.compiler.operations import Operations, Product, Reshape


@dataclass(frozen=True)
class Chain:
    """A chain of layers, which are matrix products; each layer takes the results of the layer
    before.
    """

    layers: tuple[Layer, ...]
    operators: tuple[str, ...]
    """Text that names, in messages, the operator of the model file for each layer."""
    rows: int
    """Number of vectors that each layer takes for one sample; the number is equal for all layers.
    """


def as_chain(operations: Operations) -> Chain | None:
    """Return the matrix products of `operations` as a chain; changes of shape are left out.

    Returns None if `operations` are no such chain. In a chain, each product takes the result before
    it, and there is one input and one output.
    """
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
