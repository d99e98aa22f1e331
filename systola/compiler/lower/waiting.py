# SPDX-License-Identifier: Apache-2.0
"""Poolings beside convolutions, so that array and activation unit work at the same time.

A pooling needs only the activation unit. A convolution needs this unit only for its last pass, in
which the array completes the sums. So in a batch, a pooling that no other operation waits for yet
is put between convolutions. Each convolution is preceded by as many steps of the pooling as the
lanes can do while the array works on the convolution.
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
    """A store for those steps of one pooling that have no place in the program yet."""

    def __init__(self) -> None:
        self._node: Node | None = None
        self._steps: list[PoolingStep] = []

    def hold(self, node: Pooling, steps: Sequence[PoolingStep]) -> None:
        """Store the steps of the pooling `node`; the store must be empty."""
        assert self._node is None
        self._node, self._steps = node, list(steps)

    def is_needed(self, node: Node) -> bool:
        """Return whether the stored steps must come before `node`.

        This is so if `node` takes the result of the stored pooling, or is a pooling itself. Returns
        False if the store is empty.
        """
        if self._node is None:
            return False
        return isinstance(node, Pooling) or self._node.result in node.sources

    def hidden_by(self, steps: Sequence[Step]) -> list[PoolingStep]:
        """Remove and return the next stored steps, as many as the lanes can do while `steps` leave
        them idle.
        """
        left = sum(hidden_cycles(step) for step in steps if isinstance(step, ConvolutionStep))
        hidden: list[PoolingStep] = []
        while self._steps and (left := left - self._steps[0].cycles) >= 0:
            hidden.append(self._steps.pop(0))
        return hidden

    def rest(self) -> list[tuple[Node, list[Step]]]:
        """Empty the store, and return the stored pooling with its remaining steps.

        The list has this one pair, or nothing if no pooling is stored.
        """
        rest: list[tuple[Node, list[Step]]] = []
        if self._node is not None:
            rest.append((self._node, [*self._steps]))
        self._node, self._steps = None, []
        return rest
