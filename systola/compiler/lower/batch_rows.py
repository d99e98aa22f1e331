# SPDX-License-Identifier: Apache-2.0
"""The order of many samples in one map: row y of all samples side by side, then row y + 1 of all.

The same lines are also a map with a row for each row of each sample. In this map, neighbouring rows
of one sample are as many rows apart as there are samples. So the rows of a kernel are spread by
this distance. A window that moves down row by row then meets all samples in turn. Padding stays
right, since rows above a sample's first row or below its last row are outside the map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from systola.compiler.errors import CompileError
from systola.compiler.lower.feature_map import FeatureMap
from systola.compiler.lower.host_view import HostView
from systola.compiler.operations import (
    Binary,
    Convolution,
    DepthwiseConvolution,
    Lstm,
    Node,
    Pooling,
    Product,
    Value,
    Window,
)


@dataclass(frozen=True)
class BatchRows:
    """A rule for the order of a value's pixels in a batch of `samples` samples.

    With `together`, a row of a map stays together, and rows of different samples alternate.
    Operations on windows need this order. Without `together`, single pixels of different samples
    alternate.
    """

    samples: int
    together: bool

    @property
    def apart(self) -> bool:
        """True if rows of different samples alternate, so that the rows of one sample lie apart."""
        return self.together and self.samples > 1

    def of(self, value: Value) -> tuple[int, int]:
        """Return the number of rows of a value in one sample, and the number of pixels in a row.

        A row here stays together in a batch: it is a row of a map, or a single pixel without
        `together`.
        """
        return value.grid if self.together and len(value.shape) == 4 else (value.pixels, 1)

    def grid(self, value: Value) -> tuple[int, int]:
        """Return the height and width, in pixels, of the map of a value for all samples."""
        if self.samples == 1:
            return value.grid
        height, width = self.of(value)
        return height, width * self.samples

    def check(self, value: Value, home: FeatureMap | HostView) -> None:
        """Raise CompileError if the map `home` has other rows than the shape of `value` has.

        This happens after a change of shape, because the samples of a batch alternate by rows of
        the old shape.
        """
        if not self.apart or home.packed:
            return
        if (home.height, home.width // self.samples) != self.of(value):
            raise CompileError(f"the rows of its input of shape {value.shape} lie apart in a batch")

    def check_node(self, node: Node, homes: Sequence[FeatureMap | HostView]) -> None:
        """Raise CompileError if the rows of a batch's maps do not fit the operation `node`.

        The sources may have other rows than `node` needs, or `node` may make other rows than the
        shape of its result has.
        """
        if not self.apart:
            return
        if isinstance(node, Convolution | DepthwiseConvolution | Pooling | Lstm | Binary):
            for value, home in zip(node.sources, homes, strict=True):
                self.check(value, home)
        made = self.of(node.result)
        match node:
            case Convolution() | Pooling():
                made = node.window.out
            case Product() if homes[0].width > self.samples:
                made = homes[0].height, homes[0].width // self.samples
            case Product():
                made = node.result.pixels, 1
            case _:
                pass
        if node.result.pixels > 1 and made != self.of(node.result):
            raise CompileError(f"its result of shape {node.result.shape} lies apart in a batch")

    def check_axis(self, value: Value, axis: int) -> None:
        """Raise CompileError if a cut or join along `axis` separates or joins pixels of a row of
        `value`.

        In a batch the pixels of a row follow one another in one sample only. The next row of this
        sample comes after rows of other samples.
        """
        if self.apart and axis == len(value.shape) - 2 and self.of(value)[1] > 1:
            raise CompileError(f"its axis {axis} is that of the rows of a batch")


def by_sample(map_: FeatureMap, samples: int) -> FeatureMap:
    """Return the lines of a batch's map as a map with a row for each row of each sample.

    Row y of sample s is row y * `samples` + s.
    """
    if samples == 1:
        return map_
    return map_.grid(map_.height * samples, map_.width // samples)


def window_by_sample(window: Window, samples: int) -> Window:
    """Return `window`, for one sample, as a window over the map that by_sample returns.

    `window` must move down by one row at a time, or have one row of results. With a larger stride,
    it would have to skip some rows of each sample.
    """
    if samples == 1:
        return window
    assert window.stride[0] == 1 or window.out[0] == 1
    return replace(
        window,
        stride=(1, window.stride[1]),
        dilation=(window.dilation[0] * samples, window.dilation[1]),
        first=(window.first[0] * samples, window.first[1]),
        out=(window.out[0] * samples, window.out[1]),
    )
