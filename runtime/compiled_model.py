# SPDX-License-Identifier: Apache-2.0
"""A model compiled for a machine: it takes samples, and can be stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from systola.arch.config import Config
from systola.compiler.errors import ModelError
from systola.compiler.network import CompiledNetwork, Network, compile_network
from systola.compiler.operations import Value
from systola.compiler.semantics import Semantics
from systola.runtime.backend import Backend
from systola.runtime.check_model import check_compiled
from systola.runtime.execute import Totals, run_compiled
from systola.runtime.make_backend import make_backend
from systola.runtime.program_file import read_program, write_program
from systola.runtime.samples import as_input, output_shapes, sample_count

DEFAULT_BATCH = 64
"""Samples at a time where nobody says: enough that starting and ending a program is negligible."""


@dataclass(frozen=True)
class RunResult:
    """Outputs of a model, and what they took."""

    outputs: tuple[NDArray[Any], ...]
    """Outputs, with an axis for samples where the inputs had one."""
    samples: int
    macs: int
    """Multiply-accumulates of one sample."""
    instructions: int
    """In all programs that were run."""
    cycles: int | None
    """Of all programs; None for a machine without a clock, as the next three."""
    utilization: float | None
    """Multiply-accumulates of the model in each cycle, of those that the array could do."""
    counters: dict[str, int]
    simulated_cycles_per_second: float | None

    @property
    def y(self) -> NDArray[Any]:
        """The first output."""
        return self.outputs[0]


@dataclass(frozen=True, eq=False)
class CompiledModel:
    """A model as programs for a machine of one configuration."""

    config: Config
    semantics: Semantics
    """Whose results these are."""
    inputs: tuple[Value, ...]
    """As the model's users see them."""
    outputs: tuple[Value, ...]
    macs: int
    """Multiply-accumulates of one sample."""
    inexact_channels: int
    """Channels whose scale has no multiplier that equals the reference for every sum."""
    compiled: CompiledNetwork

    def __post_init__(self) -> None:
        """Raises DataError where the parts do not belong together: they may come from a file."""
        check_compiled(self.config, self.inputs, self.outputs, self.compiled)

    @property
    def batch(self) -> int:
        """Samples in one program."""
        return self.compiled.samples

    def run(
        self,
        *x: ArrayLike,
        backend: Backend | str = "rtl",
        latency: int = 0,
        stall: float = 0.0,
        seed: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> RunResult:
        """Runs the model on samples, any number of them.

        `x` has an array for each input, of its data type, and of a shape that sample_count takes.
        `backend` is "rtl", with memories of `latency` (cycles) and `stall` (fraction of cycles, at
        random from `seed`), or "iss", the golden model, or a machine that is there already.
        `progress` is called after each program with the number of samples done. Raises ModelError
        for inputs that do not fit the model, HostError for values that it has no result for,
        BackendError if the machine cannot be built or stops.
        """
        arrays = [np.asarray(each) for each in x]
        shapes = [each.shape for each in arrays]
        samples = sample_count(self.inputs, shapes)
        results = output_shapes(self.inputs, self.outputs, shapes)
        count = 1 if samples is None else samples
        inputs = [
            as_input(each, value).reshape(count, *value.shape)
            for each, value in zip(arrays, self.inputs, strict=True)
        ]
        if isinstance(backend, str):
            # A machine of one's own is made once for many runs.
            backend = make_backend(backend, self.config, latency=latency, stall=stall, seed=seed)
        if backend.config != self.config:
            raise ModelError(
                f"the model is compiled for '{self.config.name}', "
                f"the machine is '{backend.config.name}'"
            )
        outputs = [np.empty((count, *value.shape), value.dtype) for value in self.outputs]
        totals = Totals()
        for start in range(0, count, self.batch):
            # The last program may have too few samples: the last of them is repeated.
            chosen = np.minimum(np.arange(start, start + self.batch), count - 1)
            end = min(start + self.batch, count)
            batch = run_compiled(backend, self.compiled, [each[chosen] for each in inputs], totals)
            for output, result in zip(outputs, batch, strict=True):
                output[start:end] = result.reshape(-1, *output.shape[1:])[: end - start]
            if progress:
                progress(end)
        return RunResult(
            outputs=tuple(y.reshape(shape) for y, shape in zip(outputs, results, strict=True)),
            samples=count,
            macs=self.macs,
            instructions=totals.instructions,
            cycles=totals.cycles if totals.timed else None,
            utilization=(
                self.macs * count / (self.config.peak_macs * totals.cycles)
                if totals.timed
                else None
            ),
            counters=dict(totals.counters),
            simulated_cycles_per_second=totals.cycles / totals.seconds if totals.seconds else None,
        )

    def to_bytes(self) -> bytes:
        """The content of a file that holds this."""
        return write_program(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a file that load_model reads."""
        Path(path).write_bytes(self.to_bytes())


def compile_model(
    config: Config, network: Network, semantics: Semantics, batch: int = DEFAULT_BATCH
) -> CompiledModel:
    """Compiles `network`, `batch` samples in one program.

    Raises CompileError where something does not fit the machine.
    """
    return CompiledModel(
        config=config,
        semantics=semantics,
        inputs=network.inputs,
        outputs=network.outputs,
        macs=network.macs,
        inexact_channels=network.translation.inexact_channels,
        compiled=compile_network(config, network, batch),
    )


def read_compiled(content: bytes) -> CompiledModel:
    """The model in the content of a file that CompiledModel.save has written.

    Raises ProgramFileError for any other content.
    """
    return read_program(CompiledModel, content)
