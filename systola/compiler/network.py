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
    """Inputs as the user gives them; `translation.repeat` samples, if not 1, lie along the first
    dimension.
    """
    outputs: tuple[Value, ...]
    translation: Translation
    stages: tuple[Stage, ...]

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates on the machine for one sample."""
        stages = (stage for stage in self.stages if isinstance(stage, Operations))
        return self.translation.repeat * sum(stage.macs for stage in stages)


@dataclass(frozen=True)
class DeviceStage:
    """A stage of a network on the machine: a program, the values it takes and the values it
    makes.
    """

    program: Program
    sources: tuple[Value, ...]
    results: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Variable:
    """A variable of a network, which keeps its value from one sample to the next."""

    before: Value
    after: Value
    first: NDArray[Any]
    """Value of the variable before the first sample."""


@dataclass(frozen=True, eq=False)
class CompiledNetwork:
    """A network compiled for a machine and a number of samples."""

    samples: int
    sources: tuple[Value, ...]
    """Inputs of the network; a sample of the user is `translation.repeat` samples here."""
    results: tuple[Value, ...]
    """Outputs of the network, for the same samples as `sources`."""
    stages: tuple[HostStage | DeviceStage | InterpretedStage, ...]
    variables: tuple[Variable, ...] = ()
    """Variables of the network; a network with variables is compiled for one sample."""
    on_chip: OnChip | None = None
    """Variables that stay in the buffer, or None; the stages take only the values of other
    variables.
    """

    @property
    def on_host(self) -> tuple[int, ...]:
        """Indices in `variables` of the variables that do not stay in the buffer, but are inputs
        and outputs of the stages.
        """
        away = self.on_chip.numbers if self.on_chip else ()
        return tuple(number for number in range(len(self.variables)) if number not in away)


def build_network(graph: Graph, semantics: Semantics = Semantics.LITERT_2) -> Network:
    """Return the network `graph` in stages, with the results of the interpreter `semantics`.

    Raises ModelError, with number and kind of the operator, if something is not supported.
    """
    return make_network(translate(graph, semantics))


def make_network(translation: Translation) -> Network:
    """Return a translated network in stages, after a rewrite of operations that machines lack."""
    return in_stages(with_whole_maps(with_short_windows(with_small_pools(translation))))


def in_stages(translation: Translation) -> Network:
    """Return a network, or a piece of a network, in stages; its operations must be rewritten
    already, as in make_network.
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
    """Return the inputs and outputs of the model, without the values of its variables."""
    inputs, outputs, count = translation.inputs, translation.outputs, translation.variables
    return inputs[: len(inputs) - count], outputs[: len(outputs) - count]


def _seen(values: Sequence[Value], repeat: int) -> tuple[Value, ...]:
    if repeat == 1:
        return tuple(values)
    return tuple(Value(each.name, (repeat, *each.shape[1:]), each.dtype) for each in values)


def compile_network(config: Config, network: Network, samples: int) -> CompiledNetwork:
    """Compile `network` for `samples` samples at a time.

    Raises CompileError if something does not fit the machine, and for a network with variables and
    several samples.
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
    """Return a chain of layers as one program, or several if values between layers do not fit the
    buffer.
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
