# SPDX-License-Identifier: Apache-2.0
"""Random ONNX models of quantised operators, in both forms that ONNX Runtime's quantiser writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.verif.compiler.onnx_writer import OnnxWriter

MOST_CHANNELS = 40
MOST_ELEMENTS = 12_000


@dataclass(frozen=True)
class Tensor:
    """A tensor of codes, samples x channels x rows x columns or any other shape."""

    name: str
    shape: tuple[int, ...]
    scale: np.float32
    zero_point: int

    @property
    def quantisation(self) -> tuple[np.float32, int]:
        """What the codes mean."""
        return self.scale, self.zero_point


class RandomOnnx:
    """A network that grows by one operator at a time, each on any of the tensors so far.

    `kinds` are names of methods. All codes are int8 or all are uint8, all operators are QLinear
    operators where there are such, or all are float32 between DequantizeLinear and QuantizeLinear.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        kinds: tuple[str, ...],
        operators: int,
        samples: int = 2,
        rank: int | None = None,
    ) -> None:
        self.rng = rng
        self.writer = OnnxWriter()
        self.dtype = str(rng.choice(["int8", "uint8"]))
        self.fused = bool(rng.integers(2))
        shape = self._shape(int(rng.choice([3, 4, 4])) if rank is None else rank)
        self.tensors = [self._tensor(self.writer.input(shape, self.dtype), shape)]
        actions: dict[str, Callable[[Tensor], Tensor]] = {
            kind: getattr(self, kind) for kind in kinds
        }
        while len(self.tensors) <= operators:
            last = rng.integers(3) > 0
            number = -1 if last else int(rng.integers(len(self.tensors)))
            result = actions[str(rng.choice(kinds))](self.tensors[number])
            if np.prod(result.shape) <= MOST_ELEMENTS:
                self.tensors.append(result)
        final = self.tensors[-1]
        self.content = self.writer.content((final.name, self.dtype, final.shape))
        limits = np.iinfo(self.dtype)
        self.samples = rng.integers(
            limits.min, limits.max + 1, (samples, *shape), dtype=limits.dtype
        )

    def _shape(self, rank: int) -> tuple[int, ...]:
        channels = int(self.rng.choice([1, 2, 3, 4, 7, 16, 19]))
        sizes = (int(size) for size in self.rng.integers(1, 14, rank - 2))
        return (1, channels, *sizes)

    def _scale(self) -> np.float32:
        return np.float32(10 ** self.rng.uniform(-2.2, -0.9))

    def _zero_point(self) -> int:
        limits = np.iinfo(self.dtype)
        ends = [limits.min, (limits.min + limits.max + 1) // 2]
        return int(self.rng.choice([*ends, self.rng.integers(limits.min, limits.max + 1)]))

    def _tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        scale: np.float32 | None = None,
        zero_point: int | None = None,
    ) -> Tensor:
        scale = self._scale() if scale is None else scale
        return Tensor(name, shape, scale, self._zero_point() if zero_point is None else zero_point)

    def numbers(self, tensor: Tensor) -> str:
        """A DequantizeLinear."""
        return self.writer.dequantise(tensor.name, *tensor.quantisation, self.dtype)

    def codes(
        self,
        numbers: str,
        shape: tuple[int, ...],
        scale: np.float32 | None = None,
        zero_point: int | None = None,
    ) -> Tensor:
        """A QuantizeLinear, sometimes behind a Relu or a Clip."""
        kind = int(self.rng.integers(6))
        if kind == 0:
            numbers = self.writer.node("Relu", numbers)
        elif kind == 1:
            bounds = [self.writer.constant(np.float32(bound)) for bound in (0.0, 2.5)]
            numbers = self.writer.node("Clip", numbers, *bounds)
        elif kind == 2:
            bounds = [self.writer.constant(np.float32(bound)) for bound in (-1.5, 2.5)]
            numbers = self.writer.node("Clip", numbers, *bounds)
        result = self._tensor("", shape, scale, zero_point)
        name = self.writer.quantise(numbers, *result.quantisation, self.dtype)
        return Tensor(name, *(result.shape, *result.quantisation))

    def _linear(
        self,
        kind: str,
        source: Tensor,
        weights: NDArray[np.int64],
        axis: int,
        shape: tuple[int, ...],
        *,
        with_bias: bool,
        **attributes: Any,
    ) -> Tensor:
        """Conv, MatMul or Gemm with weights of results along `axis`."""
        rng, writer = self.rng, self.writer
        n = weights.shape[axis]
        count = n if rng.integers(2) else 1
        scale = self._scale()
        spread = source.scale * 5500 * np.sqrt(weights.size / n) / (scale * 50)
        scales = (rng.uniform(0.3, 1, count) / spread).astype(np.float32)
        scales = scales if count > 1 else scales[0]
        result = self._tensor("", shape, scale)
        bias = rng.integers(-9000, 9000, n, dtype=np.int32) if with_bias else None
        zero_points: Any = 0
        dtype = "int8"
        if self.dtype == "uint8" and count == 1 and rng.integers(3) == 0:
            dtype, zero_points = "uint8", int(rng.integers(100, 150))
            weights = weights + 128
        constant = writer.constant(weights.astype(dtype))
        of_weights = writer.scale(scales, zero_points, dtype)
        if self.fused:
            of_source = writer.scale(*source.quantisation, self.dtype)
            of_result = writer.scale(*result.quantisation, self.dtype)
            inputs = [source.name, *of_source, constant, *of_weights]
            biases = [] if bias is None else [writer.constant(bias)]
            if kind == "Gemm":
                inputs += biases or [""]
                inputs += of_result
            else:
                inputs += [*of_result, *biases]
            name = writer.node(_QLINEAR[kind], *inputs, **attributes)
            return Tensor(name, shape, *result.quantisation)
        inputs = [
            self.numbers(source),
            writer.node(
                "DequantizeLinear", constant, *of_weights, **({"axis": axis} if count > 1 else {})
            ),
        ]
        if bias is not None:
            more = {"axis": 0} if count > 1 else {}
            inputs.append(
                writer.dequantise(
                    writer.constant(bias), source.scale * np.asarray(scales), 0, "int32", **more
                )
            )
        return self.codes(writer.node(kind, *inputs, **attributes), shape, *result.quantisation)

    def _window(
        self, source: Tensor, largest: int, *, dilated: bool
    ) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
        """Kernel, size of the result and attributes; the window fits the map."""
        rng = self.rng
        sizes = source.shape[2:]
        kernel, strides, dilations, out = [], [], [], []
        before, behind = [], []
        same = int(rng.integers(4)) == 0
        for size in sizes:
            stride = int(rng.choice([1, 1, 2, 3]))
            dilation = int(rng.choice([1, 1, 2])) if dilated and not same else 1
            taps = min(int(rng.integers(1, largest + 1)), (size - 1) // dilation + 1)
            if same:  # ONNX Runtime does not leave out anything between windows here.
                stride = min(stride, taps)
            extent = (taps - 1) * dilation + 1
            pads = [0, 0] if rng.integers(2) else rng.integers(0, taps, 2).tolist()
            before.append(pads[0])
            behind.append(pads[1])
            kernel.append(taps)
            strides.append(stride)
            dilations.append(dilation)
            if same:
                out.append(-(-size // stride))
            else:
                out.append((size + sum(pads) - extent) // stride + 1)
        attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
        if dilated:
            attributes["dilations"] = dilations
        if same:
            attributes["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER"]))
        else:
            attributes["pads"] = [*before, *behind]
        return tuple(kernel), tuple(out), attributes

    def _convolution(self, source: Tensor, groups: int, n: int) -> Tensor:
        kernel, out, attributes = self._window(source, 5, dilated=True)
        shape = (n, source.shape[1] // groups, *kernel)
        weights = self.rng.integers(-127, 128, shape)
        if groups > 1:
            attributes["group"] = groups
        return self._linear(
            "Conv",
            source,
            weights,
            0,
            (1, n, *out),
            with_bias=bool(self.rng.integers(4)),
            **attributes,
        )

    def convolution(self, source: Tensor) -> Tensor:
        return self._convolution(source, 1, int(self.rng.integers(1, MOST_CHANNELS)))

    def depthwise(self, source: Tensor) -> Tensor:
        channels = source.shape[1]
        return self._convolution(source, channels, channels * int(self.rng.choice([1, 1, 2])))

    def grouped(self, source: Tensor) -> Tensor:
        channels = source.shape[1]
        groups = next(count for count in (3, 2, 1) if channels % count == 0)
        return self._convolution(source, groups, groups * int(self.rng.integers(1, 12)))

    def gemm(self, source: Tensor) -> Tensor:
        """On the flattened map."""
        k, n = int(np.prod(source.shape[1:])), int(self.rng.integers(1, MOST_CHANNELS))
        flat = Tensor(self.writer.node("Flatten", source.name), (1, k), *source.quantisation)
        transposed = int(self.rng.integers(2))
        weights = self.rng.integers(-127, 128, (n, k) if transposed else (k, n))
        with_bias = bool(self.rng.integers(4))
        attributes = {"transB": 1} if transposed else {}
        return self._linear(
            "Gemm", flat, weights, 1 - transposed, (1, n), with_bias=with_bias, **attributes
        )

    def matmul(self, source: Tensor) -> Tensor:
        """Of the last dimension, or of the channels brought there."""
        order = list(range(len(source.shape)))
        if len(order) > 2 and self.rng.integers(2):
            order = [0, *order[2:], 1]
            name = self.writer.node("Transpose", source.name, perm=order)
            shape = tuple(source.shape[axis] for axis in order)
            source = Tensor(name, shape, *source.quantisation)
        n = int(self.rng.integers(1, MOST_CHANNELS))
        weights = self.rng.integers(-127, 128, (source.shape[-1], n))
        shape = (*source.shape[:-1], n)
        return self._linear("MatMul", source, weights, 1, shape, with_bias=False)

    def max_pool(self, source: Tensor) -> Tensor:
        _, out, attributes = self._window(source, 4, dilated=False)
        shape = (*source.shape[:2], *out)
        if self.fused:
            name = self.writer.node("MaxPool", source.name, **attributes)
            return Tensor(name, shape, *source.quantisation)
        numbers = self.writer.node("MaxPool", self.numbers(source), **attributes)
        name = self.writer.quantise(numbers, *source.quantisation, self.dtype)
        return Tensor(name, shape, *source.quantisation)

    def average_pool(self, source: Tensor) -> Tensor:
        _, out, attributes = self._window(source, 4, dilated=False)
        attributes["count_include_pad"] = int(self.rng.integers(2))
        shape = (*source.shape[:2], *out)
        return self._mean(source, shape, "AveragePool", **attributes)

    def global_average(self, source: Tensor) -> Tensor:
        shape = (*source.shape[:2], *(1 for _ in source.shape[2:]))
        return self._mean(source, shape, "GlobalAveragePool")

    def _mean(self, source: Tensor, shape: tuple[int, ...], kind: str, **attributes: Any) -> Tensor:
        result = self._tensor("", shape)
        if self.rng.integers(2):
            result = Tensor("", shape, *source.quantisation)
        if self.fused:
            of_source = self.writer.scale(*source.quantisation, self.dtype)
            of_result = self.writer.scale(*result.quantisation, self.dtype)
            name = self.writer.node(
                f"QLinear{kind}", source.name, *of_source, *of_result, channels_last=0, **attributes
            )
            return Tensor(name, shape, *result.quantisation)
        numbers = self.writer.node(kind, self.numbers(source), **attributes)
        name = self.writer.quantise(numbers, *result.quantisation, self.dtype)
        return Tensor(name, shape, *result.quantisation)


_QLINEAR = {"Conv": "QLinearConv", "MatMul": "QLinearMatMul", "Gemm": "QGemm"}

KINDS = (
    "convolution",
    "depthwise",
    "grouped",
    "gemm",
    "matmul",
    "max_pool",
    "average_pool",
    "global_average",
)
"""All operators that RandomOnnx can add."""
