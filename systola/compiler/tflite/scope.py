# SPDX-License-Identifier: Apache-2.0
"""The state of a translation, which each operator of a TensorFlow Lite model may read and
add to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.host_stage import HostFunction, HostStage
from systola.compiler.moves import Positions
from systola.compiler.operations import Requantisation, Value, scalar_requantisation
from systola.compiler.partition import Item
from systola.compiler.quantise import folded_bias, relu_limits, to_single
from systola.compiler.semantics import Semantics
from systola.compiler.tflite.fully_connected import (
    FUSED,
    bias_values,
    check_symmetric,
    fused_activation,
    multiplier,
)
from systola.compiler.tflite.graph import Graph, Operator, Tensor, need_type

MOST_ELEMENTS = 1 << 23
"""Largest number of elements of a tensor that the network calculates.

With more elements, the compilation would take long.
"""


@dataclass(frozen=True)
class Padded:
    """The source of a PAD and the padding. A convolution can take this source and pad by itself."""

    source: Value
    before: tuple[int, ...]
    """Number of elements added before the source, along each axis."""
    fill: int


@dataclass(frozen=True, eq=False)
class Dequantised:
    """A value of float32 that is a function of codes of int8, element by element."""

    codes: Value
    numbers: NDArray[np.float32]
    """Numbers of float32 for which the codes stand, for all codes in the order of INT8."""


@dataclass(frozen=True)
class Moved:
    """A value of int8 that is made from another value only by moves of elements."""

    source: Value
    origin: Positions
    """Position in `source` of each element of the value, -1 for `fill`, as an array of one
    dimension.
    """
    fill: int
    by_host: bool
    """True if the host does one of the moves from `source` to the value."""


class Scope:
    """A collector of the operations that have been translated so far, with the graph.

    All methods raise ModelError if something is not supported.
    """

    def __init__(self, graph: Graph, repeat: int, semantics: Semantics) -> None:
        """Begin a translation with the results of the interpreter `semantics`.

        `repeat` is 1, or the first dimension that all calculated tensors have in common. Each index
        along this dimension then becomes a sample.
        """
        self.graph = graph
        self.semantics = semantics
        self.repeat = repeat
        self.items: list[Item] = []
        self.inexact_channels = 0
        self.padded: dict[Value, Padded] = {}
        self.moved: dict[Value, Moved] = {}
        self.dequantised: dict[Value, Dequantised] = {}
        self.halves: dict[tuple[Value, int], Value] = {}
        """Values of int16 as rows of low and rows of high bytes, by the original value and the
        number of elements in a row.
        """
        self.reasons: dict[str, str] = {}
        """Reasons why operators stay on the host, by texts such as "operator 3 (SOFTMAX)"."""
        self._values: dict[int, Value] = {}

    def tensor(self, operator: Operator, position: int) -> Tensor:
        """Return the tensor of an operator's input, constant or not; raise ModelError if it is
        missing.
        """
        number = operator.inputs[position] if position < len(operator.inputs) else -1
        if number < 0:
            raise ModelError(f"its input {position} is missing")
        return self.graph.tensors[number]

    def optional(self, operator: Operator, position: int) -> Tensor | None:
        """Return the tensor of an operator's input, or None if the input is missing."""
        number = operator.inputs[position] if position < len(operator.inputs) else -1
        return None if number < 0 else self.graph.tensors[number]

    def whole_numbers(self, operator: Operator, position: int) -> NDArray[np.int64]:
        """Return the content of an operator's input, which must be a constant of int32 or int64."""
        tensor = self.tensor(operator, position)
        if tensor.data is None:
            raise ModelError(f"its input {position} must be a constant")
        if tensor.dtype not in ("int32", "int64"):
            raise ModelError(f"its input {position} is {tensor.dtype}, supported is int32")
        return tensor.data.astype(np.int64)

    def source(
        self, operator: Operator, position: int = 0, dtype: str = "int8"
    ) -> tuple[Value, Tensor]:
        """Return the value and the tensor of an operator's input, which must be calculated."""
        tensor = self.tensor(operator, position)
        need_type("input", tensor, dtype)
        number = operator.inputs[position]
        if number not in self._values:
            raise ModelError(f"its input {position} must not be a constant")
        return self._values[number], tensor

    def operand(self, operator: Operator, position: int) -> tuple[Value | NDArray[np.int8], Tensor]:
        """Return an operator's input of int8, and its tensor.

        A calculated input is a value, a constant input an array of codes.
        """
        tensor = self.tensor(operator, position)
        if tensor.data is None:
            return self.source(operator, position)
        need_type("input", tensor, "int8")
        return tensor.data, tensor

    def result(
        self, operator: Operator, position: int = 0, dtype: str = "int8"
    ) -> tuple[Value, Tensor]:
        """Return the value and the tensor of an operator's result."""
        if position >= len(operator.outputs):
            raise ModelError(f"it has no result {position}")
        number = operator.outputs[position]
        tensor = self.graph.tensors[number]
        need_type("result", tensor, dtype)
        return self.define(number), tensor

    def define(self, number: int) -> Value:
        """Return the value of tensor `number`, a result of an operator or an input of the model.

        The first call for a tensor makes this value.
        """
        if number not in self._values:
            tensor = self.graph.tensors[number]
            shape = tensor.shape
            if not 0 < tensor.size <= MOST_ELEMENTS:
                raise ModelError(
                    f"tensor '{tensor.name}' has the shape {shape}, supported are 1 to "
                    f"{MOST_ELEMENTS} elements"
                )
            if self.repeat > 1:
                shape = (1, *shape[1:])
            self._values[number] = Value(tensor.name, shape, tensor.dtype)
        return self._values[number]

    def alias(self, operator: Operator, source: Value) -> None:
        """Make the result of an operator the same value as `source`."""
        self._values[operator.outputs[0]] = source

    def add(self, *items: Item) -> None:
        """Append operations for the machine or the host."""
        self.items += items

    def host(
        self,
        operator: Operator,
        function: HostFunction,
        result: Value,
        *sources: Value,
        reason: str = "",
    ) -> None:
        """Append an operation of the host; `reason`, if not empty, is shown by `tpu check`."""
        if reason:
            self.reasons[str(operator)] = reason
        stage = HostStage(operator=str(operator), sources=sources, result=result, function=function)
        self.items.append(stage)


