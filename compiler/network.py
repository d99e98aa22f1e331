# SPDX-License-Identifier: Apache-2.0
"""From the graph of a network to stages: layers for the machine, small things for the host.

What is supported is a chain: FULLY_CONNECTED with activations, which the machine calculates, and
before, between and behind them what the host can do on the way. Results equal those of
ai-edge-litert 2.3.0 (BUILTIN_REF) byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Function, Rounding
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.graph import Graph, Operator, Tensor
from systola.compiler.layer import Layer
from systola.compiler.quantise import (
    INT8,
    curve_table,
    exact_multipliers,
    relu_limits,
    requantise_table,
    to_float,
    to_int8,
)
from systola.compiler.schedule import CompiledProgram, compile_chain
from systola.runtime.softmax import softmax

VIEWS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
CURVES = ("LOGISTIC", "TANH")
FUSED = {"NONE": Function.NONE, "RELU": Function.RELU, "RELU6": Function.RELU6}


@dataclass(frozen=True)
class HostStage:
    """Something that the host does with an array of samples x shape."""

    name: str
    function: Callable[[NDArray[Any]], NDArray[Any]]
    shape: tuple[int, ...]
    """Of one sample, before and after."""


@dataclass(frozen=True)
class DeviceStage:
    """Layers that the machine calculates, one fed by the other."""

    layers: tuple[Layer, ...]
    rows: int
    """Input vectors of one sample."""


@dataclass(frozen=True)
class Network:
    """A network ready to be compiled for a machine."""

    input_shape: tuple[int, ...]
    input_dtype: str
    output_shape: tuple[int, ...]
    output_dtype: str
    stages: tuple[HostStage | DeviceStage, ...]
    inexact_channels: int
    """Channels that LiteRT's scale has no equal multiplier for, see exact_multipliers."""

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample."""
        return sum(
            stage.rows * layer.k * layer.n
            for stage in self.stages
            if isinstance(stage, DeviceStage)
            for layer in stage.layers
        )


@dataclass(frozen=True)
class CompiledNetwork:
    """A network compiled for a machine and a number of samples."""

    network: Network
    samples: int
    stages: tuple[HostStage | tuple[CompiledProgram, ...], ...]
    """What the host does, and programs to be run one after the other."""


def compile_network(config: Config, network: Network, samples: int) -> CompiledNetwork:
    """Compiles `network` for `samples` samples at a time.

    Raises CompileError where a layer does not fit the machine.
    """
    return CompiledNetwork(
        network,
        samples,
        tuple(
            stage
            if isinstance(stage, HostStage)
            else _compile_layers(config, stage.layers, stage.rows * samples)
            for stage in network.stages
        ),
    )


def _compile_layers(
    config: Config, layers: tuple[Layer, ...], rows: int
) -> tuple[CompiledProgram, ...]:
    """One program, or several where what lies between the layers is too much for the buffer."""
    try:
        return (compile_chain(config, layers, rows),)
    except CompileError:
        if len(layers) == 1:
            raise
    half = len(layers) // 2
    return (
        *_compile_layers(config, layers[:half], rows),
        *_compile_layers(config, layers[half:], rows),
    )


def build_network(graph: Graph) -> Network:
    """The stages of the network `graph`.

    Raises ModelError, with number and kind of the operator, for what is not supported.
    """
    if len(graph.inputs) != 1 or len(graph.outputs) != 1:
        raise ModelError(
            f"the model has {len(graph.inputs)} inputs and {len(graph.outputs)} outputs, "
            "one of each is supported"
        )
    builder = _Builder(graph)
    for operator in graph.operators:
        try:
            builder.add(operator)
        except (ModelError, CompileError) as error:
            raise ModelError(f"{operator}: {error}") from None
    return builder.finish()


class _Builder:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._current = graph.inputs[0]
        """The tensor that the operators so far have calculated."""
        self._stages: list[HostStage | DeviceStage] = []
        self._inexact = 0
        source = graph.tensors[self._current]
        if source.dtype not in ("int8", "float32"):
            raise ModelError(f"the input is {source.dtype}, supported are int8 and float32")
        if source.size == 0:
            raise ModelError(f"the input has the shape {source.shape}, which is empty")

    def finish(self) -> Network:
        source = self._graph.tensors[self._graph.inputs[0]]
        result = self._graph.tensors[self._graph.outputs[0]]
        if self._current != self._graph.outputs[0]:
            raise ModelError("the output is not what the last operator calculates")
        return Network(
            source.shape,
            source.dtype,
            result.shape,
            result.dtype,
            tuple(self._stages),
            self._inexact,
        )

    def add(self, operator: Operator) -> None:
        """Appends one operator, which must take what the one before has calculated."""
        actions: dict[str, Callable[[Operator, Tensor, Tensor], None]] = {
            "FULLY_CONNECTED": self._fully_connected,
            "SOFTMAX": self._softmax,
            "QUANTIZE": self._quantize,
            "DEQUANTIZE": self._dequantize,
            **dict.fromkeys(CURVES, self._curve),
            **dict.fromkeys(("RELU", "RELU6"), self._relu),
            **dict.fromkeys(VIEWS, self._view),
        }
        action = actions.get(operator.kind)
        if action is None:
            raise ModelError("this kind of operator is not supported")
        tensors = self._graph.tensors
        if len(operator.outputs) != 1 or not operator.inputs:
            raise ModelError("the numbers of its inputs and outputs are wrong")
        if operator.inputs[0] != self._current:
            raise ModelError(
                "it does not take the result of the one before: only chains are supported"
            )
        if any(number >= 0 and tensors[number].data is None for number in operator.inputs[1:]):
            raise ModelError("all its inputs but the first must be constants")
        source, result = tensors[self._current], tensors[operator.outputs[0]]
        if operator.kind != "FULLY_CONNECTED" and source.size != result.size:
            raise ModelError(f"it makes shape {result.shape} of shape {source.shape}")
        action(operator, source, result)
        self._current = operator.outputs[0]

    def _fully_connected(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        inputs = [self._graph.tensors[n] if n >= 0 else None for n in operator.inputs]
        weights = inputs[1] if len(inputs) > 1 else None
        bias = inputs[2] if len(inputs) > 2 else None
        _need_type("input", source, "int8")
        _need_type("result", result, "int8")
        if weights is None or weights.data is None:
            raise ModelError("its weights are missing, or of a type that is not supported")
        _need_type("weights", weights, "int8")
        if len(weights.shape) != 2 or weights.size == 0:
            raise ModelError(f"its weights have the shape {weights.shape}")
        if operator.options.get("shuffled"):
            raise ModelError("shuffled weights are not supported")
        if bool(weights.zero_points.any()):
            raise ModelError("its weights have a zero point other than 0, which is not supported")
        n, k = weights.shape
        if source.size % k:
            raise ModelError(f"weights of {k} inputs do not fit a tensor of shape {source.shape}")
        rows = source.size // k
        if result.size != rows * n:
            raise ModelError(f"its result should have {rows * n} elements, not {result.size}")
        if len(weights.scales) not in (1, n) or (len(weights.scales) > 1 and weights.axis != 0):
            raise ModelError("its weights need one scale, or one for each output")
        sums = np.zeros(n, np.int64)
        if bias is not None:
            _need_type("bias", bias, "int32")
            if bias.data is None or bias.size != n:
                raise ModelError(f"its bias should have {n} values, not shape {bias.shape}")
            sums = bias.data.reshape(n).astype(np.int64)
        layer = self._layer(
            operator.options.get("activation", "NONE"), source, result, weights, sums
        )
        last = self._stages[-1] if self._stages else None
        if isinstance(last, DeviceStage) and last.rows == rows and last.layers[-1].n == k:
            self._stages[-1] = DeviceStage((*last.layers, layer), rows)
        else:
            self._stages.append(DeviceStage((layer,), rows))

    def _layer(
        self,
        activation: str,
        source: Tensor,
        result: Tensor,
        weights: Tensor,
        bias: NDArray[np.int64],
    ) -> Layer:
        if activation not in FUSED:
            raise ModelError(f"the fused activation {activation} is not supported")
        assert weights.data is not None
        values: NDArray[np.int8] = np.ascontiguousarray(weights.data.T, np.int8)
        wide = values.astype(np.int64)
        zero_point = source.zero_point
        # The least and the greatest sum that any input gives.
        low_end, high_end = wide * (-128 - zero_point), wide * (127 - zero_point)
        limits = (
            bias + np.minimum(low_end, high_end).sum(axis=0),
            bias + np.maximum(low_end, high_end).sum(axis=0),
        )
        low, high = (np.clip(limit, -(2**31), 2**31 - 1) for limit in limits)
        scale = np.float64(source.scale) * weights.channel_scales / np.float64(result.scale)
        multiplier, shift, exact = exact_multipliers(np.broadcast_to(scale, bias.shape), low, high)
        self._inexact += int(np.count_nonzero(~exact))
        # The input's zero point goes into the bias; sums are modulo 2^32.
        folded = bias - zero_point * wide.sum(axis=0)
        return Layer(
            weights=values,
            bias=(folded & 0xFFFF_FFFF).astype(np.uint32).view(np.int32),
            multiplier=multiplier,
            shift=shift,
            rounding=Rounding.SINGLE,
            zero_point=result.zero_point,
            function=FUSED[activation],
            ceiling=relu_limits(activation, result.scale, result.zero_point)[1],
        )

    def _curve(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        self._elementwise(
            operator,
            source,
            result,
            curve_table(
                operator.kind, source.scale, source.zero_point, result.scale, result.zero_point
            ),
        )

    def _relu(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        limits = relu_limits(operator.kind, result.scale, result.zero_point)
        self._requantise(operator, source, result, limits)

    def _quantize(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        if source.dtype == "float32" and result.dtype == "int8":
            scale, zero_point = result.scale, result.zero_point
            self._host(operator, source, lambda x: to_int8(x, scale, zero_point))
        else:
            self._requantise(operator, source, result, None)

    def _dequantize(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        _need_type("input", source, "int8")
        _need_type("result", result, "float32")
        scale, zero_point = source.scale, source.zero_point
        self._host(operator, source, lambda x: to_float(x, scale, zero_point))

    def _softmax(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        _need_type("input", source, "int8")
        _need_type("result", result, "int8")
        if result.scale != 1 / 256 or result.zero_point != -128:
            raise ModelError("its result must have the scale 1/256 and the zero point -128")
        scale, beta = source.scale, float(operator.options.get("beta", 0.0))
        if not 2.0**-26 < beta * scale < 2.0**26:
            raise ModelError(f"its beta of {beta} is not supported")
        self._host(operator, source, lambda x: softmax(x, scale, beta))

    def _view(self, operator: Operator, source: Tensor, result: Tensor) -> None:
        _need_type("result", result, source.dtype)

    def _requantise(
        self, operator: Operator, source: Tensor, result: Tensor, limits: tuple[int, int] | None
    ) -> None:
        table = requantise_table(
            source.scale, source.zero_point, result.scale, result.zero_point, limits
        )
        self._elementwise(operator, source, result, table)

    def _elementwise(
        self, operator: Operator, source: Tensor, result: Tensor, table: NDArray[np.int8]
    ) -> None:
        """A function of each int8 code, given in the order of INT8."""
        _need_type("input", source, "int8")
        _need_type("result", result, "int8")
        stage = self._stages[-1] if self._stages else None
        if isinstance(stage, DeviceStage):
            # Nothing else takes the result of the layer before: Activate looks it up in passing.
            *others, layer = stage.layers
            self._stages[-1] = DeviceStage((*others, _with_table(layer, table)), stage.rows)
        else:
            self._host(operator, source, lambda x: table[x.astype(np.int64) + 128])

    def _host(
        self, operator: Operator, source: Tensor, function: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> None:
        self._stages.append(HostStage(operator.kind, function, source.shape))


def _with_table(layer: Layer, table: NDArray[np.int8]) -> Layer:
    """`layer` followed by `table`, which is in the order of INT8."""
    codes = INT8
    if layer.function in (Function.RELU, Function.RELU6):
        codes = np.maximum(codes, layer.zero_point)
    if layer.function == Function.RELU6:
        codes = np.minimum(codes, layer.ceiling)
    if layer.table is not None:
        codes = np.roll(np.frombuffer(layer.table, np.int8), 128).astype(np.int64)
    # Load_Table has the codes 0 to 127 first.
    return replace(
        layer, function=Function.TABLE, table=np.roll(table[codes + 128], -128).tobytes()
    )


def _need_type(what: str, tensor: Tensor, dtype: str) -> None:
    if tensor.dtype != dtype:
        raise ModelError(f"its {what} is {tensor.dtype}, supported is {dtype}")


def sample_count(network: Network, shape: tuple[int, ...]) -> int | None:
    """Samples in an array of `shape`; None for a single one without an axis for samples.

    Along its first axis the array has samples of the model's shape, or of that without the leading
    1 that models have for a batch. Raises ModelError for any other shape.
    """
    model = network.input_shape
    if shape == model:
        return None
    if len(shape) > 0 and (shape[1:] == model or (model[:1] == (1,) and shape[1:] == model[1:])):
        return shape[0]
    raise ModelError(
        f"an input of shape {shape} does not fit the model: it takes samples of shape {model}"
    )


def output_shape(network: Network, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the outputs for an array of inputs of `shape`, with the axes that it has."""
    samples = sample_count(network, shape)
    if samples is None:
        return network.output_shape
    result = network.output_shape
    if shape[1:] != network.input_shape and result[:1] == (1,):
        result = result[1:]
    return (samples, *result)
