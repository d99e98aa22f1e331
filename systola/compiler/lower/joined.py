# SPDX-License-Identifier: Apache-2.0
"""The values that a concatenation joins along an axis, and their places in the result."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from systola.compiler.lower.batch_rows import BatchRows
from systola.compiler.lower.feature_map import FeatureMap
from systola.compiler.lower.host_view import HostView
from systola.compiler.operations import Concatenation, Node, Value


def joining(nodes: Sequence[Node], values: Collection[Value]) -> dict[Value, Concatenation]:
    """Return the concatenations that join some of `values` to others. The key is the joined value.

    Concatenations along the channels are left out, as their inputs are copied. By the timing model,
    the original's CNN1 would gain 2.3 % without these copies; the RTL has not been measured.
    """
    joined = [node for node in nodes if isinstance(node, Concatenation) and not _of_channels(node)]
    return {part: node for node in joined for part in node.parts if part in values}


def places(
    node: Concatenation, target: FeatureMap | HostView, rows: BatchRows
) -> Iterator[tuple[Value, FeatureMap | HostView]]:
    """Yield each part of the concatenation `node`, and the part's place in the result `target`.

    Raises CompileError if the channels of a part are not whole blocks.
    """
    start = 0
    for value in node.parts:
        if _of_channels(node):
            yield value, target.cut(start, value.channels)
            start += value.channels
        else:
            height, width = rows.grid(value)
            yield value, target.part(start, height * width)
            start += height * width


def _of_channels(node: Concatenation) -> bool:
    return node.axis == len(node.result.shape) - 1
