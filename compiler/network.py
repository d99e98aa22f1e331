# SPDX-License-Identifier: Apache-2.0
"""From the graph of a network to stages: work for the machine, small things for the host.

A chain of FULLY_CONNECTED goes its own way, many samples at a time; any other network is lowered
operator by operator, one sample at a time. Results equal those of ai-edge-litert 2.3.0
(BUILTIN_REF) byte by byte.
"""

from __future__ import annotations

from dataclasses import dataclass

from systola.arch.config import Config
from systola.compiler.chain import DeviceStage, build_chain, is_chain
from systola.compiler.compile_operations import CompiledOperations, compile_operations
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.graph import Graph
from systola.compiler.host_stage import HostStage
from systola.compiler.layer import Layer
from systola.compiler.operations import Operations
from systola.compiler.schedule import CompiledProgram, compile_chain
from systola.compiler.translate import translate

Stage = HostStage | DeviceStage | Operations
Program = CompiledProgram | CompiledOperations


@dataclass(frozen=True)
class Network:
    """A network ready to be compiled for a machine."""

    input_shape: tuple[int, ...]
    input_dtype: str
    output_shape: tuple[int, ...]
    output_dtype: str
    stages: tuple[Stage, ...]
    inexact_channels: int
    """Channels that LiteRT's scale has no equal multiplier for, see exact_multipliers."""

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one sample."""
        total = 0
        for stage in self.stages:
            match stage:
                case DeviceStage():
                    total += sum(stage.rows * layer.k * layer.n for layer in stage.layers)
                case Operations():
                    total += stage.macs
                case HostStage():
                    pass
        return total


@dataclass(frozen=True)
class CompiledNetwork:
    """A network compiled for a machine and a number of samples."""

    network: Network
    samples: int
    stages: tuple[HostStage | tuple[Program, ...], ...]
    """What the host does, and programs to be run one after the other."""


def compile_network(config: Config, network: Network, samples: int) -> CompiledNetwork:
    """Compiles `network` for `samples` samples at a time.

    Raises CompileError where something does not fit the machine.
    """
    stages: list[HostStage | tuple[Program, ...]] = []
    for stage in network.stages:
        match stage:
            case HostStage():
                stages.append(stage)
            case DeviceStage():
                stages.append(_compile_layers(config, stage.layers, stage.rows * samples))
            case Operations():
                stages.append((compile_operations(config, stage, samples),))
    return CompiledNetwork(network, samples, tuple(stages))


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
    source, result = graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]
    if source.dtype not in ("int8", "float32"):
        raise ModelError(f"the input is {source.dtype}, supported are int8 and float32")
    if source.size == 0:
        raise ModelError(f"the input has the shape {source.shape}, which is empty")
    stages: tuple[Stage, ...]
    if is_chain(graph):
        stages, inexact = build_chain(graph)
    else:
        before, operations, after = translate(graph)
        stages, inexact = (*before, operations, *after), operations.inexact_channels
        if not operations.nodes:
            stages = (*before, *after)
    return Network(source.shape, source.dtype, result.shape, result.dtype, stages, inexact)


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
