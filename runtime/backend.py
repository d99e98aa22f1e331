# SPDX-License-Identifier: Apache-2.0
"""What runs a program: the interface that all machines, real or modelled, share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.image import Image
from systola.golden.outcome import FaultReport

if TYPE_CHECKING:
    from systola.sim.recording import Recording


@dataclass(frozen=True)
class Result:
    """What one run left behind."""

    host: NDArray[np.uint8]
    """Content of the host window afterwards, as long as that of the image."""
    fault: FaultReport | None
    """Why the machine stopped; None when the program ended at Halt."""
    interrupts: tuple[int, ...]
    """Codes of Interrupt_Host, in order; of a simulated machine only the last one, if any."""
    cycles: int | None
    """From the accepted start write to DONE in STATUS; None for a machine without a clock."""
    counters: dict[str, int]
    """Cycles of each CycleClass by its name in lower case; they sum to `cycles`. Empty for a
    machine without a clock."""
    tags: tuple[tuple[int | None, int], ...]
    """Cycle since START and tag of the Debug_Tag instructions, in order; of a machine without a
    clock the cycle is None."""
    missing_tags: int
    """Tags that are not in `tags`, because others took their place in the trace of the machine
    before they were read."""
    simulated_cycles_per_second: float | None
    """Speed of the simulation; None for a machine without a clock."""
    recording: Recording | None = None
    """What happened when, on a machine that records."""


class BackendError(RuntimeError):
    """A machine that could not be built, or did not do what machines do."""


class UnavailableError(BackendError):
    """A machine that the user has named and that is not there."""


class Backend(Protocol):
    """A machine that programs run on. On-chip memories persist from one run to the next."""

    @property
    def config(self) -> Config:
        """What the machine is built like; images must be compiled for the same."""
        ...

    def run(self, image: Image, *, progress: Callable[[int], None] | None = None) -> Result:
        """Runs the program of `image` to Halt or a fault; `image` is left as it was.

        Raises ValueError for what check_image does not take.

        `progress` is called now and then with the number of cycles run so far, by machines that
        have a clock.
        """
        ...


def fault_text(fault: FaultReport) -> str:
    """A fault in one line."""
    return (
        f"the machine stopped at instruction {fault.pc}: {fault.cause.name}, "
        f"address 0x{fault.address:x}"
    )
