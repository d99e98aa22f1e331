# SPDX-License-Identifier: Apache-2.0
"""Tensors of codes in random ONNX models, and the operators that only move their elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.verif.compiler.onnx_writer import OnnxWriter


@dataclass(frozen=True)
class Tensor:
    """A tensor of codes in an ONNX model.

    Its shape is samples x channels x rows x columns, or any other shape.
    """

    name: str
    shape: tuple[int, ...]
    scale: np.float32
    zero_point: int

    @property
    def quantisation(self) -> tuple[np.float32, int]:
        """Scale and zero point of the tensor's codes."""
        return self.scale, self.zero_point


class OnnxMoves:
    """The tensors of a random ONNX model, and the operators that only move their elements.

    All codes of a model are int8, or all are uint8. A model has operators of one of two forms. In
    the first form they are QLinear operators, as far as ONNX Runtime has such operators. In the
    second form they are float32 operators between DequantizeLinear and QuantizeLinear.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.writer = OnnxWriter()
        self.dtype = str(rng.choice(["int8", "uint8"]))
        self.fused = bool(rng.integers(2))
        self.tensors: list[Tensor] = []

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
        """Add a DequantizeLinear of a tensor of codes, and return the name of its result."""
        return self.writer.dequantise(tensor.name, *tensor.quantisation, self.dtype)

    def codes(
        self,
        numbers: str,
        shape: tuple[int, ...],
        scale: np.float32 | None = None,
        zero_point: int | None = None,
    ) -> Tensor:
        """Add a QuantizeLinear of numbers, at times after a Relu or Clip, and return its codes."""
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

    def requantise(self, source: Tensor) -> Tensor:
        """Add operators that quantise a tensor with another scale, and return its new codes."""
        return self.codes(self.numbers(source), source.shape)

    def _constant_codes(self, shape: tuple[int, ...]) -> NDArray[Any]:
        limits = np.iinfo(self.dtype)
        return self.rng.integers(limits.min, limits.max + 1, shape, dtype=limits.dtype)

    def _whole_numbers(self, values: Any) -> str:
        return self.writer.constant(np.array(values, np.int64))

    def _moved(
        self, kind: str, source: Tensor, shape: tuple[int, ...], *inputs: str, **attributes: Any
    ) -> Tensor:
        """Add an operator that only moves elements, on codes or on their dequantised numbers."""
        if self.fused:
            name = self.writer.node(kind, source.name, *inputs, **attributes)
        else:
            numbers = self.writer.node(kind, self.numbers(source), *inputs, **attributes)
            name = self.writer.quantise(numbers, *source.quantisation, self.dtype)
        return Tensor(name, shape, *source.quantisation)

    def slice(self, source: Tensor) -> Tensor:
        starts, ends, steps, shape = [], [], [], [1]
        for size in source.shape[1:]:
            step = int(self.rng.choice([1, 1, 1, 2, -1]))
            low = int(self.rng.integers(0, size)) if self.rng.integers(2) else 0
            high = int(self.rng.integers(low + 1, size + 1)) if self.rng.integers(2) else size
            shape.append(len(range(low, high, abs(step))))
            if step < 0:
                starts.append(high - 1)
                ends.append(low - 1 if low else -size - 1)
            else:
                starts.append(low)
                ends.append(high)
            steps.append(step)
        axes = list(range(1, len(source.shape)))
        inputs = [self._whole_numbers(each) for each in (starts, ends, axes, steps)]
        return self._moved("Slice", source, tuple(shape), *inputs)

    def split(self, source: Tensor) -> Tensor:
        """Add a Split of any axis into two parts; return the last part."""
        axes = [axis for axis in range(1, len(source.shape)) if source.shape[axis] > 1]
        if not axes:
            return self.requantise(source)
        axis = int(self.rng.choice(axes))
        first = int(self.rng.integers(1, source.shape[axis]))
        sizes = (first, source.shape[axis] - first)
        names = self.writer.node(
            "Split", source.name, self._whole_numbers(sizes), results=2, axis=axis
        )
        parts = [
            Tensor(
                name,
                (*source.shape[:axis], size, *source.shape[axis + 1 :]),
                *source.quantisation,
            )
            for name, size in zip(names, sizes, strict=True)
        ]
        self.tensors.insert(0, parts[0])
        return parts[1]

    def pad(self, source: Tensor) -> Tensor:
        rank = len(source.shape)
        pads = self.rng.integers(0, 3, (2, rank))
        pads[:, 0] = 0
        if self.rng.integers(3):
            pads[:, 1] = 0
        shape = tuple((np.array(source.shape) + pads.sum(axis=0)).tolist())
        amounts = self._whole_numbers(pads.reshape(-1))
        if self.fused:
            value = self.writer.constant(np.array(source.zero_point, self.dtype))
            return self._moved("Pad", source, shape, amounts, value)
        return self._moved("Pad", source, shape, amounts)

    def transpose(self, source: Tensor) -> Tensor:
        order = [0, *(1 + self.rng.permutation(len(source.shape) - 1)).tolist()]
        shape = tuple(source.shape[axis] for axis in order)
        return self._moved("Transpose", source, shape, perm=order)

    def reshape(self, source: Tensor) -> Tensor:
        """Add a Reshape that joins two dimensions into one, or splits a dimension in two."""
        sizes = list(source.shape)
        axis = int(self.rng.integers(1, len(sizes)))
        if len(sizes) > 2 and axis + 1 < len(sizes) and self.rng.integers(2):
            sizes[axis : axis + 2] = [sizes[axis] * sizes[axis + 1]]
        elif len(sizes) < 4:
            factor = next(each for each in (3, 2, 5, 1) if sizes[axis] % each == 0)
            sizes[axis : axis + 1] = [factor, sizes[axis] // factor]
        return self._moved("Reshape", source, tuple(sizes), self._whole_numbers(sizes))

    def gather(self, source: Tensor) -> Tensor:
        axis = int(self.rng.integers(1, len(source.shape)))
        indices = self.rng.integers(-source.shape[axis], source.shape[axis], 3)
        shape = (*source.shape[:axis], 3, *source.shape[axis + 1 :])
        return self._moved("Gather", source, shape, self._whole_numbers(indices), axis=axis)

    def concatenation(self, source: Tensor) -> Tensor:
        """Add a concatenation of tensors with different scales, and in some cases of a constant."""
        axis = int(self.rng.integers(1, len(source.shape)))
        parts = [source]
        for each in (*self.tensors[-2:], source):
            rest = [size for other, size in enumerate(each.shape) if other != axis]
            if len(each.shape) == len(source.shape) and rest == [
                size for other, size in enumerate(source.shape) if other != axis
            ]:
                parts.append(each)
        if self.rng.integers(3) == 0:
            shape = (*source.shape[:axis], 2, *source.shape[axis + 1 :])
            parts.append(self._tensor(self.writer.constant(self._constant_codes(shape)), shape))
        size = sum(part.shape[axis] for part in parts)
        shape = (*source.shape[:axis], size, *source.shape[axis + 1 :])
        if self.fused:
            result = self._tensor("", shape)
            inputs = [*self.writer.scale(*result.quantisation, self.dtype)]
            for part in parts:
                inputs += [part.name, *self.writer.scale(*part.quantisation, self.dtype)]
            name = self.writer.node("QLinearConcat", *inputs, axis=axis)
            return Tensor(name, shape, *result.quantisation)
        numbers = [self.numbers(part) for part in parts]
        return self.codes(self.writer.node("Concat", *numbers, axis=axis), shape)
