# SPDX-License-Identifier: Apache-2.0
"""Which operations go into a program of the machine together, and what the host does in between.

The machine takes what it can at one time: an operation waits for the host only where something that
it takes comes from there. Changes of shape cost nothing on either side, so they stay where their
source is, and leave the machine where only the host sees the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from systola.compiler.host_stage import HostStage, View
from systola.compiler.operations import Node, Operations, Reshape, Value

Item = Node | HostStage
Stage = HostStage | Operations


@dataclass(frozen=True)
class Translation:
    """What a front end makes of a model, whatever its format."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    items: tuple[Item, ...]
    """In an order in which they can be executed; all of them are needed for the outputs."""
    repeat: int
    """Samples, as the values have them, in one of the model's own."""
    inexact_channels: int
    """Channels whose scale has no multiplier that equals the reference for every sum."""


def partition(translation: Translation) -> tuple[Stage, ...]:
    """The stages in the order in which they are executed."""
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
    """When each item is executed: even levels are the host's, odd ones the machine's."""
    levels = dict.fromkeys(translation.inputs, 0)
    uses = Counter(source for item in translation.items for source in item.sources)
    items: list[tuple[Item, int]] = []
    for item in translation.items:
        level = max((levels[source] for source in item.sources), default=0)
        if isinstance(item, Reshape):
            # The host makes another order of lines, and the only shape that the machine sees; in
            # two shapes an input would have to be there twice.
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
    """The items with changes of shape that only the host sees as something that the host does."""
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
