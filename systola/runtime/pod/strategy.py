# SPDX-License-Identifier: Apache-2.0
"""The choice of how many cores a model runs on, and where they are simulated."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass

from systola.arch.config import DEFAULT_PRESET, Config
from systola.arch.config import preset as named_preset
from systola.runtime.backend import UnavailableError
from systola.runtime.engine import (
    NO_DASK,
    ClusterError,
    has_dask,
    run_in_threads,
    run_on_cluster,
)
from systola.runtime.make_backend import BACKENDS
from systola.runtime.pod.work import Cores, Done, Work, run_work

MAX_CORES = 1024


@dataclass(frozen=True)
class Strategy:
    """A pod of `cores` machines, each with memories of its own.

    In its scope, `compile` and `load` of systola.runtime give models that run on all cores, see
    PodModel. Each core runs a share of the samples or, with `split`, a piece of the model.
    `backend`, `latency`, `stall` and `seed` are the same as for CompiledModel.run; core n has
    `seed` + n. The cores are simulated in threads of this process, or by the workers of the Dask
    scheduler at the address `scheduler`. These workers have this project, too. Raises ValueError
    for an invalid number of cores and an unknown back end, and ConfigError for an unknown preset.
    """

    cores: int = 8
    preset: str | Config = DEFAULT_PRESET
    _: KW_ONLY
    split: bool = False
    backend: str = "rtl"
    latency: int = 0
    stall: float = 0.0
    seed: int = 0
    scheduler: str | None = None

    def __post_init__(self) -> None:
        if type(self.cores) is not int or not 1 <= self.cores <= MAX_CORES:
            raise ValueError(f"a pod has 1 to {MAX_CORES} cores, not {self.cores}")
        if self.backend not in BACKENDS:
            known = ", ".join(BACKENDS)
            raise ValueError(f"unknown back end '{self.backend}' (known: {known})")
        if isinstance(self.preset, str):
            named_preset(self.preset)

    @property
    def config(self) -> Config:
        """The configuration of each core."""
        return self.preset if isinstance(self.preset, Config) else named_preset(self.preset)

    @property
    def training_backend(self) -> str:
        """The back end on which models train."""
        return self.backend

    @property
    def num_replicas_in_sync(self) -> int:
        """Number of shares into which samples are divided."""
        return 1 if self.split else self.cores

    @contextmanager
    def scope(self) -> Generator[Strategy]:
        """Run models on this pod if they are compiled or loaded in this scope, then and later."""
        token = _CURRENT.set(self)
        try:
            yield self
        finally:
            _CURRENT.reset(token)

    @property
    def machines(self) -> Cores:
        """The cores of the pod."""
        return Cores(self.config, self.backend, self.latency, self.stall, self.seed)

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        """Run the works, and yield their results in any order.

        Raises UnavailableError for a cluster that does not answer, and the errors of run_work.
        """
        if self.scheduler is None:
            if works:
                # This thread builds the simulator before the others start. They would only wait for
                # it.
                self.machines.core(0, lambda: False)
            # The simulator is C++ and releases Python's lock: processes would gain nothing.
            yield from run_in_threads(works, os.cpu_count() or 1, run_work)
            return
        if not has_dask():
            raise UnavailableError(NO_DASK)
        try:
            yield from run_on_cluster(works, self.scheduler, run_work)
        except ClusterError as error:
            raise UnavailableError(str(error)) from error


_CURRENT: ContextVar[Strategy | None] = ContextVar("strategy", default=None)


def current_strategy() -> Strategy | None:
    """Return the strategy of the active scope; None outside a scope."""
    return _CURRENT.get()
