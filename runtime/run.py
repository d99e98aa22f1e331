# SPDX-License-Identifier: Apache-2.0
"""Runs a network over many samples, some at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import INSTRUCTION_BYTES
from systola.compiler.host_stage import HostStage
from systola.compiler.network import (
    CompiledNetwork,
    DeviceStage,
    Network,
    compile_network,
    output_shapes,
    sample_count,
)
from systola.compiler.operations import Value
from systola.runtime.backend import Backend, BackendError, fault_text

DEFAULT_BATCH = 64
"""Samples at a time where nobody says: enough that starting and ending a program is negligible."""


@dataclass(frozen=True)
class NetworkRun:
    """Outputs of a network, and what they took."""

    outputs: tuple[NDArray[Any], ...]
    """Outputs, with an axis for samples where the inputs had one."""
    samples: int
    instructions: int
    """In all programs that were run."""
    cycles: int | None
    """Of all programs; None for a machine without a clock, as the next two."""
    counters: dict[str, int]
    simulated_cycles_per_second: float | None

    @property
    def y(self) -> NDArray[Any]:
        """The first output."""
        return self.outputs[0]


def run_network(
    backend: Backend,
    network: Network,
    *x: NDArray[Any],
    batch: int = DEFAULT_BATCH,
    progress: Callable[[int], None] | None = None,
) -> NetworkRun:
    """Runs `network` on the samples `x`, `batch` at a time, the last time those that are left.

    There is an array for each input, of its data type, and of shapes that sample_count takes.
    `progress` is called after each batch with the number of samples done. Raises ModelError for a
    wrong shape, CompileError for a network that does not fit, BackendError if the machine stops.
    """
    shapes = [each.shape for each in x]
    samples = sample_count(network, shapes)
    results = output_shapes(network, shapes)
    count = 1 if samples is None else samples
    inputs = [
        each.reshape(count, *value.shape) for each, value in zip(x, network.inputs, strict=True)
    ]
    outputs = [np.empty((count, *value.shape), value.dtype) for value in network.outputs]
    compiled: dict[int, CompiledNetwork] = {}
    totals = _Totals()
    for start in range(0, count, batch):
        parts = [each[start : start + batch] for each in inputs]
        size = len(parts[0])
        if size not in compiled:
            compiled[size] = compile_network(backend.config, network, size)
        for output, result in zip(
            outputs, _run_batch(backend, compiled[size], parts, totals), strict=True
        ):
            output[start : start + batch] = result.reshape(size, *output.shape[1:])
        if progress:
            progress(start + size)
    return NetworkRun(
        tuple(y.reshape(shape) for y, shape in zip(outputs, results, strict=True)),
        count,
        totals.instructions,
        totals.cycles if totals.timed else None,
        dict(totals.counters),
        totals.cycles / totals.seconds if totals.seconds else None,
    )


class _Totals:
    """Sums over the programs run."""

    def __init__(self) -> None:
        self.instructions = 0
        self.cycles = 0
        self.timed = False
        self.seconds = 0.0
        self.counters: Counter[str] = Counter()


def _run_batch(
    backend: Backend, compiled: CompiledNetwork, x: Sequence[NDArray[Any]], totals: _Totals
) -> list[NDArray[Any]]:
    translation = compiled.network.translation
    samples = compiled.samples * translation.repeat
    values: dict[Value, NDArray[Any]] = {}

    def define(value: Value, array: NDArray[Any]) -> None:
        values[value] = array.reshape(samples, *value.shape)

    for value, array in zip(translation.inputs, x, strict=True):
        define(value, array)
    for stage in compiled.stages:
        sources = [values[source] for source in stage.sources]
        if isinstance(stage, HostStage):
            define(stage.result, stage.function(*sources))
        else:
            for value, array in zip(
                stage.results, _run_program(backend, stage, sources, totals), strict=True
            ):
                define(value, array)
    return [values[output] for output in translation.outputs]


def _run_program(
    backend: Backend, stage: DeviceStage, x: Sequence[NDArray[np.int8]], totals: _Totals
) -> tuple[NDArray[np.int8], ...]:
    image = stage.program.bind(*x)
    result = backend.run(image)
    if result.fault:
        raise BackendError(fault_text(result.fault))
    totals.instructions += len(image.program) // INSTRUCTION_BYTES
    if result.cycles is not None:
        totals.timed = True
        totals.cycles += result.cycles
        totals.counters.update(result.counters)
        if result.simulated_cycles_per_second:
            totals.seconds += result.cycles / result.simulated_cycles_per_second
    return stage.program.results(result.host)
