# SPDX-License-Identifier: Apache-2.0
"""Operations with random weights, and with scales that a converter would choose for them.

Weights are bell-shaped, symmetric int8. Each channel has a multiplier of its own, chosen so that
results spread over the codes of int8. Sums have the deviation w x sqrt(K), for K products of
independent weights (deviation w) and activations (root mean square x).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Operation, Reduction, Rounding
from systola.compiler.layer import Layer
from systola.compiler.operations import (
    Binary,
    Concatenation,
    Convolution,
    Node,
    Operations,
    Pooling,
    Product,
    Requantisation,
    Reshape,
    Scale,
    Unary,
    Value,
    Window,
    scalar_requantisation,
)
from systola.compiler.quantise import curve_table, folded_bias, quantise_multiplier, table_bytes

HALF = 64
"""Bound of the two random numbers that add up to a weight: each is from -HALF + 1 to HALF - 1."""
WEIGHT_DEVIATION = sqrt(2 / 3 * HALF * (HALF - 1))
DEVIATION = 45.0
"""Standard deviation of a layer's results, in codes, before ReLU."""
GATE_SCALE, CELL_SCALE = 1 / 16, 1 / 32
"""Scales, which are the value of one code: of a gate's argument, and of a cell."""
GATE_DEVIATION = 24.0
"""Standard deviation of the arguments of gates: 24 codes, which are a value of 1.5."""


@dataclass(frozen=True)
class Tensor:
    """A value of the network, with statistics of its codes."""

    value: Value
    zero_point: int
    rms: float
    """Root mean square of code - zero point."""


