# SPDX-License-Identifier: Apache-2.0
"""What one core, or the cores of one pipeline, do at a time: a program's worth of samples."""

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
    """What all cores of a pod are like."""

    config: Config
    backend: str
    latency: int
    stall: float
    seed: int
    """Of the memories of core 0; those of the next one have the next seed."""

    def core(self, number: int, stopped: Callable[[], bool]) -> Core:
        """A new machine as core `number`; raises what make_backend raises."""
        return Core(self, number, stopped)


class Stopped(RuntimeError):
    """A core that has been told to stop before its end."""


class Core:
    """A Backend that gives up soon after `stopped` has become true."""

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

    def run(self, image: Image, *, progress: Callable[[int], None] | None = None) -> Result:
        """Runs the program of `image`, see Backend. Raises Stopped."""

        def look(cycles: int) -> None:
            if self._stopped():
                raise Stopped
            if progress:
                progress(cycles)

        look(0)
        return self._machine.run(image, progress=look)


@dataclass(frozen=True)
class Work:
    """Samples that go through all pieces of a model; it can be sent to another computer."""

    cores: Cores
    first: int
    """The core of the first piece; the next piece is on the next core."""
    start: int
    """Number of its first sample."""
    inputs: tuple[NDArray[Any], ...]
    pieces: Pieces


@dataclass(frozen=True)
class Done:
    """What came of it."""

    first: int
    start: int
    outputs: tuple[NDArray[Any], ...]
    runs: tuple[RunResult, ...]
    """For each piece, without its outputs."""


def run_work(work: Work, stopped: Callable[[], bool] = lambda: False) -> Done:
    """Does it on new machines. Raises what CompiledModel.run raises, and Stopped."""
    cores = range(work.first, work.first + len(work.pieces.pieces))
    machines = [work.cores.core(number, stopped) for number in cores]
    outputs, runs = work.pieces.run(work.inputs, machines)
    return Done(work.first, work.start, outputs, runs)
