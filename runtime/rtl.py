# SPDX-License-Identifier: Apache-2.0
"""The simulated RTL as a back end: cycle by cycle, Verilated, with memories of given latency."""

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
"""Cycles between two calls of `progress`, and until the simulation notices Control-C."""


class RtlBackend:
    """A Backend that runs programs on the Verilated RTL.

    The memories answer `latency` cycles late and stall each channel in a fraction `stall` of the
    cycles, at random from `seed`. `waves` is a waveform to write, .vcd or, where the machine has
    lz4 and zlib, .fst; close(), or the end of `with`, completes it, and puts save files for
    GTKWave and Surfer beside it. Of a long run a `window` of cycles is enough: from the first up to
    the second, all programs counted one after the other. A machine that `records` leaves a
    recording in each Result, and is a little slower. Building the simulator takes a while the first
    time; raises BackendError where it cannot be built, and UnavailableError where there is no place
    for it.
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
        # Whoever runs on the golden model needs none of the tools that this import asks for.
        from systola.sim.library import Simulator

        self._memory = MemorySpeed(latency, stall)
        self._waves = waves
        self._records = records
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
        """Ends the simulation, and completes its waveform."""
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
        """How fast its memories are."""
        return self._memory

    def run(self, image: Image, *, progress: Callable[[int], None] | None = None) -> Result:
        """Runs the program of `image`, see Backend.

        Raises BackendError when the machine breaks a rule of its buses.
        """
        check_image(self.config, image)
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
    """What goes wrong in a simulator, or in building one, as the errors of a back end."""
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
    """What the registers of a machine say of its fault, if there is one."""
    return None if cause == Fault.NONE else FaultReport(cause, pc, address)


def _nothing(cycles: int) -> None:
    """For a caller who does not want to know."""