class Builder:
    """A builder that appends operations, with weights from `seed`."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._nodes: list[Node] = []
        self._inputs: list[Value] = []

    def operations(self, *outputs: Tensor) -> Operations:
        """Return all operations that were appended."""
        values = tuple(output.value for output in outputs)
        return Operations(tuple(self._inputs), values, tuple(self._nodes))

    def input(self, *shape: int) -> Tensor:
        """Append an input of the network."""
        value = Value(f"input {len(self._inputs)}", shape)
        self._inputs.append(value)
        return Tensor(value, 0, DEVIATION)

    def dense(self, x: Tensor, size: int, *, curve: str = "") -> Tensor:
        """Append a fully connected layer, followed by ReLU or, with `curve`, LOGISTIC or TANH."""
        k = x.value.pixels * x.value.channels
        weights = self._weights(k, size)
        multiplier, shift, bias = self._sums(
            weights, x, GATE_DEVIATION if curve else DEVIATION, rounding=Rounding.SINGLE
        )
        zero_point, rms, table = -128, DEVIATION / sqrt(2), None
        if curve:
            zero_point, rms, table = _curve(curve, GATE_SCALE)
        layer = Layer(
            weights=weights,
            bias=bias,
            multiplier=multiplier,
            shift=shift,
            rounding=Rounding.SINGLE,
            zero_point=0 if curve else zero_point,
            function=Function.TABLE if curve else Function.RELU,
            table=table,
        )
        result = self._value(1, size)
        self._nodes.append(
            Product(operator=self._name("product"), result=result, source=x.value, layer=layer)
        )
        return Tensor(result, zero_point, rms)

    def convolution(
        self, x: Tensor, kernel: int, channels: int, *, stride: int = 1, relu: bool = True
    ) -> Tensor:
        """Append a convolution with SAME padding, followed by ReLU if `relu`."""
        height, width = x.value.grid
        weights = self._weights(kernel, kernel, x.value.channels, channels)
        flat = weights.reshape(-1, channels)
        multiplier, shift, bias = self._sums(flat, x, DEVIATION, rounding=Rounding.DOUBLE)
        window = _window(kernel, stride, height, width)
        result = self._value(1, *window.out, channels)
        zero_point = -128 if relu else 0
        self._nodes.append(
            Convolution(
                operator=self._name("convolution"),
                result=result,
                source=x.value,
                weights=weights,
                window=window,
                fill=x.zero_point,
                output=Requantisation(
                    bias=bias,
                    multiplier=multiplier,
                    shift=shift,
                    zero_point=zero_point,
                    function=Function.RELU if relu else Function.NONE,
                ),
            )
        )
        return Tensor(result, zero_point, DEVIATION / sqrt(2))

    def pooling(self, x: Tensor, kernel: int, stride: int, *, valid: bool = False) -> Tensor:
        """Append a pooling that keeps the largest of each window, with SAME padding or none."""
        height, width = x.value.grid
        window = _window(kernel, stride, height, width)
        if valid:
            out = ((height - kernel) // stride + 1, (width - kernel) // stride + 1)
            window = replace(window, first=(0, 0), out=out)
        result = self._value(1, *window.out, x.value.channels)
        self._nodes.append(
            Pooling(
                operator=self._name("pooling"),
                result=result,
                source=x.value,
                reduction=Reduction.MAX,
                window=window,
            )
        )
        return Tensor(result, x.zero_point, x.rms)

    def side_by_side(self, parts: list[Tensor]) -> Tensor:
        """Append a concatenation of all channels of all parts; their codes must have about the same
        scale.
        """
        if len(parts) == 1:
            return parts[0]
        shape = parts[0].value.shape
        result = self._value(*shape[:-1], sum(part.value.channels for part in parts))
        self._nodes.append(
            Concatenation(
                operator=self._name("concatenation"),
                result=result,
                parts=tuple(part.value for part in parts),
                axis=len(shape) - 1,
            )
        )
        return Tensor(result, parts[0].zero_point, max(part.rms for part in parts))

    def flat(self, x: Tensor) -> Tensor:
        """Append a reshape of all elements to one vector."""
        result = self._value(1, prod(x.value.shape))
        self._nodes.append(Reshape(operator=self._name("reshape"), result=result, source=x.value))
        return Tensor(result, x.zero_point, x.rms)

    def multiplied(self, a: Tensor, b: Tensor, scale: float) -> Tensor:
        """Append the product of two values; a result code is the product of the codes times
        `scale`.
        """
        zero_points = (a.zero_point, b.zero_point)
        return self._binary(Operation.MULTIPLY, a, b, scale, zero_points, a.rms * b.rms * scale)

    def added(self, a: Tensor, b: Tensor, scale: float = 1.0) -> Tensor:
        """Append the sum of two values of the same scale, times `scale`."""
        zero_points = (a.zero_point, b.zero_point)
        rms = sqrt(a.rms**2 + b.rms**2) * scale
        return self._binary(Operation.ADD, a, b, scale, zero_points, rms)

    def tanh(self, cell: Tensor) -> Tensor:
        """Append the curve TANH of a cell."""
        zero_point, rms, table = _curve("TANH", CELL_SCALE)
        result = self._value(*cell.value.shape)
        self._nodes.append(
            Unary(operator=self._name("curve"), result=result, source=cell.value, table=table)
        )
        return Tensor(result, zero_point, rms)

    def _binary(
        self,
        operation: Operation,
        a: Tensor,
        b: Tensor,
        scale: float,
        zero_points: tuple[int, int],
        rms: float,
    ) -> Tensor:
        half, one = quantise_multiplier(0.5), 0.5
        sums = operation == Operation.ADD
        multiplier, shift = quantise_multiplier(scale / (one * 2**20) if sums else scale)
        result = self._value(*a.value.shape)
        scales = [Scale(point, half[0] if sums else 0, -half[1]) for point in zero_points]
        self._nodes.append(
            Binary(
                operator=self._name("vector"),
                result=result,
                operation=operation,
                a=a.value,
                b=b.value,
                scale_a=scales[0],
                scale_b=scales[1],
                output=scalar_requantisation(multiplier, shift),
            )
        )
        return Tensor(result, 0, rms)

    def _weights(self, *shape: int) -> NDArray[np.int8]:
        low, high = 1 - HALF, HALF
        one, two = (self._rng.integers(low, high, shape, dtype=np.int8) for _ in range(2))
        return one + two

    def _sums(
        self, weights: NDArray[np.int8], x: Tensor, deviation: float, *, rounding: Rounding
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Return multiplier, shift and bias of each channel of weights K x N, int32 [N] each."""
        k, n = weights.shape
        spread = WEIGHT_DEVIATION * x.rms * sqrt(k)
        scales = deviation / spread * self._rng.uniform(0.8, 1.2, n)
        pairs = np.array([quantise_multiplier(float(scale)) for scale in scales], np.int32)
        own = np.rint(self._rng.normal(0.0, 0.3 * spread, n)).astype(np.int64)
        sums = weights.sum(axis=0, dtype=np.int64)
        return pairs[:, 0], pairs[:, 1], folded_bias(own, x.zero_point, sums)

    def _value(self, *shape: int) -> Value:
        return Value(f"value {len(self._nodes)}", shape)

    def _name(self, kind: str) -> str:
        return f"{kind} {len(self._nodes)}"


def _window(kernel: int, stride: int, height: int, width: int) -> Window:
    """Return a window with SAME padding, as in LiteRT."""
    out = (-(-height // stride), -(-width // stride))
    first = [
        -(max((count - 1) * stride + kernel - size, 0) // 2)
        for count, size in zip(out, (height, width), strict=True)
    ]
    return Window(
        kernel=(kernel, kernel), stride=(stride, stride), first=(first[0], first[1]), out=out
    )


def _curve(curve: str, scale: float) -> tuple[int, float, bytes]:
    """Return zero point and root mean square of a curve's results, and its table."""
    if curve == "LOGISTIC":
        zero_point, out_scale, rms = -128, 1 / 256, 145.0
    else:
        zero_point, out_scale, rms = 0, 1 / 128, 80.0
    return zero_point, rms, table_bytes(curve_table(curve, scale, 0, out_scale, zero_point))
