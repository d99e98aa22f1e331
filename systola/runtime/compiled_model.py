# SPDX-License-Identifier: Apache-2.0
"""A model that is compiled for a machine: it runs on samples, and can be stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike

import numpy as np
from numpy.typing import ArrayLike

from systola.arch.config import Config
from systola.compiler.cut.partial import PartialNetwork
from systola.compiler.cut.placement import Placement
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.interpreted import InterpretedStage
from systola.compiler.network import (
    CompiledNetwork,
    DeviceStage,
    Network,
    compile_network,
)
from systola.compiler.operations import Value
from systola.compiler.printable import printable
from systola.compiler.program import Program
from systola.compiler.semantics import Semantics
from systola.runtime.backend import Backend, Result
from systola.runtime.check_model import MAX_MACS, check_compiled
from systola.runtime.execute import open_sessions, run_compiled
from systola.runtime.make_backend import make_backend
from systola.runtime.plain_data import DataError
from systola.runtime.predictor import Predictor
from systola.runtime.program_file import read_program, write_program
from systola.runtime.report import Report, make_report
from systola.runtime.report_table import report_table
from systola.runtime.rtl import RtlBackend
from systola.runtime.run_result import RunResult, Totals
from systola.runtime.samples import as_samples
from systola.runtime.state import State
from systola.runtime.write_file import write_file
from systola.timing.memory_speed import MemorySpeed

DEFAULT_BATCH = 64
"""Samples in one program by default: enough that starting and ending a program is negligible."""


def even_batch(samples: int) -> int:
    """Return the samples in one program for a known number of samples.

    The result is DEFAULT_BATCH or a little less, so that all programs are full, or nearly so.
    """
    return -(-samples // -(-samples // DEFAULT_BATCH))


@dataclass(frozen=True, eq=False, repr=False)
class CompiledModel(Predictor):
    """A model that is compiled to programs for a machine of one configuration."""

    config: Config
    semantics: Semantics
    """The interpreter that the results of the model equal."""
    inputs: tuple[Value, ...]
    """Inputs of the model as its users see them."""
    outputs: tuple[Value, ...]
    macs: int
    """Multiply-accumulates of one sample."""
    inexact_channels: int
    """Number of channels with a scale for which no multiplier gives the reference's result for
    every sum."""
    compiled: CompiledNetwork
    """The network compiled for `batch` samples."""
    single: CompiledNetwork | None
    """The network compiled for one sample; None if a batch is one sample."""
    rest_singly: int
    """Largest rest of samples, too few for a batch, that takes less time one by one than in a
    batch."""
    placement: tuple[Placement, ...] = ()
    """The place of each operator of the model file; empty if the model comes from no such file."""

    def __post_init__(self) -> None:
        """Raise DataError if the parts do not belong together: they may come from a file."""
        check_compiled(self.config, self.inputs, self.outputs, self.compiled)
        if self.single:
            check_compiled(self.config, self.inputs, self.outputs, self.single)
        if not 0 <= self.macs <= MAX_MACS:
            raise DataError("its number of multiply-accumulates is wrong")
        if self.rest_singly and (not self.single or self.single.samples != 1):
            raise DataError("its program for one sample is missing")

    @property
    def batch(self) -> int:
        """Samples in one program."""
        return self.compiled.samples

    def __repr__(self) -> str:
        return f"<{self._title}: {_signature(self.inputs)} -> {_signature(self.outputs)}>"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: inputs, outputs, and layers with their estimated cycles."""
        values = (("input", self.inputs), ("output", self.outputs))
        rows = "".join(
            f"<tr><td>{what}</td><td>{escape(printable(each.name))}</td><td>{each.dtype}</td>"
            f"<td>{each.shape}</td></tr>"
            for what, each_of in values
            for each in each_of
        )
        layers = escape(report_table(self.estimate()))
        return f"<p>{escape(self._title)}</p><table>{rows}</table><pre>{layers}</pre>"

    @property
    def _title(self) -> str:
        return (
            f"{type(self).__name__} for '{self.config.name}', batch {self.batch}, "
            f"{self.semantics.value}, {self.macs:,} MACs a sample"
        )

    def run(
        self,
        *x: ArrayLike | Mapping[str, ArrayLike],
        backend: Backend | str = "rtl",
        latency: int = 0,
        stall: float = 0.0,
        seed: int = 0,
        progress: Callable[[int], None] | None = None,
        state: State | None = None,
    ) -> RunResult:
        """Run the model on any number of samples.

        `x` has an array for each input, in the order of `inputs`, of the input's data type. Its
        shape is one that sample_count accepts. `x` may also be one mapping from the names of the
        inputs to arrays. `backend` is "rtl", the simulated RTL, or "iss", the golden model, or a
        machine that was made before. The memories of the RTL answer `latency` cycles late, and
        stall in a fraction `stall` of the cycles, at random from `seed`. `progress` is called after
        each program with the number of samples done. `state` is a result of the method `state`. It
        has the values of the model's variables before the first sample, and gets the values after
        the last one. Without it, each run begins with their first values.

        Raises ModelError for inputs that do not fit the model, and HostError for values without a
        result. Raises BackendError if the machine cannot be built, or stops.
        """
        samples = as_samples(x, self.inputs, self.outputs)
        memory = None
        if is_own := isinstance(backend, str):
            memory = MemorySpeed(latency, stall)
            backend = make_backend(backend, self.config, latency=latency, stall=stall, seed=seed)
        elif isinstance(backend, RtlBackend):
            memory = backend.memory
        if backend.config != self.config:
            raise ModelError(
                f"the model is compiled for '{self.config.name}', "
                f"the machine is '{backend.config.name}'"
            )
        kept = state or State(self.compiled)
        moving = kept.moving_cycles
        totals: dict[CompiledNetwork, Totals] = {}
        recorded: list[tuple[Program, Result]] = []
        # The programs for a batch and for one sample use the same interpreters.
        with open_sessions(self.compiled) as sessions:
            for compiled, start, end in self._portions(samples.count):
                total = totals.setdefault(compiled, Totals(compiled))
                total.samples += end - start
                # If there are too few samples, the last one is repeated.
                chosen = np.minimum(np.arange(start, start + compiled.samples), end - 1)

                def observe(
                    stage: int, program: Program, result: Result, total: Totals = total
                ) -> None:
                    total.add(stage, program, result)
                    if result.recording:
                        recorded.append((program, result))

                inputs = [each[chosen] for each in samples.arrays]
                with kept.running(backend, compiled) as (values, phase):
                    results = run_compiled(
                        backend, compiled, inputs, observe, sessions, values, phase
                    )
                for output, result in zip(samples.outputs, results, strict=True):
                    output[start:end] = result.reshape(-1, *output.shape[1:])[: end - start]
                if progress:
                    progress(end)
        if not state:
            kept.reset()
        elif is_own:
            kept.save()
        return RunResult(
            outputs=samples.results(),
            macs=self.macs,
            config=self.config,
            memory=memory,
            totals=tuple(totals.values()),
            recorded=tuple(recorded),
            moving_cycles=kept.moving_cycles - moving,
        )

    @property
    def variables(self) -> tuple[Value, ...]:
        """Values that a network keeps from one sample to the next, in the order of State.values."""
        return tuple(each.before for each in self.compiled.variables)

    def state(self) -> State:
        """Return the first values of the model's variables, for runs that follow each other.

        Raises ModelError if an interpreter runs a part of the model, as interpreters begin anew
        with each run.
        """
        if any(isinstance(stage, InterpretedStage) for stage in self.compiled.stages):
            raise ModelError("an interpreter runs a part of the model and keeps its variables")
        return State(self.compiled)

    def _portions(self, count: int) -> Iterator[tuple[CompiledNetwork, int, int]]:
        """Yield for each program its network, its first sample, and the number after its last
        sample.
        """
        rest = count % self.batch
        whole = count - rest if self.single and rest <= self.rest_singly else count
        for start in range(0, whole, self.batch):
            yield self.compiled, start, min(start + self.batch, count)
        for start in range(whole, count):
            assert self.single
            yield self.single, start, start + 1

    def estimate(self, memory: MemorySpeed | None = None, mhz: float | None = None) -> Report:
        """Return the layers with the cycles that they should take, in batches."""
        return make_report(self.config, self.compiled, memory=memory, mhz=mhz)

    def to_bytes(self) -> bytes:
        """Return the content of a file that holds this model."""
        return write_program(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a file that systola.runtime.load reads. Raises OSError if the file cannot be
        written.
        """
        write_file(path, self.to_bytes())


def compile_model(
    config: Config,
    network: Network | PartialNetwork,
    semantics: Semantics,
    batch: int = DEFAULT_BATCH,
) -> CompiledModel:
    """Compile `network`, `batch` samples in one program, and one sample if it has variables.

    Raises CompileError if a part of the network does not fit the machine.
    """
    if batch < 1:
        raise CompileError(f"a batch has at least 1 sample, not {batch}")
    partial = isinstance(network, PartialNetwork)
    if not partial and network.translation.variables:
        batch = 1
    compiled = _compiled(config, network, batch)
    single, rest_singly = None, 0
    if batch > 1:
        single = _compiled(config, network, 1)
        rest_singly = min(batch - 1, _cycles(config, compiled) // max(1, _cycles(config, single)))
    return CompiledModel(
        config=config,
        semantics=semantics,
        inputs=network.inputs,
        outputs=network.outputs,
        macs=network.macs,
        inexact_channels=(
            network.inexact_channels if partial else network.translation.inexact_channels
        ),
        compiled=compiled,
        single=single,
        rest_singly=rest_singly,
        placement=network.placement if partial else (),
    )


def _compiled(config: Config, network: Network | PartialNetwork, samples: int) -> CompiledNetwork:
    if isinstance(network, PartialNetwork):
        return network.compiled(config, samples)
    return compile_network(config, network, samples)


def _signature(values: Sequence[Value]) -> str:
    return ", ".join(f"{printable(each.name)} {each.dtype}{list(each.shape)}" for each in values)


def _cycles(config: Config, compiled: CompiledNetwork) -> int:
    """Estimate the cycles of all programs."""
    # Imported here: the estimate takes its constants from the hardware, and Amaranth loads slowly.
    from systola.timing.estimate import estimate

    stages = (stage for stage in compiled.stages if isinstance(stage, DeviceStage))
    return sum(estimate(config, stage.program.image).cycles for stage in stages)


def read_compiled(content: bytes) -> CompiledModel:
    """Return the model in the content of a file that CompiledModel.save has written.

    Raises ProgramFileError for any other content.
    """
    return read_program(CompiledModel, content)
