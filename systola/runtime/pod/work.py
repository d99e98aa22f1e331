# SPDX-License-Identifier: Apache-2.0
"""The unit of work for one core, or one pipeline of cores: one program's samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.image import Image
from systola.runtime.backend import Result
from systola.runtime.make_backend import make_backend
from systola.runtime.pod.pieces import Pieces
from systola.runtime.run_result import RunResult


@dataclass(frozen=True)
class Cores:
    """A description of all cores of a pod."""

    config: Config
    backend: str
    latency: int
    stall: float
    seed: int
    """Seed of the memories of core 0; each next core has the next seed."""

    def core(self, number: int, stopped: Callable[[], bool]) -> Core:
        """Make a new machine as core `number`. Raises the errors of make_backend."""
        return Core(self, number, stopped)


class Stopped(RuntimeError):
    """An error of a core that was stopped before its end."""


class Core:
    """A Backend that gives up soon after `stopped` returns true."""

    def __init__(self, cores: Cores, number: int, stopped: Callable[[], bool]) -> None:
        self._machine = make_backend(
            cores.backend,
            cores.config,
            latency=cores.latency,
            stall=cores.stall,
            seed=cores.seed + number,
        )
        self._stopped = stopped

    @property
    def config(self) -> Config:
        """The configuration of the machine."""
        return self._machine.config

    @property
    def programs(self) -> int:
        """Number of programs that the machine has begun so far."""
        return self._machine.programs

    def run(self, image: Image, *, progress: Callable[[int], None] | None = None) -> Result:
        """Run the program of `image`, see Backend. Raises Stopped."""

        def look(cycles: int) -> None:
            if self._stopped():
                raise Stopped
            if progress:
                progress(cycles)

        look(0)
        return self._machine.run(image, progress=look)


@dataclass(frozen=True)
class Work:
    """A set of samples that go through all pieces of a model; another computer may run it."""

    cores: Cores
    first: int
    """The core of the first piece; the next piece is on the next core."""
    start: int
    """Number of the first sample."""
    inputs: tuple[NDArray[Any], ...]
    pieces: Pieces


@dataclass(frozen=True)
class Done:
    """A result of one Work: outputs, with its core and its first sample."""

    first: int
    start: int
    outputs: tuple[NDArray[Any], ...]
    runs: tuple[RunResult, ...]
    """Results of each piece's runs, without outputs."""


def run_work(work: Work, stopped: Callable[[], bool] = lambda: False) -> Done:
    """Run a work on new machines. Raises the errors of CompiledModel.run, and Stopped."""
    cores = range(work.first, work.first + len(work.pieces.pieces))
    machines = [work.cores.core(number, stopped) for number in cores]
    outputs, runs = work.pieces.run(work.inputs, machines)
    return Done(work.first, work.start, outputs, runs)
