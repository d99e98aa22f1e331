# SPDX-License-Identifier: Apache-2.0
"""Runs a compiled network: its programs on a machine, the rest on the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import INSTRUCTION_BYTES
from systola.compiler.host_stage import HostStage
from systola.compiler.network import CompiledNetwork, DeviceStage
from systola.compiler.operations import Value
from systola.runtime.backend import Backend, BackendError, fault_text


class HostError(ValueError):
    """Values that a host stage has no result for, with the reason in one line."""


@dataclass
class Totals:
    """Sums over the programs run."""

    instructions: int = 0
    cycles: int = 0
    timed: bool = False
    seconds: float = 0.0
    counters: Counter[str] = field(default_factory=Counter[str])


def run_compiled(
    backend: Backend, compiled: CompiledNetwork, x: Sequence[NDArray[Any]], totals: Totals
) -> list[NDArray[Any]]:
    """Outputs of `compiled` for the samples `x`, as many as it was compiled for.

    Raises BackendError if the machine stops, HostError for what a host stage cannot take.
    """
    # What the stages take as a sample may be a part of one of the model's.
    values: dict[Value, NDArray[Any]] = {
        value: array.reshape(-1, *value.shape)
        for value, array in zip(compiled.sources, x, strict=True)
    }
    samples = len(next(iter(values.values())))
    for stage in compiled.stages:
        sources = [values[source] for source in stage.sources]
        if isinstance(stage, HostStage):
            values[stage.result] = _run_host_stage(stage, sources, samples)
        else:
            results = _run_program(backend, stage, sources, totals)
            for value, array in zip(stage.results, results, strict=True):
                values[value] = array.reshape(samples, *value.shape)
    return [values[output] for output in compiled.results]


def _run_host_stage(
    stage: HostStage, sources: Sequence[NDArray[Any]], samples: int
) -> NDArray[Any]:
    result = stage.result
    try:
        array = stage.function(*sources).reshape(samples, *result.shape)
    except (IndexError, OverflowError, TypeError, ValueError) as error:
        raise HostError(f"{stage.operator}: {error}") from None
    if array.dtype.name != result.dtype:
        raise HostError(f"{stage.operator}: its result is {array.dtype}, not {result.dtype}")
    return array


def _run_program(
    backend: Backend, stage: DeviceStage, x: Sequence[NDArray[np.int8]], totals: Totals
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
