# SPDX-License-Identifier: Apache-2.0
"""Random networks of operators that move elements, and of rare forms of other operators."""

from __future__ import annotations

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from systola.verif.compiler.random_maps import KINDS, MOST_CHANNELS, Map, RandomMaps

Shape = tuple[int, int, int, int]


class RandomMoves(RandomMaps):
    """A random network on feature maps that also has operators that move elements.

    No operator mixes samples, so the first dimension may count samples.
    """

    def _like(self, source: Map, shape: tuple[int, ...]) -> Map:
        """Return a new map of shape `shape` that has the scale and zero point of `source`."""
        return self._map((shape[0], shape[1], shape[2], shape[3]), source.scale, source.zero_point)

    def _numbers(self, values: object) -> int:
        data = np.array(values, np.int32)
        return self.writer.tensor(data.shape, "int32", data=data)

    def _reshaped(self, source: Map, shape: tuple[int, ...]) -> int:
        """Add a RESHAPE of a map to any shape; return the tensor of the result."""
        result = self.writer.tensor(shape, "int8", source.scale, source.zero_point)
        self.writer.operator("RESHAPE", [source.tensor, self._numbers(shape)], [result])
        return result

    def reshape(self, source: Map) -> Map:
        """Add a RESHAPE of a map, mostly to another number of channels."""
        repeat, *rest = source.shape
        size = int(np.prod(rest))
        divisors = [n for n in range(1, size + 1) if size % n == 0]
        channels = int(self.rng.choice(divisors))
        width = int(self.rng.choice([n for n in divisors if size // channels % n == 0]))
        shape = (repeat, size // channels // width, width, channels)
        return Map(self._reshaped(source, shape), shape, source.scale, source.zero_point)

    def transpose(self, source: Map) -> Map:
        order = [0, *(self.rng.permutation(3) + 1).tolist()]
        result = self._like(source, tuple(source.shape[axis] for axis in order))
        numbers = self._numbers(order)
        self.writer.operator("TRANSPOSE", [source.tensor, numbers], [result.tensor])
        return result

    def reverse(self, source: Map) -> Map:
        result = self._like(source, source.shape)
        axis = self._numbers([int(self.rng.integers(1, 4))])
        self.writer.operator("REVERSE_V2", [source.tensor, axis], [result.tensor])
        return result

    def tile(self, source: Map) -> Map:
        counts = [1, *self.rng.integers(1, 3, 3).tolist()]
        sizes = tuple(size * count for size, count in zip(source.shape, counts, strict=True))
        result = self._like(source, sizes)
        self.writer.operator("TILE", [source.tensor, self._numbers(counts)], [result.tensor])
        return result

    def gather(self, source: Map) -> Map:
        axis = int(self.rng.integers(1, 4))
        numbers = self.rng.integers(0, source.shape[axis], int(self.rng.integers(1, 9)))
        shape = list(source.shape)
        shape[axis] = len(numbers)
        result = self._like(source, tuple(shape))
        inputs = [source.tensor, self._numbers(numbers)]
        self.writer.operator("GATHER", inputs, [result.tensor], axis=axis, batchDims=0)
        return result

    def split_v(self, source: Map) -> Map:
        axis = int(self.rng.integers(1, 4))
        size = source.shape[axis]
        cut = int(self.rng.integers(0, size))
        sizes = [size] if cut == 0 else [cut, -1]
        parts: list[Map] = []
        for count in sizes:
            shape = list(source.shape)
            shape[axis] = size - cut if count == -1 else count
            parts.append(self._like(source, tuple(shape)))
        inputs = [source.tensor, self._numbers(sizes), self._numbers(axis)]
        results = [part.tensor for part in parts]
        self.writer.operator("SPLIT_V", inputs, results, numSplits=len(parts))
        self.maps += parts[:-1]
        return parts[-1]

    def slice(self, source: Map) -> Map:
        starts, sizes = [0], [source.shape[0]]
        for size in source.shape[1:]:
            starts.append(int(self.rng.integers(0, size)))
            sizes.append(int(self.rng.integers(1, size - starts[-1] + 1)))
        result = self._like(source, tuple(sizes))
        whole = [
            -1 if low + n == size else n
            for low, n, size in zip(starts, sizes, source.shape, strict=True)
        ]
        inputs = [source.tensor, self._numbers(starts), self._numbers(whole)]
        self.writer.operator("SLICE", inputs, [result.tensor])
        return result

    def masks(self, source: Map) -> Map:
        """Add a STRIDED_SLICE with random masks, and with negative bounds and strides."""
        rng = self.rng
        begin, end, strides, index = [0], [0], [1], [slice(None)]
        options = {"beginMask": 1, "endMask": 1, "shrinkAxisMask": 0}
        for axis, size in enumerate(source.shape[1:], 1):
            stride = int(rng.choice([-2, -1, 1, 1, 2]))
            low, high = int(rng.integers(-size, size)), int(rng.integers(-size - 1, size + 1))
            first: int | None = low
            last: int | None = high
            if rng.integers(2):
                options["beginMask"] |= 1 << axis
                first = None
            if rng.integers(2) or len(range(size)[first:high:stride]) == 0:
                options["endMask"] |= 1 << axis
                last = None
            if rng.integers(4) == 0:
                options["shrinkAxisMask"] |= 1 << axis
                # shrinkAxisMask takes a single element of this axis, and the result has a dimension
                # less.
                kept_place = 0 if first is None else low % size
                index.append(slice(kept_place, kept_place + 1))
                stride = 1
            else:
                index.append(slice(first, last, stride))
            begin.append(low)
            end.append(high)
            strides.append(stride)
        kept = np.empty(source.shape)[tuple(index)].shape
        lost = [axis for axis in range(4) if options["shrinkAxisMask"] >> axis & 1]
        shape = tuple(size for axis, size in enumerate(kept) if axis not in lost)
        # The compiler refuses a result of one dimension for several samples: the numbers could
        # also be a vector of a single sample.
        if 0 in kept or (len(shape) == 1 and source.shape[0] > 1):
            return source
        sliced = self.writer.tensor(shape, "int8", source.scale, source.zero_point)
        inputs = [source.tensor, *(self._numbers(each) for each in (begin, end, strides))]
        self.writer.operator("STRIDED_SLICE", inputs, [sliced], **options)
        result = self._like(source, kept)
        self.writer.operator("RESHAPE", [sliced, self._numbers(kept)], [result.tensor])
        return result

    def pack(self, source: Map) -> Map:
        """Add an UNPACK along an axis, and a PACK of some of its parts along any axis."""
        axis = int(self.rng.integers(1, 4))
        rest = tuple(size for other, size in enumerate(source.shape) if other != axis)
        parts = [
            self.writer.tensor(rest, "int8", source.scale, source.zero_point)
            for _ in range(source.shape[axis])
        ]
        self.writer.operator("UNPACK", [source.tensor], parts, axis=axis, num=len(parts))
        taken = [parts[n] for n in self.rng.integers(0, len(parts), int(self.rng.integers(1, 6)))]
        other = int(self.rng.integers(1, 4))
        shape = [*rest]
        shape.insert(other, len(taken))
        result = self._like(source, tuple(shape))
        self.writer.operator("PACK", taken, [result.tensor], axis=other, valuesCount=len(taken))
        return result

    def join(self, source: Map) -> Map:
        """Add a CONCATENATION of a map with itself, and mostly with a constant, along any axis."""
        axis = int(self.rng.integers(1, 4))
        shape = list(source.shape)
        shape[axis] = int(self.rng.integers(1, 4))
        data = self.rng.integers(-128, 128, shape, dtype=np.int8)
        parts = [source.tensor, source.tensor]
        sizes = list(source.shape)
        sizes[axis] *= 2
        if source.shape[0] == 1:
            constant = self.writer.tensor(
                tuple(shape), "int8", source.scale, source.zero_point, data
            )
            parts.insert(int(self.rng.integers(3)), constant)
            sizes[axis] += shape[axis]
        result = self._like(source, tuple(sizes))
        self.writer.operator("CONCATENATION", parts, [result.tensor], axis=axis)
        return result

    def blocks(self, source: Map) -> Map:
        """Add a SPACE_TO_DEPTH or a DEPTH_TO_SPACE with blocks of 2 x 2 pixels."""
        repeat, height, width, channels = source.shape
        if height % 2 == 0 and width % 2 == 0:
            kind, shape = "SPACE_TO_DEPTH", (repeat, height // 2, width // 2, 4 * channels)
        elif channels % 4 == 0:
            kind, shape = "DEPTH_TO_SPACE", (repeat, 2 * height, 2 * width, channels // 4)
        else:
            return source
        result = self._like(source, shape)
        self.writer.operator(kind, [source.tensor], [result.tensor], blockSize=2)
        return result

    def nearest(self, source: Map) -> Map:
        height, width = (int(size) for size in self.rng.integers(1, 20, 2))
        result = self._like(source, (source.shape[0], height, width, source.shape[3]))
        mode = int(self.rng.integers(3))
        self.writer.operator(
            "RESIZE_NEAREST_NEIGHBOR",
            [source.tensor, self._numbers((height, width))],
            [result.tensor],
            alignCorners=mode == 1,
            halfPixelCenters=mode == 2,
        )
        return result

    def mirror(self, source: Map) -> Map:
        mode = int(self.rng.integers(2))
        padding = [[0, 0]]
        for size in source.shape[1:]:
            most = min(size - 1 + mode, 3)
            padding.append(self.rng.integers(0, most + 1, 2).tolist())
        sizes = np.array(source.shape) + np.sum(padding, axis=1)
        result = self._like(source, tuple(sizes.tolist()))
        inputs = [source.tensor, self._numbers(padding)]
        self.writer.operator("MIRROR_PAD", inputs, [result.tensor], mode=mode)
        return result

    def padded_convolution(self, source: Map) -> Map:
        """Add a PAD, and after it an operator with windows.

        The compiler may make the padding a part of the windows.
        """
        padding = [[0, 0], *self.rng.integers(0, 4, (2, 2)).tolist(), [0, 0]]
        sizes = np.array(source.shape) + np.sum(padding, axis=1)
        padded = self._like(source, tuple(sizes.tolist()))
        inputs = [source.tensor, self._numbers(padding)]
        kind = "PAD"
        if self.rng.integers(2):
            # Mostly, but not always, the padding has the code of zero.
            value = int(self.rng.choice([source.zero_point, source.zero_point, 5]))
            kind = "PADV2"
            data = np.array([value], np.int8)
            inputs.append(self.writer.tensor((1,), "int8", source.scale, source.zero_point, data))
        self.writer.operator(kind, inputs, [padded.tensor])
        after = (self.convolution, self.depthwise, self.pool)
        return after[int(self.rng.integers(3))](padded)

    def groups(self, source: Map) -> Map:
        """Add a CONV_2D that has its channels in several groups."""
        channels = source.shape[3]
        count = int(self.rng.choice([n for n in range(1, channels + 1) if channels % n == 0]))
        kernel, out, options = self._window(source, 4, dilated=True)
        n = count * int(self.rng.integers(1, MOST_CHANNELS // count + 2))
        shape = (n, *kernel, channels // count)
        taps = kernel[0] * kernel[1] * channels // count
        weights, bias, scales, wish = self._weights(source, shape, n, taps)
        bias = np.zeros(n, np.int32) if bias is None else bias
        result = self._map((source.shape[0], *out, n), wish.scale, wish.zero_point)
        self.writer.weighted(
            "CONV_2D", source.tensor, result.tensor, weights, bias, scales, 0, **options
        )
        return result

    def spread(self, source: Map) -> Map:
        """Add ADD, SUB or MUL of the map and a second operand of any shape that fits the map.

        The second operand is a mean of the map, or a constant of any rank.
        """
        rng = self.rng
        axes = tuple(int(axis) for axis in np.flatnonzero(rng.integers(0, 2, 3)) + 1)
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(source.shape))
        if rng.integers(2) and axes in ((1,), (2,), (3,), (1, 2), (2, 3), (1, 2, 3)):
            other = self._mean(source, axes).tensor
        else:
            shape = (1, *shape[1:])
            first = int(rng.integers(4)) if 1 not in shape else 0
            data = rng.integers(-128, 128, shape[first:], dtype=np.int8)
            zero_point = int(rng.integers(-128, 128))
            other = self.writer.tensor(data.shape, "int8", self._scale(), zero_point, data)
        pair = [source.tensor, other]
        result = self._map(source.shape)
        self.writer.operator(
            str(rng.choice(["ADD", "SUB", "MUL"])),
            pair if rng.integers(2) else pair[::-1],
            [result.tensor],
            fusedActivationFunction=self._activation(),
        )
        return result

    def scalar(self, source: Map) -> Map:
        """Add ADD, SUB or MUL of the map and a single constant number.

        The scales of map, number and result are of the same order of magnitude.
        """
        rng = self.rng
        data = rng.integers(-128, 128, (), dtype=np.int8)
        other = self.writer.tensor((), "int8", self._scale(), int(rng.integers(-128, 128)), data)
        pair = [source.tensor, other]
        result = self._map(source.shape)
        self.writer.operator(
            str(rng.choice(["ADD", "SUB", "MUL"])),
            pair if rng.integers(2) else pair[::-1],
            [result.tensor],
            fusedActivationFunction=self._activation(),
        )
        return result

    def extreme(self, source: Map) -> Map:
        """Add a MAXIMUM or a MINIMUM of the map and a constant or another map."""
        rng = self.rng
        kind = str(rng.choice(["MAXIMUM", "MINIMUM"]))
        if rng.integers(2):
            shape = ((), (source.shape[3],), (1, *source.shape[1:]))[int(rng.integers(3))]
            data = rng.integers(-128, 128, shape, dtype=np.int8)
            other = self.writer.tensor(shape, "int8", source.scale, source.zero_point, data)
        else:
            changed = self._like(source, source.shape)
            scaled = self.rescale(source)
            self.writer.operator("QUANTIZE", [scaled.tensor], [changed.tensor])
            other = changed.tensor
        result = self._like(source, source.shape)
        self.writer.operator(kind, [source.tensor, other], [result.tensor])
        return result

    def largest(self, source: Map) -> Map:
        """Add a REDUCE_MAX along the height, the width or both."""
        axes = [(1,), (2,), (1, 2)][int(self.rng.integers(3))]
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(source.shape))
        result = self._like(source, shape)
        inputs = [source.tensor, self._numbers(axes)]
        self.writer.operator("REDUCE_MAX", inputs, [result.tensor], keepDims=True)
        return result

    def sequence_mean(self, source: Map) -> Map:
        """Add a MEAN over all pixels of a map, taken as the steps of a sequence, with any scale."""
        repeat, height, width, channels = source.shape
        flat = self._reshaped(source, (repeat, height * width, channels))
        scale = source.scale if self.rng.integers(2) else self._scale()
        zero_point = source.zero_point if self.rng.integers(2) else 7
        mean = self.writer.tensor((repeat, channels), "int8", scale, zero_point)
        self.writer.operator("MEAN", [flat, self._numbers([1])], [mean], keepDims=False)
        made = Map(mean, (repeat, 1, 1, channels), scale, zero_point)
        shape = (repeat, 1, 1, channels)
        return Map(self._reshaped(made, shape), shape, scale, zero_point)

    def dilated(self, source: Map) -> Map:
        """Add SPACE_TO_BATCH_ND, a convolution and BATCH_TO_SPACE_ND: a dilated convolution."""
        rng = self.rng
        if source.shape[0] > 1:
            return source
        block = rng.integers(1, 4, 2)
        kernel = rng.integers(1, 4, 2)
        before = rng.integers(0, 3, 2)
        sizes = np.array(source.shape[1:3])
        needed = (kernel - 1) * block + 1 - before - sizes
        padded = before + sizes + np.maximum(needed, 0)
        padded = -(-padded // block) * block
        padding = np.stack([before, padded - before - sizes], axis=1)
        inner = padded // block
        out = inner - kernel + 1
        crops = np.stack([rng.integers(0, 2, 2), rng.integers(0, 2, 2)], axis=1)
        crops[out * block <= 2] = 0
        count, channels, n = int(block.prod()), source.shape[3], int(rng.integers(1, 20))
        spread = self._like(source, (count, *inner.tolist(), channels))
        numbers = self._numbers(block)
        self.writer.operator(
            "SPACE_TO_BATCH_ND",
            [source.tensor, numbers, self._numbers(padding)],
            [spread.tensor],
        )
        shape = (n, *kernel.tolist(), channels)
        weights, bias, scales, wish = self._weights(source, shape, n, int(kernel.prod()) * channels)
        bias = np.zeros(n, np.int32) if bias is None else bias
        made = self._map((count, *out.tolist(), n), wish.scale, wish.zero_point)
        self.writer.weighted(
            "CONV_2D",
            spread.tensor,
            made.tensor,
            weights,
            bias,
            scales,
            0,
            padding=schema.Padding.VALID,
            strideH=1,
            strideW=1,
        )
        result = self._like(made, (1, *(out * block - crops.sum(axis=1)).tolist(), n))
        self.writer.operator(
            "BATCH_TO_SPACE_ND",
            [made.tensor, numbers, self._numbers(crops)],
            [result.tensor],
        )
        return result

    def tables(self, source: Map) -> Map:
        """Add a rare function of single elements, such as HARD_SWISH or ABS."""
        kind = str(self.rng.choice(["HARD_SWISH", "ABS", "RELU_N1_TO_1", "RELU_0_TO_1"]))
        result = self._like(source, source.shape)
        self.writer.operator(kind, [source.tensor], [result.tensor])
        return result

    def clamped(self, source: Map) -> Map:
        """Add an ADD with RELU_N1_TO_1 as its fused activation."""
        result = self._map(source.shape)
        self.writer.operator(
            "ADD",
            [source.tensor, source.tensor],
            [result.tensor],
            fusedActivationFunction=schema.ActivationFunctionType.RELU_N1_TO_1,
        )
        return result

    def detour(self, source: Map) -> Map:
        """Add a DEQUANTIZE, a SPLIT of the float32 map, and a QUANTIZE of one part."""
        shape = (*source.shape[:3], source.shape[3] * 2)
        doubled = self._like(source, shape)
        self.writer.operator(
            "CONCATENATION", [source.tensor, source.tensor], [doubled.tensor], axis=3
        )
        wide = self.writer.tensor(shape, "float32")
        self.writer.operator("DEQUANTIZE", [doubled.tensor], [wide])
        halves = [self.writer.tensor(source.shape, "float32") for _ in range(2)]
        self.writer.operator("SPLIT", [self._numbers(3), wide], halves, numSplits=2)
        result = (
            self._like(source, source.shape) if self.rng.integers(2) else self._map(source.shape)
        )
        self.writer.operator("QUANTIZE", halves[1:], [result.tensor])
        return result


MOVES = (
    "reshape",
    "transpose",
    "reverse",
    "tile",
    "gather",
    "split_v",
    "slice",
    "masks",
    "pack",
    "join",
    "blocks",
    "nearest",
    "mirror",
    "padded_convolution",
    "groups",
    "spread",
    "scalar",
    "extreme",
    "largest",
    "sequence_mean",
    "dilated",
    "tables",
    "clamped",
    "detour",
)
"""Operators that RandomMoves has beyond the operators of RandomMaps, as names of its methods."""
ALL_KINDS = (*KINDS, *MOVES)
