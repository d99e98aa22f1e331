# SPDX-License-Identifier: Apache-2.0
"""Model: a network with branches, made of the results of its layers, as Keras writes one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from systola.training.arguments import Only, takes
from systola.training.checks import shown
from systola.training.errors import TrainingError
from systola.training.joining_layers import From, Joining
from systola.training.layer_base import Named, Result
from systola.training.layers import Input, Layer
from systola.training.model import Sequential

_Tensor = Result | Named


class Model(Sequential):
    """A network of layers from one Input to one result, with branches between them."""

    @takes(trainable=Only((True,), "all layers are trained"))
    def __init__(self, inputs: Any, outputs: Any, name: str = "functional") -> None:
        """Take `inputs`, an Input, and `outputs`, the result of the last layer, alone or in lists.

        Raises TrainingError for anything else, and for a network that cannot be trained.
        """
        super().__init__(linked(_single("inputs", inputs), _single("outputs", outputs)), name)


def linked(given: Any, result: Any) -> list[Layer]:
    """Return the layers from an Input to a result, with links to each other, in Keras's order.

    Raises TrainingError if the result does not come from this Input alone.
    """
    if not isinstance(given, Input):
        raise TrainingError(f"inputs must be an Input, not {shown(given)}")
    if not isinstance(result, Result):
        raise TrainingError(f"outputs must be the result of a layer, not {shown(result)}")
    nodes, done = _found(result)
    if any(not isinstance(node, Result) and node is not given for node in nodes):
        raise TrainingError("outputs come from another Input than inputs: one can be trained")
    layers = Counter(id(each.layer) for each in nodes if isinstance(each, Result))
    if max(layers.values()) > 1:
        raise TrainingError("a layer is used twice: make one for each place, with its own weights")
    if all(node is not given for node in nodes):
        raise TrainingError("outputs do not come from inputs")
    depths = dict.fromkeys(map(id, nodes), 0)
    for node in reversed(done):
        for each in _sources(node):
            depths[id(each)] = max(depths[id(each)], depths[id(node)] + 1)
    # Python's sort keeps the order in which the results were found.
    order = sorted(nodes, key=lambda node: -depths[id(node)])
    return in_list([(node, _sources(node)) for node in order])


def _found(result: Result) -> tuple[list[_Tensor], list[_Tensor]]:
    """Return all results that `result` is made of, in two orders.

    The first list is in the order in which they are found from the end on. In the second list each
    result is after the results that its layer takes.
    """
    nodes: dict[int, _Tensor] = {}
    done: list[_Tensor] = []
    waiting: list[tuple[_Tensor, bool]] = [(result, False)]
    while waiting:
        node, ready = waiting.pop()
        if ready:
            done.append(node)
        elif id(node) not in nodes:
            nodes[id(node)] = node
            waiting.append((node, True))
            waiting += [(each, False) for each in reversed(_sources(node))]
    return list(nodes.values()), done


def _sources(node: _Tensor) -> Sequence[_Tensor]:
    return node.sources if isinstance(node, Result) else ()


def in_list(order: Sequence[tuple[Any, Sequence[Any]]]) -> list[Layer]:
    """Return a network as a list of layers, with links to earlier layers of the list.

    `order`: the results of all layers in the order of the list. With each result come the results
    that its layer takes.
    """
    found: list[Any] = []
    places: dict[int, int] = {}
    for node, sources in order:
        layer = node.layer if isinstance(node, Result) else node
        links = tuple(places[id(each)] for each in sources)
        if isinstance(layer, Joining):
            layer = replace(layer, sources=links)
        elif links and links[0] != len(found) - 1:
            found.append(From(links[0]))
        places[id(node)] = len(found)
        found.append(layer)
    return found


def _single(name: str, given: Any) -> Any:
    if isinstance(given, Mapping):
        raise TrainingError(f"{name} must be one, or a list of one, not a dictionary")
    if type(given) not in (list, tuple):
        return given
    if len(given) == 1:
        return given[0]
    instead = "put all columns into one array" if name == "inputs" else "Concatenate them"
    raise TrainingError(f"{name} must be one, not {len(given)}: {instead}")
