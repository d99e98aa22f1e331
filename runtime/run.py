# SPDX-License-Identifier: Apache-2.0
"""Runs a network over many samples, some at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import INSTRUCTION_BYTES
from systola.compiler.host_stage import HostStage
from systola.compiler.network import (
    CompiledNetwork,
    Network,
    Program,
    compile_network,
    output_shape,
    sample_count,
)
from systola.runtime.backend import Backend, BackendError, fault_text

DEFAULT_BATCH = 64
"""Samples at a time where nobody says: enough that starting and ending a program is negligible."""


@dataclass(frozen=True)
class NetworkRun:
    """Outputs of a network, and what they took."""

    y: NDArray[Any]
    """Outputs, with an axis for samples where the inputs had one."""
    samples: int
    instructions: int
    """In all programs that were run."""
    cycles: int | None
    """Of all programs; None for a machine without a clock, as the next two."""
    counters: dict[str, int]
    simulated_cycles_per_second: float | None


def run_network(
    backend: Backend,
    network: Network,
    x: NDArray[Any],
    *,
    batch: int = DEFAULT_BATCH,
    progress: Callable[[int], None] | None = None,
) -> NetworkRun:
    """Runs `network` on the samples `x`, `batch` at a time, the last time those that are left.

    `x` has the model's data type, and a shape that sample_count takes. `progress` is called
    after each batch with the number of samples done. Raises ModelError for a wrong shape,
    CompileError for a network that does not fit, BackendError if the machine stops.
    """
    shape = output_shape(network, x.shape)
    samples = sample_count(network, x.shape) or (1 if x.shape == network.input_shape else 0)
    inputs = x.reshape(samples, *network.input_shape)
    outputs = np.empty((samples, *network.output_shape), network.output_dtype)
    compiled: dict[int, CompiledNetwork] = {}
    totals = _Totals()
    for start in range(0, samples, batch):
        part = inputs[start : start + batch]
        if len(part) not in compiled:
            compiled[len(part)] = compile_network(backend.config, network, len(part))
        result = _run_batch(backend, compiled[len(part)], part, totals)
        outputs[start : start + batch] = result.reshape(len(part), *network.output_shape)
        if progress:
            progress(start + len(part))
    return NetworkRun(
        outputs.reshape(shape),
        samples,
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
    backend: Backend, compiled: CompiledNetwork, x: NDArray[Any], totals: _Totals
) -> NDArray[Any]:
    for stage in compiled.stages:
        if isinstance(stage, HostStage):
            x = stage.function(x.reshape(compiled.samples, *stage.shape))
        else:
            for program in stage:
                x = _run_program(backend, program, x, totals)
    return x


def _run_program(
    backend: Backend, program: Program, x: NDArray[np.int8], totals: _Totals
) -> NDArray[np.int8]:
    image = program.bind(x)
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
    return program.result(result.host)
