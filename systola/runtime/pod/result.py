# SPDX-License-Identifier: Apache-2.0
"""The result of a run on a pod: outputs, and the cycles of its cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from systola.arch.config import Config
from systola.runtime.backend import Result
from systola.runtime.report import Report
from systola.runtime.run_result import RunResult, Totals
from systola.timing.memory_speed import MemorySpeed


@dataclass(frozen=True)
class CoreRun:
    """A record of the work of one core of a pod."""

    samples: int
    """Number of samples that the core ran; number of programs if it runs no model."""
    cycles: int | None
    """Cycles in which the core ran; None without a clock."""
    end: int
    """Cycle of the pod in which the core had no work left."""
    counters: dict[str, int]
    """Cycles of each CycleClass by its name in lower case; their sum is `cycles`."""


def core_runs(results: Sequence[Result], cores: int) -> tuple[CoreRun, ...]:
    """Return the work of a pod's cores. The first cores ran a program each, with these results."""
    ran = [CoreRun(1, each.cycles, each.cycles or 0, each.counters) for each in results]
    idle = CoreRun(0, None, 0, {})
    return (*ran, *[idle] * (cores - len(ran)))


@dataclass(frozen=True, kw_only=True, repr=False)
class PodResult:
    """A result of a model on a pod: its outputs, and the cycles and seconds that they took.

    All cores start in cycle 0. A core of a pipeline begins a batch when the piece before has ended
    it. Work of the host takes no cycles.
    """

    outputs: tuple[NDArray[Any], ...]
    """Outputs of the model, with an axis for samples if the inputs had one."""
    samples: int
    macs: int
    """Multiply-accumulates of one sample."""
    config: Config
    """The configuration of each core."""
    cores: tuple[CoreRun, ...]
    pieces: tuple[RunResult, ...]
    """Sums over all runs of each piece of the model; a whole model is one piece."""
    batches: int
    """Number of times that the pieces ran, one after the other."""
    seconds: float
    """Time of the run on this computer, in seconds."""

    def __repr__(self) -> str:
        shapes = ", ".join(f"{y.dtype}{list(y.shape)}" for y in self.outputs)
        cycles = "no clock" if self.cycles is None else f"{self.cycles:,} cycles"
        return (
            f"<{type(self).__name__}: {self.samples} samples on {len(self.cores)} cores, "
            f"{cycles}, outputs {shapes}>"
        )

    @property
    def y(self) -> NDArray[Any]:
        """The first output."""
        return self.outputs[0]

    @property
    def cycles(self) -> int | None:
        """Cycles until the last core has ended; None for machines without a clock."""
        timed = [core.end for core in self.cores if core.cycles is not None]
        return max(timed, default=None)

    @property
    def core_cycles(self) -> int:
        """Cycles of all cores together."""
        return sum(core.cycles or 0 for core in self.cores)

    @property
    def efficiency(self) -> float | None:
        """The average share of the pod's cycles in which a core runs; None without a clock."""
        return self.core_cycles / (self.cycles * len(self.cores)) if self.cycles else None

    @property
    def utilization(self) -> float | None:
        """The share of the multiply-accumulates that all arrays could do; None without a clock."""
        if not self.cycles:
            return None
        peak = self.config.peak_macs * len(self.cores)
        return self.macs * self.samples / (peak * self.cycles)

    @property
    def instructions(self) -> int:
        """Number of instructions in all programs that were run."""
        return sum(piece.instructions for piece in self.pieces)

    @property
    def simulated_cycles_per_second(self) -> float | None:
        """Cycles of all cores in a second of this computer; None without a clock."""
        return self.core_cycles / self.seconds if self.cycles and self.seconds else None

    def inferences_per_second(self, mhz: float) -> float | None:
        """Return the samples in a second at a clock of `mhz`; None for machines without a clock."""
        return self.samples * mhz * 1e6 / self.cycles if self.cycles else None

    def reports(self, mhz: float | None = None) -> tuple[Report, ...]:
        """Return each piece's layers, estimated and measured, for one inference on one core."""
        return tuple(piece.report(mhz) for piece in self.pieces)


class Books:
    """An account of the work that the cores of a pod have done so far."""

    def __init__(self, cores: int, memory: MemorySpeed) -> None:
        self._memory = memory
        self._samples = [0] * cores
        self._cycles: list[int | None] = [None] * cores
        self._ends = [0] * cores
        self._counters = [Counter[str]() for _ in range(cores)]
        self._pieces: list[tuple[RunResult, dict[int, Totals]]] = []
        self.batches = 0

    def add(self, first: int, runs: Sequence[RunResult]) -> None:
        """Add a batch that went through the pieces on core `first` and the cores after it.

        Call it in the order in which these cores run the batches.
        """
        self._pieces = self._pieces or [(run, {}) for run in runs]
        ready = 0
        for core, (run, (_, totals)) in enumerate(zip(runs, self._pieces, strict=True), first):
            self._samples[core] += run.samples
            self._counters[core].update(run.counters)
            if run.cycles is not None:
                self._cycles[core] = (self._cycles[core] or 0) + run.cycles
                ready = self._ends[core] = max(ready, self._ends[core]) + run.cycles
            for each in run.totals:
                # A program is identified by its samples: it may have come from another computer.
                totals.setdefault(each.compiled.samples, Totals(each.compiled)).include(each)
        self.batches += 1

    def pieces(self) -> tuple[RunResult, ...]:
        """Return for each piece the sums over all its runs."""
        return tuple(
            replace(run, totals=tuple(totals.values()), memory=self._memory)
            for run, totals in self._pieces
        )

    def cores(self) -> tuple[CoreRun, ...]:
        """Return the record of the samples, cycles and counters of each core."""
        rows = zip(self._samples, self._cycles, self._ends, self._counters, strict=True)
        return tuple(
            CoreRun(samples, cycles, end, dict(counters)) for samples, cycles, end, counters in rows
        )
