# SPDX-License-Identifier: Apache-2.0
"""Poolings beside convolutions: the array and the activation unit work at the same time.

A pooling needs the activation unit only, a convolution needs it for its last pass only. So in a
batch the steps of a pooling that other operations do not wait for yet come before convolutions, as
many before each as it hides.
"""

from __future__ import annotations

from collections.abc import Sequence

from systola.compiler.lower.convolution import ConvolutionStep
from systola.compiler.lower.overlap import hidden_cycles
from systola.compiler.lower.pooling import PoolingStep
from systola.compiler.lower.step import Step
from systola.compiler.operations import Node, Pooling


def early_poolings(nodes: Sequence[Node]) -> list[Node]:
    """The nodes with each pooling right behind what makes its source."""
    order: list[Node] = []
    moved: set[Node] = set()
    for node in nodes:
        if node not in moved:
            order.append(node)
            here = [p for p in nodes if isinstance(p, Pooling) and p.source is node.result]
            order += here
            moved.update(here)
    return order


class Waiting:
    """The steps of one pooling that have no place yet."""

    def __init__(self) -> None:
        self._node: Node | None = None
        self._steps: list[PoolingStep] = []

    def hold(self, node: Pooling, steps: Sequence[PoolingStep]) -> None:
        """Keeps the steps of `node`; there are none left of the one before."""
        assert self._node is None
        self._node, self._steps = node, list(steps)

    def is_needed(self, node: Node) -> bool:
        """Whether `node` takes what is not calculated yet, or is a pooling itself."""
        if self._node is None:
            return False
        return isinstance(node, Pooling) or self._node.result in node.sources

    def hidden_by(self, steps: Sequence[Step]) -> list[PoolingStep]:
        """The next steps that take no longer than the array with these."""
        left = sum(hidden_cycles(step) for step in steps if isinstance(step, ConvolutionStep))
        hidden: list[PoolingStep] = []
        while self._steps and (left := left - self._steps[0].cycles) >= 0:
            hidden.append(self._steps.pop(0))
        return hidden

    def rest(self) -> list[tuple[Node, list[Step]]]:
        """The node and its last steps, if it waits; it does so no more."""
        rest: list[tuple[Node, list[Step]]] = []
        if self._node is not None:
            rest.append((self._node, [*self._steps]))
        self._node, self._steps = None, []
        return rest
