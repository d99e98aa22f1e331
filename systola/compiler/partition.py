# SPDX-License-Identifier: Apache-2.0
"""The cut of a network into programs for the machine and functions of the host between them.

An item is an operation of the machine or a function of the host (host stage). Host and machine take
turns, and each item is executed in the earliest turn of its side in which its sources are ready. A
stage is one host stage, or all operations of one turn of the machine, which form a program. A
change of shape costs nothing on either side, so it stays on the side of its source. The host does a
change of shape after the machine's turn if no operation of that turn uses the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from systola.compiler.host_stage import HostStage, View
from systola.compiler.operations import Node, Operations, Reshape, Value

Item = Node | HostStage
Stage = HostStage | Operations


def needs_host(items: Iterable[Item]) -> bool:
    """Return whether the host executes any of the `items`."""
    return any(isinstance(item, HostStage) for item in items)


@dataclass(frozen=True)
class Translation:
    """A model from a file of any format, translated to operations and host stages."""

    inputs: tuple[Value, ...]
    """Inputs of the model, then the values of its variables before a sample."""
    outputs: tuple[Value, ...]
    """Outputs of the model, then the values of its variables after a sample."""
    items: tuple[Item, ...]
    """Operations and host stages in an order of execution; all are needed for the outputs."""
    repeat: int
    """Batch size in the shapes of the model file. One sample of the user has this many samples of
    the network.
    """
    inexact_channels: int
    """Number of output channels, in all layers, with results that may differ from the
    interpreter's, because no multiplier of 31 bits gives them all.
    """
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts that explain why an operator stays on the host. A key names the operator, such as
    "operator 3 (SOFTMAX)". Operators without a known reason have no key.
    """
    first_values: tuple[NDArray[Any], ...] = ()
    """Values of the model's variables before the first sample, one array for each variable."""

    @property
    def variables(self) -> int:
        """Number of variables of the model."""
        return len(self.first_values)


def partition(translation: Translation) -> tuple[Stage, ...]:
    """Return the stages of a translated network, in the order in which they are executed."""
    items = _views_off_the_machine(translation, _levels(translation))
    stages: list[Stage] = []
    for level in range(max((level for _, level in items), default=-1) + 1):
        here = [item for item, other in items if other == level]
        nodes = tuple(item for item in here if isinstance(item, Node))
        if nodes:
            rest = [item for item, _ in items if item not in nodes]
            stages.append(_operations(nodes, rest, translation.outputs))
        stages += (item for item in here if isinstance(item, HostStage))
    return tuple(stages)


def _levels(translation: Translation) -> list[tuple[Item, int]]:
    """Return each operation or host stage with the number of its turn, counted from 0.

    Turns with even numbers belong to the host, turns with odd numbers to the machine.
    """
    levels = dict.fromkeys(translation.inputs, 0)
    uses = Counter(source for item in translation.items for source in item.sources)
    items: list[tuple[Item, int]] = []
    for item in translation.items:
        level = max((levels[source] for source in item.sources), default=0)
        if isinstance(item, Reshape):
            # The host reshapes its value if the elements change their lines, or if the machine
            # uses only the new shape. If the machine uses the old shape, too, it reshapes the
            # value, so that it reads the value only once.
            alike = item.source.channels == item.result.channels and item.result.dtype == "int8"
            wanted = level % 2 == 1 or (alike and uses[item.source] > 1)
        else:
            wanted = isinstance(item, Node)
        level += level % 2 != wanted
        levels[item.result] = level
        items.append((item, level))
    return items


def _views_off_the_machine(
    translation: Translation, items: list[tuple[Item, int]]
) -> list[tuple[Item, int]]:
    """Return the items with their turns, after some changes of shape became stages of the host.

    A change of shape in a turn of the host becomes a stage of the host. In a turn of the machine,
    it moves to the host's next turn if no item of the same turn uses the result.
    """
    first_use: dict[Value, int] = {}
    result: list[tuple[Item, int]] = []
    for item, level in reversed(items):
        if isinstance(item, Reshape) and (
            level % 2 == 0 or first_use.get(item.result, level + 1) > level
        ):
            level += level % 2
            item = HostStage(
                operator=item.operator,
                sources=item.sources,
                result=item.result,
                function=View(),
            )
        for source in item.sources:
            first_use[source] = min(level, first_use.get(source, level))
        result.append((item, level))
    return result[::-1]


def _operations(
    nodes: tuple[Node, ...], rest: Sequence[Item], outputs: tuple[Value, ...]
) -> Operations:
    results = [node.result for node in nodes]
    sources = [source for node in nodes for source in node.sources]
    wanted = {*outputs, *(source for item in rest for source in item.sources)}
    return Operations(
        tuple(dict.fromkeys(source for source in sources if source not in results)),
        tuple(result for result in results if result in wanted),
        nodes,
    )
