# SPDX-License-Identifier: Apache-2.0
"""Poolings beside convolutions, so that array and activation unit work at the same time.

A pooling needs only the activation unit. A convolution needs this unit only for its last pass. So
in a batch, a pooling that no other operation waits for yet is put between convolutions. Before each
convolution come as many steps of the pooling as the convolution hides.
"""

from __future__ import annotations

from collections.abc import Sequence

from systola.compiler.lower.convolution import ConvolutionStep
from systola.compiler.lower.overlap import hidden_cycles
from systola.compiler.lower.pooling import PoolingStep
from systola.compiler.lower.step import Step
from systola.compiler.operations import Node, Pooling


def early_poolings(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes in an order with each pooling directly after the node that makes its
    source.
    """
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
    """A store for the steps of one pooling that have no place in the program yet."""

    def __init__(self) -> None:
        self._node: Node | None = None
        self._steps: list[PoolingStep] = []

    def hold(self, node: Pooling, steps: Sequence[PoolingStep]) -> None:
        """Store the steps of the pooling `node`; no steps of an earlier pooling may be left."""
        assert self._node is None
        self._node, self._steps = node, list(steps)

    def is_needed(self, node: Node) -> bool:
        """Return whether `node` takes the result of the waiting pooling, or is a pooling itself."""
        if self._node is None:
            return False
        return isinstance(node, Pooling) or self._node.result in node.sources

    def hidden_by(self, steps: Sequence[Step]) -> list[PoolingStep]:
        """Return the next waiting steps that fit into the cycles in which `steps` leave the lanes
        idle.
        """
        left = sum(hidden_cycles(step) for step in steps if isinstance(step, ConvolutionStep))
        hidden: list[PoolingStep] = []
        while self._steps and (left := left - self._steps[0].cycles) >= 0:
            hidden.append(self._steps.pop(0))
        return hidden

    def rest(self) -> list[tuple[Node, list[Step]]]:
        """Return the stored pooling with its remaining steps, and empty the store.

        The list is empty if no pooling is stored.
        """
        rest: list[tuple[Node, list[Step]]] = []
        if self._node is not None:
            rest.append((self._node, [*self._steps]))
        self._node, self._steps = None, []
        return rest
