# SPDX-License-Identifier: Apache-2.0
"""The state of a translation, which the translator of each operator reads and adds to.

An operator's inputs and results are tensors of the file. A tensor with content in the file is a
constant, all other tensors are calculated. For each calculated tensor there is a value, which the
operations of the translation take and make. A code is an integer as a quantised tensor has it.
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
"""Largest number of elements of a calculated tensor.

With more elements, the compilation would take long, so the operator is refused.
"""


@dataclass(frozen=True)
class Padded:
    """The source of a PAD, with the padding that PAD adds to it.

    A convolution after the PAD can take this source and do the padding itself.
    """

    source: Value
    before: tuple[int, ...]
    """Number of elements that the PAD adds before the source's elements, for each axis."""
    fill: int


@dataclass(frozen=True, eq=False)
class Dequantised:
    """A float32 value, each element of which stands for one int8 code of another value."""

    codes: Value
    numbers: NDArray[np.float32]
    """Float32 number for which each code stands, from code -128 to code 127."""


@dataclass(frozen=True)
class Moved:
    """The origin of an int8 value that was made from `source` by nothing but moves of elements."""

    source: Value
    origin: Positions
    """Position in the flattened `source` of each element of the value, as an array of one
    dimension. An element with -1 is the code `fill`.
    """
    fill: int
    by_host: bool
    """True if the host does at least one of the moves from `source` to the value."""


class Scope:
    """A translation under way: the graph, and the operations made from its operators so far.

    A method raises ModelError if its operator or tensor is not supported.
    """

    def __init__(self, graph: Graph, repeat: int, semantics: Semantics) -> None:
        """Begin a translation of `graph`, with the arithmetic of the interpreter `semantics`.

        `repeat` is the number of samples along the first dimension of all calculated tensors. With
        1, a tensor belongs to one sample as a whole.
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
        """Map from an int16 value and a number of elements in a row to the value's bytes: for
        each row of elements, a row of low bytes and a row of high bytes.
        """
        self.reasons: dict[str, str] = {}
        """Map from an operator, such as "operator 3 (SOFTMAX)", to why it is on the host."""
        self._values: dict[int, Value] = {}

    def tensor(self, operator: Operator, position: int) -> Tensor:
        """Return the tensor of the operator's input `position`, counted from 0, constant or not.

        Raises ModelError if the input is missing.
        """
        number = operator.inputs[position] if position < len(operator.inputs) else -1
        if number < 0:
            raise ModelError(f"its input {position} is missing")
        return self.graph.tensors[number]

    def optional(self, operator: Operator, position: int) -> Tensor | None:
        """Return the tensor of the operator's input `position`, or None if the input is missing."""
        number = operator.inputs[position] if position < len(operator.inputs) else -1
        return None if number < 0 else self.graph.tensors[number]

    def whole_numbers(self, operator: Operator, position: int) -> NDArray[np.int64]:
        """Return the content of the operator's input `position`.

        Raises ModelError unless the input is a constant of int32 or int64.
        """
        tensor = self.tensor(operator, position)
        if tensor.data is None:
            raise ModelError(f"its input {position} must be a constant")
        if tensor.dtype not in ("int32", "int64"):
            raise ModelError(f"its input {position} is {tensor.dtype}, supported is int32")
        return tensor.data.astype(np.int64)

    def source(
        self, operator: Operator, position: int = 0, dtype: str = "int8"
    ) -> tuple[Value, Tensor]:
        """Return the value and the tensor of the operator's input `position`.

        Raises ModelError if the input is a constant, or has another type than `dtype`.
        """
        tensor = self.tensor(operator, position)
        need_type("input", tensor, dtype)
        number = operator.inputs[position]
        if number not in self._values:
            raise ModelError(f"its input {position} must not be a constant")
        return self._values[number], tensor

    def operand(self, operator: Operator, position: int) -> tuple[Value | NDArray[np.int8], Tensor]:
        """Return the operator's int8 input `position` and the input's tensor.

        A calculated input is returned as a value, a constant input as an array of codes.
        """
        tensor = self.tensor(operator, position)
        if tensor.data is None:
            return self.source(operator, position)
        need_type("input", tensor, "int8")
        return tensor.data, tensor

    def result(
        self, operator: Operator, position: int = 0, dtype: str = "int8"
    ) -> tuple[Value, Tensor]:
        """Return the value and the tensor of the operator's result `position`, counted from 0."""
        if position >= len(operator.outputs):
            raise ModelError(f"it has no result {position}")
        number = operator.outputs[position]
        tensor = self.graph.tensors[number]
        need_type("result", tensor, dtype)
        return self.define(number), tensor

    def define(self, number: int) -> Value:
        """Return the value that stands for the graph's tensor `number`, which is no constant.

        The first call for a tensor makes the value, later calls return the same one.
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
        """Let `source` stand for the operator's first result, without an operation."""
        self._values[operator.outputs[0]] = source

    def add(self, *items: Item) -> None:
        """Append operations for the machine or the host to `items`."""
        self.items += items

    def host(
        self,
        operator: Operator,
        function: HostFunction,
        result: Value,
        *sources: Value,
        reason: str = "",
    ) -> None:
        """Append a host stage that applies `function` to `sources` and makes `result`.

        A `reason` is kept in `reasons`, and `tpu check` shows it.
        """
        if reason:
            self.reasons[str(operator)] = reason
        stage = HostStage(operator=str(operator), sources=sources, result=result, function=function)
        self.items.append(stage)


def one_result(operator: Operator, inputs: int) -> None:
    """Raise ModelError unless the operator has one result and at least `inputs` inputs."""
    if len(operator.outputs) != 1 or len(operator.inputs) < inputs:
        raise ModelError("the numbers of its inputs and outputs are wrong")


def check_maps(*values: Value) -> None:
    """Raise ModelError unless all values have the shape of a feature map, 1 x H x W x C."""
    for value in values:
        if len(value.shape) != 4 or value.shape[0] != 1:
            raise ModelError(
                f"a feature map should have the shape 1 x H x W x C, not {value.shape}"
            )


def same_quantisation(source: Tensor, result: Tensor) -> None:
    """Raise ModelError unless both tensors have the same scale and zero point, or no scale."""
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
    """Return a convolution's requantisation, with a multiplier and shift for each result channel.

    The channels of the result are along `axis` of the weights. `weight_sums` has the sum of the
    weights of each of these channels.
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
    """Return a requantisation with one scale for all channels and the operator's fused activation.

    `scale` is the factor from a sum to the result's code, less the zero point.
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
