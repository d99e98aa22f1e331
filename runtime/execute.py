# SPDX-License-Identifier: Apache-2.0
"""Runs a compiled network: its programs on a machine, the rest on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.compiler.host_stage import HostStage
from systola.compiler.network import CompiledNetwork
from systola.compiler.operations import Value
from systola.compiler.printable import printable
from systola.runtime.backend import Backend, BackendError, Result, fault_text


class HostError(ValueError):
    """Values that a host stage has no result for, with the reason in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason))


def run_compiled(
    backend: Backend,
    compiled: CompiledNetwork,
    x: Sequence[NDArray[Any]],
    observe: Callable[[int, Result], None],
) -> list[NDArray[Any]]:
    """Outputs of `compiled` for the samples `x`, as many as it was compiled for.

    `observe` is called with the number of the stage and the result of each program. Raises
    BackendError if the machine stops, HostError for values that a host stage cannot take.
    """
    # What the stages take as a sample may be a part of one of the model's.
    values: dict[Value, NDArray[Any]] = {
        value: array.reshape(-1, *value.shape)
        for value, array in zip(compiled.sources, x, strict=True)
    }
    samples = len(next(iter(values.values())))
    for number, stage in enumerate(compiled.stages):
        sources = [values[source] for source in stage.sources]
        if isinstance(stage, HostStage):
            values[stage.result] = _run_host_stage(stage, sources, samples)
        else:
            result = backend.run(stage.program.bind(*sources))
            if result.fault:
                raise BackendError(fault_text(result.fault))
            observe(number, result)
            arrays = stage.program.results(result.host)
            for value, array in zip(stage.results, arrays, strict=True):
                values[value] = array.reshape(samples, *value.shape)
    return [values[output] for output in compiled.results]


def _run_host_stage(
    stage: HostStage, sources: Sequence[NDArray[Any]], samples: int
) -> NDArray[Any]:
    result = stage.result
    try:
        # Numbers beyond all limits end at the limits, which is nothing to warn of.
        with np.errstate(all="ignore"):
            array = stage.function(*sources).reshape(samples, *result.shape)
    except (IndexError, OverflowError, TypeError, ValueError) as error:
        raise HostError(f"{stage.operator}: {error}") from None
    if array.dtype.name != result.dtype:
        raise HostError(f"{stage.operator}: its result is {array.dtype}, not {result.dtype}")
    return array
