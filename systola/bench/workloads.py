# SPDX-License-Identifier: Apache-2.0
"""The workloads that are measured, and the figures that they must reach."""

from __future__ import annotations

from dataclasses import dataclass

from systola.compiler.layout import tiles

PRESET = "base"


@dataclass(frozen=True)
class Product:
    """An M x K x N product, and the utilisation (0 to 1) that it must reach on PRESET.

    `ideal` is the bar with memories that answer at once, and `loaded` the bar with the memories
    LOADED. If a bar is None, the utilisation is only reported. `elsewhere` is the best figure
    measured on another open machine.
    """

    m: int
    k: int
    n: int
    ideal: float
    loaded: float | None
    elsewhere: str


@dataclass(frozen=True)
class Memory:
    """A behaviour of host and weight memory: latency in cycles, and share of stalled cycles."""

    name: str
    latency: int
    stall: float


IDEAL = Memory("ideal", 0, 0.0)
LOADED = Memory("latency 30, stall 0.1", 30, 0.1)
PRODUCTS = (
    Product(64, 64, 64, 1024 / 1130, 0.80, "1,111 cycles (OpenTPU)"),
    Product(16, 64, 64, 0.745, None, "40.8 % (OpenTPU)"),
    Product(255, 16, 128, 0.954, 0.80, "96.3 % (OpenTPU)"),
    Product(16, 784, 512, 0.97, 0.85, "99.8 %, array only"),
    Product(512, 512, 512, 0.98, 0.95, ""),
)


@dataclass(frozen=True)
class Convolution:
    """A convolution with SAME padding, and the utilisation (0 to 1) that it must reach.

    `ideal` is the bar with memories that answer at once. If it is None, the utilisation is only
    reported.
    """

    size: int
    """Rows and columns of the feature map."""
    channels: int
    outputs: int
    kernel: int
    ideal: float | None
    stride: int = 1
    dilation: int = 1

    @property
    def name(self) -> str:
        """Name such as `32x32x16 -> 16, 3x3`."""
        parts = [
            f"{self.size}x{self.size}x{self.channels} -> {self.outputs}",
            f"{self.kernel}x{self.kernel}",
        ]
        if self.stride > 1:
            parts.append(f"stride {self.stride}")
        if self.dilation > 1:
            parts.append(f"dilation {self.dilation}")
        return ", ".join(parts)

    @property
    def out_size(self) -> int:
        """Rows and columns of the result."""
        return tiles(self.size, self.stride)

    @property
    def padding(self) -> int:
        """Rows of padding above and columns to the left of the map, as LiteRT counts SAME."""
        reach = (self.out_size - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
        return max(reach - self.size, 0) // 2

    @property
    def macs(self) -> int:
        """Multiply-accumulates, padding included."""
        return self.out_size**2 * self.kernel**2 * self.channels * self.outputs


CONVOLUTIONS = (
    Convolution(32, 16, 16, 3, 0.85),
    Convolution(32, 3, 16, 3, 0.50),
    Convolution(16, 64, 64, 1, 0.90),
    Convolution(32, 16, 16, 3, None, stride=2),
    Convolution(32, 16, 16, 5, None),
    Convolution(32, 16, 16, 3, None, dilation=2),
)
