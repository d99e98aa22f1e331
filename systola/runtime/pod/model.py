# SPDX-License-Identifier: Apache-2.0
"""A model that runs on the cores of a pod."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from math import ceil

from numpy.typing import ArrayLike

from systola.arch.config import Config
from systola.compiler.errors import ModelError
from systola.compiler.interpreted import InterpretedStage
from systola.compiler.network import Network, compile_network
from systola.compiler.semantics import Semantics
from systola.runtime.compiled_model import DEFAULT_BATCH, CompiledModel, compile_model, even_batch
from systola.runtime.pod.gemm import even_shares
from systola.runtime.pod.pieces import Pieces, split, whole
from systola.runtime.pod.result import Books, PodResult
from systola.runtime.pod.strategy import Strategy
from systola.runtime.pod.work import Done, Work
from systola.runtime.predictor import Predictor
from systola.runtime.report import make_report
from systola.runtime.samples import Samples, as_samples
from systola.timing.memory_speed import MemorySpeed


class PodModel(Predictor):
    """A model that runs on all cores of a strategy, on any number of samples.

    `model` is the whole model, compiled for one core. If its `network` is given, it is compiled
    again for `batch` samples in one program. With None, the number suits the samples of a run.
    Raises ModelError for a model without a network if the strategy splits models. Raises
    ModelError, too, for a model that is compiled for another machine.
    """

    def __init__(
        self,
        strategy: Strategy,
        model: CompiledModel,
        network: Network | None = None,
        batch: int | None = None,
    ) -> None:
        if model.config != strategy.config:
            raise ModelError(
                f"the model is compiled for '{model.config.name}', "
                f"the pod is of '{strategy.config.name}'"
            )
        if any(isinstance(stage, InterpretedStage) for stage in model.compiled.stages):
            raise ModelError("a network that an interpreter runs in part runs on one core")
        if model.compiled.variables:
            raise ModelError("a network with variables runs on one core")
        if strategy.split and network is None:
            raise ModelError("a compiled program stays in one piece: split the model it is made of")
        self.strategy = strategy
        self.model = model
        self.inputs, self.outputs = model.inputs, model.outputs
        self._network = network
        self._batch = batch
        self._pieces: dict[int, Pieces] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.model!r} on {self.strategy.cores} cores>"

    @property
    def config(self) -> Config:
        """The configuration of each core."""
        return self.model.config

    def run(
        self,
        *x: ArrayLike | Mapping[str, ArrayLike],
        progress: Callable[[int], None] | None = None,
    ) -> PodResult:
        """Run the model on any number of samples; see CompiledModel.run for `x`.

        `progress` is called with the number of samples done. Raises the errors of
        CompiledModel.run, CompileError for pieces that do not fit a core, and UnavailableError for
        a cluster that does not answer.
        """
        started = time.perf_counter()
        strategy = self.strategy
        samples = as_samples(x, self.inputs, self.outputs)
        works = list(self._works(samples))
        found: list[Done] = []
        count = 0
        for done in strategy.run(works):
            size = len(done.outputs[0])
            for output, part in zip(samples.outputs, done.outputs, strict=True):
                output[done.start : done.start + size] = part
            found.append(done)
            count += size
            if progress:
                progress(count)
        books = Books(strategy.cores, MemorySpeed(strategy.latency, strategy.stall))
        for done in sorted(found, key=lambda each: each.start):
            books.add(done.first, done.runs)
        return PodResult(
            outputs=samples.results(),
            samples=samples.count,
            macs=self.model.macs,
            config=self.config,
            cores=books.cores(),
            pieces=books.pieces(),
            batches=books.batches,
            seconds=time.perf_counter() - started,
        )

    def _works(self, samples: Samples) -> Iterator[Work]:
        """Yield the work of each core, or of each pipeline of cores, one program's samples at a
        time.
        """
        if not samples.count:
            return
        strategy = self.strategy
        replicas = strategy.num_replicas_in_sync
        size = self._size(samples.count)
        pieces = self._compiled(size)
        for core, share in enumerate(even_shares(samples.count, replicas)):
            for start in range(share.start, share.stop, size):
                end = min(start + size, share.stop)
                inputs = tuple(each[start:end] for each in samples.arrays)
                yield Work(strategy.machines, core, start, inputs, pieces)

    def _size(self, count: int) -> int:
        """Return the number of samples in one program."""
        if self._network is None:
            return self.model.batch
        share = ceil(count / self.strategy.num_replicas_in_sync)
        if self._batch:
            return min(self._batch, share)
        return (
            self._pipeline_batch(self._network, count) if self.strategy.split else even_batch(share)
        )

    def _pipeline_batch(self, network: Network, count: int) -> int:
        """Return the samples in one program that are fastest in the timing model.

        Small batches fill and drain the pipeline fast. Large batches load weights and start
        programs less often.
        """

        def cycles(size: int) -> float:
            report = make_report(self.config, compile_network(self.config, network, size))
            return (ceil(count / size) + self.strategy.cores - 1) * size * report.estimated_cycles

        sizes = [1]
        while 2 * sizes[-1] <= min(count, DEFAULT_BATCH):
            sizes.append(2 * sizes[-1])
        return min(sizes, key=cycles)

    def _compiled(self, size: int) -> Pieces:
        if size not in self._pieces:
            network, semantics = self._network, self.model.semantics
            if network is None:
                self._pieces[size] = whole(self.model)
            elif self.strategy.split:
                cores = self.strategy.cores
                self._pieces[size] = split(self.config, network, semantics, size, cores)
            else:
                model = compile_model(self.config, network, semantics, size)
                self._pieces[size] = whole(model)
        return self._pieces[size]


def compile_for_pod(
    strategy: Strategy, network: Network, semantics: Semantics, batch: int | None
) -> PodModel:
    """Compile a network for the cores of a pod, see PodModel.

    Raises CompileError if the network does not fit a core.
    """
    model = compile_model(strategy.config, network, semantics, batch or 1)
    return PodModel(strategy, model, network, batch)
