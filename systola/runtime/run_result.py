# SPDX-License-Identifier: Apache-2.0
"""The result of a run of a compiled model: outputs, cycles and measurements."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import INSTRUCTION_BYTES
from systola.compiler.network import CompiledNetwork
from systola.compiler.program import Program
from systola.runtime.backend import Result
from systola.runtime.measurements import Measurements
from systola.runtime.report import LayerRow, Report, make_report
from systola.timing.memory_speed import MemorySpeed

if TYPE_CHECKING:
    from systola.views.plots import Figure


@dataclass
class Totals:
    """A record of sums over the runs of one of a model's programs."""

    compiled: CompiledNetwork
    samples: int = 0
    """Samples that the caller gave; copies that only fill the program up do not count."""
    instructions: int = 0
    cycles: int = 0
    timed: bool = False
    """Whether the machine has a clock."""
    seconds: float = 0.0
    """Time that the simulation took, in seconds."""
    counters: Counter[str] = field(default_factory=Counter[str])
    measured: Measurements = field(default_factory=Measurements)

    def add(self, number: int, program: Program, result: Result) -> None:
        """Add a run of a program of stage `number`."""
        self.measured.add(number, result)
        self.instructions += len(program.image.program) // INSTRUCTION_BYTES
        if result.cycles is not None:
            self.timed = True
            self.cycles += result.cycles
            self.counters.update(result.counters)
            if result.simulated_cycles_per_second:
                self.seconds += result.cycles / result.simulated_cycles_per_second

    def include(self, other: Totals) -> None:
        """Add other runs of the same program."""
        self.samples += other.samples
        self.instructions += other.instructions
        self.cycles += other.cycles
        self.timed |= other.timed
        self.seconds += other.seconds
        self.counters.update(other.counters)
        self.measured.include(other.measured)


@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult:
    """A result of a model: its outputs, with the cycles and measurements of its run."""

    outputs: tuple[NDArray[Any], ...]
    """Outputs of the model, with an axis for samples if the inputs had one."""
    macs: int
    """Multiply-accumulates of one sample."""
    config: Config
    memory: MemorySpeed | None
    """Speed of the memories that the estimate assumes."""
    totals: tuple[Totals, ...]
    """Totals over all runs of a program, for each of the model's programs that was run."""
    recorded: tuple[tuple[Program, Result], ...] = ()
    """The programs with their results, in the order in which they ran, on a machine that records.
    """
    moving_cycles: int = 0
    """Cycles of programs that moved variables to the machine and back; `cycles` is without them."""

    def __repr__(self) -> str:
        shapes = ", ".join(f"{y.dtype}{list(y.shape)}" for y in self.outputs)
        cycles = "no clock" if self.cycles is None else f"{self.cycles:,} cycles"
        return f"<{type(self).__name__}: {self.samples} samples, {cycles}, outputs {shapes}>"

    @property
    def y(self) -> NDArray[Any]:
        """The first output."""
        return self.outputs[0]

    @property
    def samples(self) -> int:
        """Samples that were run."""
        return sum(each.samples for each in self.totals)

    @property
    def instructions(self) -> int:
        """Number of instructions in all programs that were run."""
        return sum(each.instructions for each in self.totals)

    @property
    def cycles(self) -> int | None:
        """Cycles of all programs; None for a machine without a clock."""
        timed = [each.cycles for each in self.totals if each.timed]
        return sum(timed) if timed else None

    @property
    def utilization(self) -> float | None:
        """The share of the multiply-accumulates that the array could do; None without a clock."""
        if not self.cycles:
            return None
        return self.macs * self.samples / (self.config.peak_macs * self.cycles)

    @property
    def counters(self) -> dict[str, int]:
        """Cycles of each CycleClass by its name in lower case; empty without a clock."""
        counters: Counter[str] = Counter()
        for each in self.totals:
            counters.update(each.counters)
        return dict(counters)

    @property
    def simulated_cycles_per_second(self) -> float | None:
        """Speed of the simulation; None without a clock."""
        seconds = sum(each.seconds for each in self.totals)
        return self.cycles / seconds if self.cycles and seconds else None

    def inferences_per_second(self, mhz: float) -> float | None:
        """Return the samples in a second at a clock of `mhz`; None without a clock."""
        return self.samples * mhz * 1e6 / self.cycles if self.cycles else None

    def timeline(self, title: str = "network") -> bytes:
        """Return the content of a .json file for Perfetto and Chrome, see
        systola.views.trace_event.

        Raises ValueError unless the machine records.
        """
        from systola.views.trace_event import network_trace

        if not self.recorded:
            raise ValueError("a timeline needs a machine that records")
        return network_trace(self.config, self.recorded, self.memory, title)

    def plot_roofline(self, title: str = "roofline") -> Figure:
        """Draw the layers under the roofs of array and memory ports, as a figure of matplotlib.

        Raises systola.views.missing_library.MissingLibraryError if matplotlib is not installed.
        """
        from systola.views.plots import roofline_figure

        return roofline_figure(self.config, self.report(), title)

    def plot_layers(self, title: str = "cycles of the layers") -> Figure:
        """Draw the estimated and measured cycles of each layer, as a figure of matplotlib.

        Raises systola.views.missing_library.MissingLibraryError if matplotlib is not installed.
        """
        from systola.views.plots import layers_figure

        return layers_figure(self.report(), title)

    def report(self, mhz: float | None = None) -> Report:
        """Return the layers, estimated and measured, of the program that ran most samples."""
        main = max(self.totals, key=lambda each: each.samples)
        return make_report(
            self.config, main.compiled, measured=main.measured, memory=self.memory, mhz=mhz
        )

    @property
    def layers(self) -> tuple[LayerRow, ...]:
        """The rows of the report."""
        return self.report().rows
