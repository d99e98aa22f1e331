# SPDX-License-Identifier: Apache-2.0
"""A store of the maps and steps that earlier attempts to lower a network have made.

To lower a network is to turn its operations into steps, which are pieces of a program. An attempt
fails if not all values fit the buffer. The next attempt then spills one more value, that is, keeps
the value in host memory. This changes only a few operations. All other operations keep their maps,
and so their steps can be used again.

A home is the place of a value: a FeatureMap in the buffer, or a HostView of host memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.host_view import HostView
from systola.compiler.lower.step import Step
from systola.compiler.operations import Node, Value

Home = FeatureMap | HostView
"""Type of a home, which is a map in the buffer or a view of host memory."""
Key = tuple[Node, tuple[Home, ...], Home, int]
"""Type of a key of Attempts.steps. The members are an operation, the homes of its sources, the home
of its result, and the number of bands of the result.
"""
NOWHERE = Lines("nowhere", 0)


@dataclass(frozen=True)
class Attempts:
    """A store of the maps and steps that all attempts to lower one batch have made so far.

    A view of host memory in the store has its final size, but not its final offset. The offset
    comes from the first attempt that needed the view.
    """

    maps: dict[tuple[Value, FeatureMap, int], FeatureMap] = field(
        default_factory=dict[tuple[Value, FeatureMap, int], FeatureMap]
    )
    """Maps that earlier attempts have made. The key has three members: the value in the map, the
    map with NOWHERE as its lines, and the number of its lines.
    """
    views: dict[tuple[Value, HostView], HostView] = field(
        default_factory=dict[tuple[Value, HostView], HostView]
    )
    """Views of host memory that earlier attempts have made. The key has two members: the value in
    the view and the view with offset 0.
    """
    steps: dict[Key, tuple[list[Step], dict[Lines, tuple[Value, int]]]] = field(
        default_factory=dict[Key, tuple[list[Step], dict[Lines, tuple[Value, int]]]]
    )
    """Steps that earlier attempts have made for operations. With the list of steps comes a
    dictionary of the bands that they use, as in Lowering.bands.
    """
    taps: dict[bytes, Lines] = field(default_factory=dict[bytes, Lines])
    """Lines of the buffer with the weights of a depthwise convolution; the key has the weights as
    bytes.
    """

    def map(self, value: Value, new: FeatureMap) -> FeatureMap:
        """Return the map like `new` that an earlier attempt has made for `value`; `new` if there is
        none.

        Maps are alike if all is equal but the place of their lines. A new map goes into the store.
        """
        like = replace(new, lines=NOWHERE), new.lines.count
        return self.maps.setdefault((value, *like), new)

    def view(self, value: Value, new: HostView) -> HostView:
        """Return the view like `new` that an earlier attempt has made for `value`; `new` if there
        is none.

        Views are alike if all is equal but their offset in host memory. A new view goes into the
        store.
        """
        like = replace(new, matrix=replace(new.matrix, offset=0))
        return self.views.setdefault((value, like), new)
