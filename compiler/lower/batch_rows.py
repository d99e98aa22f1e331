# SPDX-License-Identifier: Apache-2.0
"""The maps of many samples as one: row y of all samples, side by side, then row y + 1.

Read as a map of as many rows as all samples have, those of one sample are as many rows apart as
there are samples. So a window that moves by one row meets all samples in turn, its taps further
apart, and padding stays what it is: no row of one sample lies beside one of another.
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
    """Which pixels of a value stay together in a batch of `samples`.

    `together`: rows of maps do; otherwise each pixel is a row. Only operations on windows need it.
    """

    samples: int
    together: bool

    @property
    def apart(self) -> bool:
        """Whether rows of more than one pixel lie between those of other samples."""
        return self.together and self.samples > 1

    def of(self, value: Value) -> tuple[int, int]:
        """Rows of a value, and pixels of a row."""
        return value.grid if self.together and len(value.shape) == 4 else (value.pixels, 1)

    def grid(self, value: Value) -> tuple[int, int]:
        """Height and width of the map of a value."""
        if self.samples == 1:
            return value.grid
        height, width = self.of(value)
        return height, width * self.samples

    def check(self, value: Value, home: FeatureMap | HostView) -> None:
        """Raises CompileError where the rows of `home` are not those of the value's shape."""
        if not self.apart or home.packed:
            return
        if (home.height, home.width // self.samples) != self.of(value):
            raise CompileError(f"the rows of its input of shape {value.shape} lie apart in a batch")

    def check_node(self, node: Node, homes: Sequence[FeatureMap | HostView]) -> None:
        """Raises CompileError where `node` needs other rows of its sources than they have, or makes
        others than its result has by its shape."""
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
        """Raises CompileError where pixels of a row are to be taken apart or put together: those of
        one sample follow one another, those of the next row do not."""
        if self.apart and axis == len(value.shape) - 2 and self.of(value)[1] > 1:
            raise CompileError(f"its axis {axis} is that of the rows of a batch")


def by_sample(map_: FeatureMap, samples: int) -> FeatureMap:
    """The rows of each sample as rows of the map."""
    if samples == 1:
        return map_
    return map_.grid(map_.height * samples, map_.width // samples)


def window_by_sample(window: Window, samples: int) -> Window:
    """`window` over a map of `samples` samples, for one that moves by one row, or has one only."""
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
