# SPDX-License-Identifier: Apache-2.0
"""The steps that one attempt to fit operations into the buffer can take from those before it.

From one attempt to the next, one value is spilled, which changes a few operations only. All others
get the same maps as before, and then their steps are the same, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.host_view import HostView
from systola.compiler.lower.step import Step
from systola.compiler.operations import Node, Value

Home = FeatureMap | HostView
"""Where a value is."""
Key = tuple[Node, tuple[Home, ...], Home, int]
"""An operation, the homes of its sources and of its result, and its number of bands."""
NOWHERE = Lines("nowhere", 0)


@dataclass(frozen=True)
class Attempts:
    """Maps and steps that the attempts with one batch have made so far.

    Only the sizes of places in host memory are right. Their offsets come from the attempt that was
    the first to need them.
    """

    maps: dict[tuple[Value, FeatureMap, int], FeatureMap] = field(
        default_factory=dict[tuple[Value, FeatureMap, int], FeatureMap]
    )
    """For each value, map without lines, and number of lines the map with them."""
    views: dict[tuple[Value, HostView], HostView] = field(
        default_factory=dict[tuple[Value, HostView], HostView]
    )
    """For each value, and view at offset 0, the view at its offset."""
    steps: dict[Key, tuple[list[Step], dict[Lines, tuple[Value, int]]]] = field(
        default_factory=dict[Key, tuple[list[Step], dict[Lines, tuple[Value, int]]]]
    )
    """For each operation its steps, and the bands that they add to Lowering.bands."""
    taps: dict[bytes, Lines] = field(default_factory=dict[bytes, Lines])
    """Constants of depthwise convolutions, by their content."""

    def map(self, value: Value, new: FeatureMap) -> FeatureMap:
        """Return the map that `value` had in an attempt before, if that was like `new`."""
        like = replace(new, lines=NOWHERE), new.lines.count
        return self.maps.setdefault((value, *like), new)

    def view(self, value: Value, new: HostView) -> HostView:
        """Return the view that `value` had in an attempt before, if that was like `new`."""
        like = replace(new, matrix=replace(new.matrix, offset=0))
        return self.views.setdefault((value, like), new)
