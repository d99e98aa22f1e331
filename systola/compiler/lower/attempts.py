# SPDX-License-Identifier: Apache-2.0
"""A store of the maps and steps that earlier attempts to lower a network have made.

To lower a network is to turn its operations into steps, which are pieces of a program. The compiler
lowers a network again until all values fit the buffer. From one attempt to the next it spills one
value, that is, keeps the value in host memory. This changes a few operations only. All other
operations keep their maps, and so their steps can be used again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.host_view import HostView
from systola.compiler.lower.step import Step
from systola.compiler.operations import Node, Value

Home = FeatureMap | HostView
"""Type of the place of a value: a map in the buffer, or a view of host memory."""
Key = tuple[Node, tuple[Home, ...], Home, int]
"""Type of a key of Attempts.steps: an operation, homes of its sources and result, and a number.

A home is the place of a value. The number counts the bands in which the result is calculated.
"""
NOWHERE = Lines("nowhere", 0)


@dataclass(frozen=True)
class Attempts:
    """A store of the maps and steps that all attempts to lower one batch have made so far.

    A place in host memory has its final size. But its offset is not final: it comes from the first
    attempt that needed the place.
    """

    maps: dict[tuple[Value, FeatureMap, int], FeatureMap] = field(
        default_factory=dict[tuple[Value, FeatureMap, int], FeatureMap]
    )
    """Maps that earlier attempts have made for values. The key is the value, the map without its
    Lines object, and the number of lines.
    """
    views: dict[tuple[Value, HostView], HostView] = field(
        default_factory=dict[tuple[Value, HostView], HostView]
    )
    """Views that earlier attempts have made for values. The key is the value and the view at offset
    0.
    """
    steps: dict[Key, tuple[list[Step], dict[Lines, tuple[Value, int]]]] = field(
        default_factory=dict[Key, tuple[list[Step], dict[Lines, tuple[Value, int]]]]
    )
    """Steps of each operation, and the bands that these steps use, as in Lowering.bands."""
    taps: dict[bytes, Lines] = field(default_factory=dict[bytes, Lines])
    """Buffer lines with the weights of depthwise convolutions, by the bytes of these weights."""

    def map(self, value: Value, new: FeatureMap) -> FeatureMap:
        """Return the map of `value` from an earlier attempt if that map is like `new`, else `new`.

        Maps are alike if they differ only in the Lines object that holds them; its size must be the
        same.
        """
        like = replace(new, lines=NOWHERE), new.lines.count
        return self.maps.setdefault((value, *like), new)

    def view(self, value: Value, new: HostView) -> HostView:
        """Return the view of `value` from an earlier attempt if that view is like `new`, else
        `new`.

        Views are alike if they differ only in their offset in host memory.
        """
        like = replace(new, matrix=replace(new.matrix, offset=0))
        return self.views.setdefault((value, like), new)