def one_result(operator: Operator, inputs: int) -> None:
    """Raise ModelError unless the operator has one result and at least `inputs` inputs."""
    if len(operator.outputs) != 1 or len(operator.inputs) < inputs:
        raise ModelError("the numbers of its inputs and outputs are wrong")


def check_maps(*values: Value) -> None:
    """Raise ModelError unless all values have the shape of a feature map."""
    for value in values:
        if len(value.shape) != 4 or value.shape[0] != 1:
            raise ModelError(
                f"a feature map should have the shape 1 x H x W x C, not {value.shape}"
            )


def same_quantisation(source: Tensor, result: Tensor) -> None:
    """Raise ModelError unless two tensors have the same scale and zero point, or none."""
    if not len(source.scales) and not len(result.scales):
        return
    if source.scale != result.scale or source.zero_point != result.zero_point:
        raise ModelError("its input and result must have the same scale and zero point")


def channel_requantisation(
    operator: Operator,
    source: Tensor,
    result: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    weight_sums: NDArray[np.int64],
    axis: int,
) -> Requantisation:
    """Return the requantisation of a convolution, with a scale for each channel of the result.

    The channels of the result are along `axis` of the weights.
    """
    n = len(weight_sums)
    if len(weights.scales) not in (1, n) or (len(weights.scales) > 1 and weights.axis != axis):
        raise ModelError("its weights need one scale, or one for each output")
    check_symmetric(weights)
    products = source.scale * weights.channel_scales
    if weights.unsigned:
        # For weights of uint8, LiteRT multiplies the two scales in float32.
        products = np.array([to_single(float(product)) for product in products])
    scales = products / result.scale
    pairs = [multiplier(float(scale)) for scale in np.broadcast_to(scales, (n,))]
    activation = fused_activation(operator)
    return Requantisation(
        bias=folded_bias(bias_values(bias, n), source.zero_point, weight_sums),
        multiplier=np.array([q for q, _ in pairs], np.int32),
        shift=np.array([shift for _, shift in pairs], np.int32),
        zero_point=result.zero_point,
        function=FUSED[activation],
        ceiling=relu_limits(activation, result.scale, result.zero_point)[1],
    )


def activated_requantisation(
    operator: Operator, scale: float, result: Tensor, bias: int = 0
) -> Requantisation:
    """Return the requantisation with one scale for all channels, and with the fused activation.

    `scale` is the factor from sums to codes of the result.
    """
    activation = fused_activation(operator)
    q, shift = multiplier(scale)
    return scalar_requantisation(
        q,
        shift,
        bias=bias,
        zero_point=result.zero_point,
        function=FUSED[activation],
        ceiling=relu_limits(activation, result.scale, result.zero_point)[1],
    )
