# SPDX-License-Identifier: Apache-2.0
"""Random ONNX models of quantised operators, in both forms that ONNX Runtime's quantiser writes.

The forms are QLinear operators, and float32 operators between DequantizeLinear and QuantizeLinear.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.verif.compiler.random_onnx_moves import OnnxMoves, Tensor

MOST_CHANNELS = 40
MOST_ELEMENTS = 12_000


class RandomOnnx(OnnxMoves):
    """A random ONNX model that grows by one operator at a time, each on any of the tensors so far.

    `kinds` are the operators to choose from, as names of methods.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        kinds: tuple[str, ...],
        operators: int,
        samples: int = 2,
        rank: int | None = None,
    ) -> None:
        super().__init__(rng)
        shape = self._shape(int(rng.choice([3, 4, 4])) if rank is None else rank)
        self.tensors = [self._tensor(self.writer.input(shape, self.dtype), shape)]
        actions: dict[str, Callable[[Tensor], Tensor]] = {
            kind: getattr(self, kind) for kind in kinds
        }
        while len(self.tensors) <= operators:
            last = rng.integers(3) > 0
            number = -1 if last else int(rng.integers(len(self.tensors)))
            source = self.tensors[number]
            kind = str(rng.choice([each for each in kinds if len(source.shape) >= _RANK[each]]))
            result = actions[kind](source)
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
        """Add a Conv, MatMul or Gemm; axis `axis` of the weights is the axis of result channels."""
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
        """Return kernel, size of the result and attributes for a random window on a map."""
        rng = self.rng
        sizes = source.shape[2:]
        kernel, strides, dilations, out = [], [], [], []
        before, behind = [], []
        same = int(rng.integers(4)) == 0
        for size in sizes:
            stride = int(rng.choice([1, 1, 2, 3]))
            dilation = int(rng.choice([1, 1, 2])) if dilated and not same else 1
            taps = min(int(rng.integers(1, largest + 1)), (size - 1) // dilation + 1)
            if same:  # With auto_pad, ONNX Runtime accepts no gaps between windows.
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
        """Add a Gemm on the flattened tensor."""
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
        """Add a MatMul over the last dimension; a Transpose before it may put channels last."""
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
        return self._moved("MaxPool", source, (*source.shape[:2], *out), **attributes)

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

    def binary(self, source: Tensor) -> Tensor:
        """Add Add, Mul or Sub of a tensor and another operand.

        The operand is a constant, a tensor of the same shape, or a single pixel or channel of the
        tensor.
        """
        rng = self.rng
        kind = str(rng.choice(["Add", "Mul", "Add", "Sub"]))
        other = source
        match int(rng.integers(5)):
            case 0:
                channels = source.shape[1] if len(source.shape) > 1 else 1
                shapes = [source.shape, (1,), (channels, *(1 for _ in source.shape[2:]))]
                shape = shapes[int(rng.integers(3))]
                data = self._constant_codes(shape)
                other = self._tensor(self.writer.constant(data), shape)
            case 1 if len(source.shape) > 2:
                shape = (*source.shape[:2], *(1 for _ in source.shape[2:]))
                other = self._moved("MaxPool", source, shape, kernel_shape=source.shape[2:])
            case 2 if len(source.shape) > 2:
                shape = (1, 1, *source.shape[2:])
                bounds = [self._whole_numbers([each]) for each in (0, 1, 1)]
                other = self._moved("Slice", source, shape, *bounds)
            case 3:
                other = self.curve(source)
            case _:
                same = [each for each in self.tensors if each.shape == source.shape]
                other = same[int(rng.integers(len(same)))] if same else source
        pair = [source, other] if rng.integers(2) else [other, source]
        spread = 127 * (source.scale + other.scale)
        if kind == "Mul":
            spread = 100 * 100 * source.scale * other.scale
        scale = np.float32(spread / 127 * rng.uniform(0.4, 1.2))
        if self.fused and kind != "Sub":
            of_pair = [self.writer.scale(*each.quantisation, self.dtype) for each in pair]
            result = self._tensor("", source.shape, scale)
            of_result = self.writer.scale(*result.quantisation, self.dtype)
            inputs = [pair[0].name, *of_pair[0], pair[1].name, *of_pair[1], *of_result]
            name = self.writer.node(f"QLinear{kind}", *inputs)
            return Tensor(name, source.shape, *result.quantisation)
        numbers = self.writer.node(kind, *(self.numbers(each) for each in pair))
        return self.codes(numbers, source.shape, scale)

    def curve(self, source: Tensor) -> Tensor:
        kind = str(self.rng.choice(CURVES))
        attributes: dict[str, Any] = {"alpha": 0.15} if kind == "LeakyRelu" else {}
        if self.fused and kind in ("LeakyRelu", "Sigmoid"):
            result = self._tensor("", source.shape)
            of_source = self.writer.scale(*source.quantisation, self.dtype)
            of_result = self.writer.scale(*result.quantisation, self.dtype)
            name = self.writer.node(
                f"QLinear{kind}", source.name, *of_source, *of_result, **attributes
            )
            return Tensor(name, source.shape, *result.quantisation)
        numbers = self.writer.node(kind, self.numbers(source), **attributes)
        name = self.writer.quantise(numbers, *source.quantisation, self.dtype)
        return Tensor(name, *(source.shape, *source.quantisation))

    def reduce_mean(self, source: Tensor, axes: tuple[int, ...] | None = None) -> Tensor:
        rank = len(source.shape)
        if axes is None:
            chosen = [axis for axis in range(1, rank) if self.rng.integers(2)]
            axes = tuple(chosen or [rank - 1])
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(source.shape))
        numbers = self.writer.node("ReduceMean", self.numbers(source), axes=list(axes))
        return self.codes(numbers, shape, source.scale)

    def softmax(self, source: Tensor) -> Tensor:
        """Add a Softmax over rows of several elements.

        In ONNX Runtime a row of one element has no defined result.
        """
        axes = [axis for axis in range(1, len(source.shape)) if source.shape[axis] > 1]
        if not axes:
            return self.requantise(source)
        axis = int(self.rng.choice(axes))
        limits = np.iinfo(self.dtype)
        result = Tensor("", source.shape, np.float32(1 / 255), limits.min)
        if self.fused:
            of_source = self.writer.scale(*source.quantisation, self.dtype)
            of_result = self.writer.scale(*result.quantisation, self.dtype)
            name = self.writer.node(
                "QLinearSoftmax", source.name, *of_source, *of_result, axis=axis, opset=17
            )
            return Tensor(name, source.shape, *result.quantisation)
        numbers = self.writer.node("Softmax", self.numbers(source), axis=axis)
        name = self.writer.quantise(numbers, *result.quantisation, self.dtype)
        return Tensor(name, source.shape, *result.quantisation)


CURVES = ("Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "HardSwish", "Elu", "Abs", "Erf")
_QLINEAR = {"Conv": "QLinearConv", "MatMul": "QLinearMatMul", "Gemm": "QGemm"}

_RANK = defaultdict(
    lambda: 2,
    dict.fromkeys(
        ("convolution", "depthwise", "grouped", "max_pool", "average_pool", "global_average"), 3
    ),
)
"""Smallest number of dimensions of a tensor to which each kind of operator can be applied."""

KINDS = (
    "convolution",
    "depthwise",
    "grouped",
    "gemm",
    "matmul",
    "max_pool",
    "average_pool",
    "global_average",
    "binary",
    "requantise",
    "curve",
    "reduce_mean",
    "slice",
    "split",
    "pad",
    "transpose",
    "reshape",
    "gather",
    "concatenation",
    "softmax",
)
"""All operators that RandomOnnx can add, as names of its methods."""
