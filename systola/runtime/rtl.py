# SPDX-License-Identifier: Apache-2.0
"""The simulated RTL as a back end: Verilated, cycle by cycle, with memories of a given latency."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from systola.arch.config import Config
from systola.arch.image import Image, check_image
from systola.arch.isa import Fault
from systola.arch.registers import Interrupt
from systola.golden.outcome import FaultReport
from systola.runtime.backend import BackendError, Result, UnavailableError
from systola.timing.memory_speed import MemorySpeed

INTERVAL = 2_000
"""Cycles between two calls of `progress`, and between two looks for Control-C."""


class RtlBackend:
    """A Backend that runs programs on the Verilated RTL.

    The memories answer `latency` cycles late, and stall each channel in a fraction `stall` of the
    cycles, at random from `seed`. `waves` is the file of a waveform: .vcd or, if the computer has
    lz4 and zlib, .fst. close(), or the end of `with`, completes the file, and writes save files for
    GTKWave and Surfer beside it. For a long run, a `window` of cycles limits the waveform: from its
    first up to its second number. Cycles of all programs are counted one after the other. A machine
    that `records` puts a recording into each Result, and is a little slower. The simulator is built
    at its first use, which takes a while. Raises BackendError if it cannot be built, and
    UnavailableError if there is no folder for it.
    """

    def __init__(
        self,
        config: Config,
        *,
        latency: int = 0,
        stall: float = 0.0,
        seed: int = 0,
        waves: Path | None = None,
        window: tuple[int, int] | None = None,
        records: bool = False,
    ) -> None:
        # Imported here: runs on the golden model need none of the tools of this import.
        from systola.sim.library import Simulator

        self._memory = MemorySpeed(latency, stall)
        self._waves = waves
        self._records = records
        self._programs = 0
        with simulator_errors():
            self._simulator = Simulator(
                config,
                latency=latency,
                stall=stall,
                seed=seed,
                waves=waves,
                window=window,
                records=records,
            )

    def close(self) -> None:
        """End the simulation, and complete its waveform.

        Variables of a model that are on the machine come to the host before.
        """
        from systola.runtime.state import vacate

        try:
            vacate(self)
        finally:
            if self._waves:
                self._simulator.save_waves(None)
            self._simulator.close()

    def __enter__(self) -> RtlBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def config(self) -> Config:
        """The configuration of the machine."""
        return self._simulator.config

    @property
    def memory(self) -> MemorySpeed:
        """The speed of the memories."""
        return self._memory

    @property
    def programs(self) -> int:
        """Number of programs that the machine has begun so far."""
        return self._programs

    def run(self, image: Image, *, progress: Callable[[int], None] | None = None) -> Result:
        """Run the program of `image`, see Backend.

        Raises BackendError when the machine breaks a rule of its buses.
        """
        check_image(self.config, image)
        self._programs += 1
        with simulator_errors():
            run = self._simulator.run(image, progress=progress or _nothing, interval=INTERVAL)
        return Result(
            host=run.host,
            fault=fault_report(run.fault_cause, run.fault_pc, run.fault_address),
            interrupts=(run.irq_code,) if run.irq_status & Interrupt.PROGRAM else (),
            cycles=run.cycles,
            counters=run.counters,
            tags=run.tags,
            missing_tags=run.missing_tags,
            simulated_cycles_per_second=run.cycles / run.seconds if run.seconds else None,
            recording=self._simulator.recording() if self._records else None,
        )


@contextmanager
def simulator_errors() -> Generator[None]:
    """Turn errors of a simulator, or of building it, into errors of a back end."""
    from systola.sim.build import BuildFolderError
    from systola.sim.model import SimulationError
    from systola.sim.verilator import BuildError

    try:
        yield
    except (BuildError, SimulationError) as error:
        raise BackendError(str(error)) from error
    except BuildFolderError as error:
        raise UnavailableError(str(error)) from error


def fault_report(cause: Fault, pc: int, address: int) -> FaultReport | None:
    """Return the fault that the registers of a machine hold, or None if there is none."""
    return None if cause == Fault.NONE else FaultReport(cause, pc, address)


def _nothing(cycles: int) -> None:
    """Do nothing: the progress function of a caller without one."""
