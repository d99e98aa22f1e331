# SPDX-License-Identifier: Apache-2.0
"""A network in stages: programs for the machine, and functions for the host between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from systola.arch.config import Config
from systola.compiler.chain import Chain, as_chain
from systola.compiler.errors import CompileError
from systola.compiler.few_channels import fill_lines
from systola.compiler.fuse import fuse_tables
from systola.compiler.host_stage import HostStage
from systola.compiler.interpreted import InterpretedStage
from systola.compiler.keep import OnChip, keep_variables
from systola.compiler.large_pools import with_small_pools
from systola.compiler.long_sequences import with_short_windows
from systola.compiler.lower.compile_operations import compile_operations
from systola.compiler.operations import Operations, Value
from systola.compiler.partition import Stage, Translation, partition
from systola.compiler.program import LayerWork, Program, output_work
from systola.compiler.schedule import compile_chain
from systola.compiler.semantics import Semantics
from systola.compiler.tflite.graph import Graph
from systola.compiler.tflite.translate import translate
from systola.compiler.whole_maps import with_whole_maps


@dataclass(frozen=True)
class Network:
    """A network that is ready to be compiled for a machine."""

    inputs: tuple[Value, ...]
    """Inputs as the user gives them.

    If the model's own shapes have a batch size, which is `translation.repeat`, it is the first
    dimension of each input.
    """
    outputs: tuple[Value, ...]
    translation: Translation
    stages: tuple[Stage, ...]

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates on the machine for one sample of the user."""
        stages = (stage for stage in self.stages if isinstance(stage, Operations))
        return self.translation.repeat * sum(stage.macs for stage in stages)


@dataclass(frozen=True)
class DeviceStage:
    """A stage of a network that runs on the machine: a program, and the values that it takes and
    makes.
    """

    program: Program
    sources: tuple[Value, ...]
    results: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable of a network: its value after one sample is its value before the next sample."""

    before: Value
    after: Value
    first: NDArray[Any]
    """Value of the variable before the first sample of all."""


@dataclass(frozen=True, eq=False)
class CompiledNetwork:
    """A network compiled for a machine and a number of samples."""

    samples: int
    sources: tuple[Value, ...]
    """Inputs of the network, for one sample of the stages.

    One sample of the user is as many samples of the stages as `repeat` of the network's
    Translation.
    """
    results: tuple[Value, ...]
    """Outputs of the network, for one sample of the stages."""
    stages: tuple[HostStage | DeviceStage | InterpretedStage, ...]
    variables: tuple[Variable, ...] = ()
    """Variables of the network. A network with variables is always compiled for one sample."""
    on_chip: OnChip | None = None
    """Variables that stay in the unified buffer, with the programs that use them; None if there are
    none.

    Values of other variables are inputs and outputs of the stages.
    """

    @property
    def on_host(self) -> tuple[int, ...]:
        """Indices in `variables` of those that do not stay in the unified buffer.

        The values of these variables are inputs and outputs of the stages.
        """
        away = self.on_chip.numbers if self.on_chip else ()
        return tuple(number for number in range(len(self.variables)) if number not in away)


def build_network(graph: Graph, semantics: Semantics = Semantics.LITERT_2) -> Network:
    """Return the network of a TFLite model, `graph`, in stages.

    The network gives the results of the interpreter version `semantics`. Raises ModelError, with
    number and kind of the operator, if something is not supported.
    """
    return make_network(translate(graph, semantics))


def make_network(translation: Translation) -> Network:
    """Return a translated network in stages.

    Operations that no machine has are first replaced by operations that machines have.
    """
    return in_stages(with_whole_maps(with_short_windows(with_small_pools(translation))))


def in_stages(translation: Translation) -> Network:
    """Return a network, or a piece of a network, in stages, without any change of its operations.

    The caller has replaced operations that no machine has, as make_network does.
    """
    inputs, outputs = _without_variables(translation)
    return Network(
        _seen(inputs, translation.repeat),
        _seen(outputs, translation.repeat),
        translation,
        partition(translation),
    )


def _without_variables(
    translation: Translation,
) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Return the model's inputs and outputs as two tuples, without the values of its variables."""
    inputs, outputs, count = translation.inputs, translation.outputs, translation.variables
    return inputs[: len(inputs) - count], outputs[: len(outputs) - count]


def _seen(values: Sequence[Value], repeat: int) -> tuple[Value, ...]:
    if repeat == 1:
        return tuple(values)
    return tuple(Value(each.name, (repeat, *each.shape[1:]), each.dtype) for each in values)


def compile_network(config: Config, network: Network, samples: int) -> CompiledNetwork:
    """Compile `network` for `samples` samples of the user at a time.

    Raises CompileError if something does not fit the machine, or if a network with variables is
    compiled for several samples.
    """
    if network.translation.variables and samples > 1:
        raise CompileError("a network with variables takes one sample at a time")
    count = samples * network.translation.repeat
    translation = network.translation
    inputs, outputs = _without_variables(translation)
    pairs = zip(
        translation.inputs[len(inputs) :],
        translation.outputs[len(outputs) :],
        translation.first_values,
        strict=True,
    )
    variables = tuple(Variable(before, after, first) for before, after, first in pairs)
    kept = keep_variables(
        config, network.stages, outputs, [(each.before, each.after) for each in variables]
    )
    if not kept:
        stages = _compile_stages(config, network.stages, count)
        return CompiledNetwork(samples, inputs, outputs, stages, variables)
    device = DeviceStage(
        kept.on_chip.programs[0], kept.operations.from_host, kept.operations.to_host
    )
    return CompiledNetwork(
        samples,
        inputs,
        outputs,
        (*kept.before, device, *kept.after),
        variables,
        kept.on_chip,
    )


def _compile_stages(
    config: Config, network: Sequence[Stage], count: int
) -> tuple[HostStage | DeviceStage, ...]:
    stages: list[HostStage | DeviceStage] = []
    for stage in network:
        if isinstance(stage, HostStage):
            stages.append(stage)
            continue
        operations = fill_lines(config, fuse_tables(config, stage))
        if chain := as_chain(operations):
            stages += _compile_chain(config, operations, chain, count)
        else:
            program = compile_operations(config, operations, count)
            stages.append(DeviceStage(program, stage.inputs, stage.outputs))
    return tuple(stages)


def _compile_chain(
    config: Config, operations: Operations, chain: Chain, samples: int
) -> list[DeviceStage]:
    """Return the compiled stages for a chain of layers, if possible a single one.

    A chain that does not fit the machine as one program is halved, again and again, until all its
    pieces fit. Raises CompileError if a single layer does not fit.
    """
    rows = chain.rows * samples
    values = [
        operations.inputs[0],
        *(
            Value(f"behind layer {number}", (chain.rows, layer.n))
            for number, layer in enumerate(chain.layers[:-1])
        ),
        operations.outputs[0],
    ]

    def compiled(first: int, end: int) -> list[DeviceStage]:
        try:
            layers = chain.layers[first:end]
            works = [
                LayerWork(operator, (chain.rows, layer.n), rows * layer.k * layer.n)
                for operator, layer in zip(chain.operators[first:end], layers, strict=True)
            ]
            works.append(output_work((values[end],)))
            program = compile_chain(config, layers, rows, works)
            return [DeviceStage(program, (values[first],), (values[end],))]
        except CompileError:
            if end - first == 1:
                raise
        half = (first + end) // 2
        return [*compiled(first, half), *compiled(half, end)]

    return compiled(0, len(chain.layers))
