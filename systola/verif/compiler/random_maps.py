# SPDX-License-Identifier: Apache-2.0
"""Random networks of operators on feature maps, in TensorFlow Lite's format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from systola.verif.compiler.model_writer import ModelWriter

MOST_CHANNELS = 40
MOST_ELEMENTS = 2 * (2 * 13 * 13 * 19)
"""Largest number of elements of a map: twice the largest first map.

So a CONCATENATION of the largest first map with itself is possible.
"""


@dataclass(frozen=True)
class Map:
    """A feature map in a model: a tensor of shape samples x height x width x channels."""

    tensor: int
    shape: tuple[int, int, int, int]
    scale: float
    zero_point: int


class RandomMaps:
    """A random network that grows by one operator at a time, each on any of the maps so far.

    `kinds` are the operators to choose from, as names of methods. An operator stays in the network
    even if the output does not depend on it.
    """

    def __init__(
        self, rng: np.random.Generator, kinds: tuple[str, ...], operators: int, samples: int = 2
    ) -> None:
        self.rng = rng
        self.writer = ModelWriter()
        repeat = 2 if rng.integers(5) == 0 else 1
        height, width = (int(size) for size in rng.integers(1, 14, 2))
        shape = (repeat, height, width, int(rng.choice([1, 2, 3, 4, 7, 16, 19])))
        self.maps = [self._map(shape)]
        actions: dict[str, Callable[[Map], Map]] = {kind: getattr(self, kind) for kind in kinds}
        while len(self.maps) <= operators:
            # In two of three cases the newest map is the source, so that the network is deep.
            last = rng.integers(3) > 0
            source = self.maps[-1] if last else self.maps[int(rng.integers(len(self.maps)))]
            result = actions[str(rng.choice(kinds))](source)
            if np.prod(result.shape) <= MOST_ELEMENTS:
                self.maps.append(result)
        self.content = self.writer.content([self.maps[0].tensor], [self.maps[-1].tensor])
        self.samples = rng.integers(-128, 128, (samples, *shape), dtype=np.int8)

    def _scale(self) -> float:
        return float(np.float32(10 ** self.rng.uniform(-2.2, -0.9)))

    def _map(
        self,
        shape: tuple[int, int, int, int],
        scale: float | None = None,
        zero_point: int | None = None,
    ) -> Map:
        scale = self._scale() if scale is None else scale
        zero_point = int(self.rng.integers(-128, 128)) if zero_point is None else zero_point
        return Map(self.writer.tensor(shape, "int8", scale, zero_point), shape, scale, zero_point)

    def _activation(self) -> int:
        return int(
            self.rng.choice(
                [
                    schema.ActivationFunctionType.NONE,
                    schema.ActivationFunctionType.RELU,
                    schema.ActivationFunctionType.RELU6,
                ]
            )
        )

    def _window(
        self, source: Map, largest: int, *, dilated: bool
    ) -> tuple[tuple[int, int], tuple[int, int], dict[str, int]]:
        """Return kernel, size of the result and options for a random window that fits the map."""
        rng = self.rng
        kernel, out, names = [], [], {}
        same = bool(rng.integers(2))
        for axis, letter in ((1, "H"), (2, "W")):
            size = source.shape[axis]
            taps = int(rng.integers(1, largest + 1))
            stride = int(rng.choice([1, 1, 2, 3]))
            dilation = int(rng.choice([1, 1, 2])) if dilated else 1
            if not same:
                taps = min(taps, (size - 1) // dilation + 1)
            extent = (taps - 1) * dilation + 1
            out.append(-(-size // stride) if same else (size - extent) // stride + 1)
            kernel.append(taps)
            names[f"stride{letter}"] = stride
            if dilated:
                names[f"dilation{letter}Factor"] = dilation
        names["padding"] = schema.Padding.SAME if same else schema.Padding.VALID
        names["fusedActivationFunction"] = self._activation()
        return (kernel[0], kernel[1]), (out[0], out[1]), names

    def _weights(
        self, source: Map, shape: tuple[int, ...], channels: int, taps: int
    ) -> tuple[NDArray[np.int8], NDArray[np.int32] | None, NDArray[np.float32], Map]:
        """Return random weights, a bias, weight scales, and a Map with a scale for the result."""
        rng = self.rng
        weights = rng.integers(-127, 128, shape, dtype=np.int8)
        bias = rng.integers(-9000, 9000, channels, dtype=np.int32) if rng.integers(4) else None
        count = channels if rng.integers(2) else 1
        scale = self._scale()
        spread = source.scale * 5500 * np.sqrt(taps) / (scale * 50)
        scales = (rng.uniform(0.3, 1, count) / spread).astype(np.float32)
        return weights, bias, scales, Map(0, source.shape, scale, int(rng.integers(-128, 128)))

    def convolution(self, source: Map) -> Map:
        kernel, out, options = self._window(source, 5, dilated=True)
        channels, n = source.shape[3], int(self.rng.integers(1, MOST_CHANNELS))
        shape = (n, *kernel, channels)
        taps = kernel[0] * kernel[1] * channels
        weights, bias, scales, wish = self._weights(source, shape, n, taps)
        if bias is None:  # The interpreter refuses a convolution without a bias.
            bias = np.zeros(n, np.int32)
        result = self._map((source.shape[0], *out, n), wish.scale, wish.zero_point)
        self.writer.weighted(
            "CONV_2D", source.tensor, result.tensor, weights, bias, scales, 0, **options
        )
        return result

    def depthwise(self, source: Map) -> Map:
        kernel, out, options = self._window(source, 5, dilated=True)
        multiplier = int(self.rng.choice([1, 1, 2, 3]))
        n = multiplier * source.shape[3]
        taps = kernel[0] * kernel[1]
        weights, bias, scales, wish = self._weights(source, (1, *kernel, n), n, taps)
        result = self._map((source.shape[0], *out, n), wish.scale, wish.zero_point)
        self.writer.weighted(
            "DEPTHWISE_CONV_2D",
            source.tensor,
            result.tensor,
            weights,
            bias,
            scales,
            3,
            depthMultiplier=multiplier,
            **options,
        )
        return result

    def pool(self, source: Map) -> Map:
        kernel, out, options = self._window(source, 5, dilated=False)
        result = self._map(
            (source.shape[0], *out, source.shape[3]), source.scale, source.zero_point
        )
        self.writer.operator(
            str(self.rng.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"])),
            [source.tensor],
            [result.tensor],
            filterHeight=kernel[0],
            filterWidth=kernel[1],
            **options,
        )
        return result

    def binary(self, source: Map) -> Map:
        """Add ADD, SUB or MUL of the map and another operand.

        The operand is a constant, a map of the same size, or the map's mean over its pixels or
        channels.
        """
        rng = self.rng
        _, height, width, channels = source.shape
        other = source.tensor
        match int(rng.integers(5)):
            case 0:
                shape = (1, height, width, channels) if rng.integers(2) else (channels,)
                data = rng.integers(-128, 128, shape, dtype=np.int8)
                zero_point = int(rng.integers(-128, 128))
                other = self.writer.tensor(shape, "int8", self._scale(), zero_point, data)
            case 1:
                other = self._mean(source, (1, 2)).tensor
            case 2:
                other = self._mean(source, (3,)).tensor
            case 3:
                same = [each for each in self.maps if each.shape == source.shape]
                other = same[int(rng.integers(len(same)))].tensor if same else other
            case _:
                other = self.rescale(source).tensor
        pair = [source.tensor, other]
        result = self._map(source.shape)
        self.writer.operator(
            str(rng.choice(["ADD", "SUB", "MUL"])),
            pair if rng.integers(2) else pair[::-1],
            [result.tensor],
            fusedActivationFunction=self._activation(),
        )
        return result

    def rescale(self, source: Map) -> Map:
        result = self._map(source.shape)
        kind = str(self.rng.choice(["QUANTIZE", "RELU", "RELU6"]))
        self.writer.operator(kind, [source.tensor], [result.tensor])
        return result

    def curve(self, source: Map) -> Map:
        if self.rng.integers(2):
            result = self._map(source.shape, 1 / 256, -128)
            self.writer.operator("LOGISTIC", [source.tensor], [result.tensor])
        else:
            result = self._map(source.shape, 1 / 128, 0)
            self.writer.operator("TANH", [source.tensor], [result.tensor])
        return result

    def leaky_relu(self, source: Map) -> Map:
        result = self._map(source.shape)
        alpha = float(self.rng.choice([0.01, 0.1, 0.3, 1.5, -0.2]))
        self.writer.operator("LEAKY_RELU", [source.tensor], [result.tensor], alpha=alpha)
        return result

    def pad(self, source: Map) -> Map:
        padding = self.rng.integers(0, 3, (4, 2)).astype(np.int32)
        padding[0] = 0
        if self.rng.integers(2):
            padding[3] = 0
        repeat, *rest = source.shape
        height, width, channels = (
            size + int(padding[axis].sum()) for axis, size in enumerate(rest, 1)
        )
        result = self._map((repeat, height, width, channels), source.scale, source.zero_point)
        amounts = self.writer.tensor((4, 2), "int32", data=padding)
        self.writer.operator("PAD", [source.tensor, amounts], [result.tensor])
        return result

    def mean(self, source: Map) -> Map:
        choices = [(1, 2), (1,), (2,), (3,), (1, 2, 3), (2, 3)]
        return self._mean(source, choices[int(self.rng.integers(len(choices)))])

    def _mean(self, source: Map, axes: tuple[int, ...]) -> Map:
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(source.shape))
        result = self._map((shape[0], shape[1], shape[2], shape[3]))
        numbers = self.writer.tensor((len(axes),), "int32", data=np.array(axes, np.int32))
        self.writer.operator("MEAN", [source.tensor, numbers], [result.tensor], keepDims=True)
        return result

    def concatenation(self, source: Map) -> Map:
        """Add a CONCATENATION of up to three maps, which are brought to the same scale before."""
        axis = int(self.rng.choice([1, 3, 3]))
        if axis == 1 and source.shape[0] > 1:
            axis = 3
        parts: list[Map] = []
        for each in (source, *self.maps[-2:]):
            rest = [size for other, size in enumerate(each.shape) if other != axis]
            if rest == [size for other, size in enumerate(source.shape) if other != axis]:
                part = self._map(each.shape, source.scale, source.zero_point)
                self.writer.operator("QUANTIZE", [each.tensor], [part.tensor])
                parts.append(part)
        sizes = list(source.shape)
        sizes[axis] = sum(part.shape[axis] for part in parts)
        result = self._map(
            (sizes[0], sizes[1], sizes[2], sizes[3]), source.scale, source.zero_point
        )
        tensors = [part.tensor for part in parts]
        self.writer.operator("CONCATENATION", tensors, [result.tensor], axis=axis)
        return result

    def split(self, source: Map) -> Map:
        """Add a SPLIT of the channels into one to three parts; return the last part."""
        count = next(n for n in (3, 2, 1) if source.shape[3] % n == 0)
        shape = (*source.shape[:3], source.shape[3] // count)
        parts = [self._map(shape, source.scale, source.zero_point) for _ in range(count)]
        axis = self.writer.tensor((), "int32", data=np.array(3, np.int32))
        self.writer.operator(
            "SPLIT", [axis, source.tensor], [part.tensor for part in parts], numSplits=count
        )
        self.maps += parts[:-1]
        return parts[-1]

    def strided_slice(self, source: Map) -> Map:
        begin, end, strides, sizes = [0], [source.shape[0]], [1], [source.shape[0]]
        for size in source.shape[1:]:
            stride = int(self.rng.choice([1, 1, 2]))
            low = int(self.rng.integers(0, size)) if self.rng.integers(2) else 0
            high = int(self.rng.integers(low + 1, size + 1)) if self.rng.integers(2) else size
            begin.append(low)
            end.append(high)
            strides.append(stride)
            sizes.append(len(range(low, high, stride)))
        result = self._map(
            (sizes[0], sizes[1], sizes[2], sizes[3]), source.scale, source.zero_point
        )
        bounds = [
            self.writer.tensor((4,), "int32", data=np.array(each, np.int32))
            for each in (begin, end, strides)
        ]
        self.writer.operator("STRIDED_SLICE", [source.tensor, *bounds], [result.tensor])
        return result

    def resize(self, source: Map) -> Map:
        """Add a RESIZE_BILINEAR that makes each axis larger or smaller by a whole factor."""
        sizes: list[int] = []
        for size in source.shape[1:3]:
            factor = int(self.rng.choice([1, 2, 2, 4]))
            smaller = size % factor == 0 and self.rng.integers(3) == 0
            sizes.append(size // factor if smaller else size * factor)
        shape = (source.shape[0], sizes[0], sizes[1], source.shape[3])
        result = self._map(shape, source.scale, source.zero_point)
        wanted = self.writer.tensor((2,), "int32", data=np.array(sizes, np.int32))
        self.writer.operator(
            "RESIZE_BILINEAR",
            [source.tensor, wanted],
            [result.tensor],
            halfPixelCenters=bool(self.rng.integers(2)),
        )
        return result

    def fully_connected(self, source: Map) -> Map:
        """Add a FULLY_CONNECTED on the flattened map, with a map of one pixel as its result."""
        repeat = source.shape[0]
        k, n = int(np.prod(source.shape[1:])), int(self.rng.integers(1, MOST_CHANNELS))
        flat = self.writer.tensor((repeat, k), "int8", source.scale, source.zero_point)
        target = self.writer.tensor((2,), "int32", data=np.array([repeat, k], np.int32))
        self.writer.operator("RESHAPE", [source.tensor, target], [flat])
        weights, bias, scales, wish = self._weights(source, (n, k), n, k)
        result = self.writer.tensor((repeat, n), "int8", wish.scale, wish.zero_point)
        self.writer.fully_connected(flat, result, weights, bias, scales)
        shape = (repeat, 1, 1, n)
        pixel = self._map(shape, wish.scale, wish.zero_point)
        target = self.writer.tensor((4,), "int32", data=np.array(shape, np.int32))
        self.writer.operator("RESHAPE", [result, target], [pixel.tensor])
        return pixel


KINDS = (
    "convolution",
    "depthwise",
    "pool",
    "binary",
    "rescale",
    "curve",
    "leaky_relu",
    "pad",
    "mean",
    "concatenation",
    "split",
    "strided_slice",
    "resize",
    "fully_connected",
)
"""All operators that RandomMaps can add, as names of its methods."""
