# SPDX-License-Identifier: Apache-2.0
"""The interface that all machines, real or modelled, share: a machine runs a program."""

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
    """A record of one run: the content of host memory after it, and its fault, cycles and tags."""

    host: NDArray[np.uint8]
    """Content of the host window after the run, as long as the host window of the image."""
    fault: FaultReport | None
    """The reason why the machine stopped; None if the program ended at Halt."""
    interrupts: tuple[int, ...]
    """Codes of Interrupt_Host, in order; a simulated machine reports only the last one, if any."""
    cycles: int | None
    """Cycles from the accepted write of START to DONE in STATUS; None for a machine without a
    clock."""
    counters: dict[str, int]
    """Cycles of each CycleClass by its name in lower case; their sum is `cycles`. Empty for a
    machine without a clock."""
    tags: tuple[tuple[int | None, int], ...]
    """Cycle since START and tag of each Debug_Tag instruction, in order. For a machine without a
    clock, the cycle is None."""
    missing_tags: int
    """Number of tags that are not in `tags`: later tags replaced them in the machine's trace before
    they were read."""
    simulated_cycles_per_second: float | None
    """Simulated cycles in a second of this computer; None for a machine without a clock."""
    recording: Recording | None = None
    """Events of the run with their cycles; None unless the machine records."""


class BackendError(RuntimeError):
    """An error of a machine that cannot be built, or that breaks a rule of its interface."""


class UnavailableError(BackendError):
    """An error for a machine that the user has named and that cannot be found."""


class Backend(Protocol):
    """A machine that programs run on. On-chip memories persist from one run to the next."""

    @property
    def config(self) -> Config:
        """The configuration of the machine; images must be compiled for the same configuration."""
        ...

    @property
    def programs(self) -> int:
        """Number of programs that the machine has begun so far; each may change its memories."""
        ...

    def run(self, image: Image, *, progress: Callable[[int], None] | None = None) -> Result:
        """Run the program of `image` to Halt or to a fault; `image` is not changed.

        A machine with a clock calls `progress` now and then with the number of cycles run so far.
        Raises ValueError for an image that check_image rejects.
        """
        ...


def fault_text(fault: FaultReport) -> str:
    """Describe a fault in one line."""
    return (
        f"the machine stopped at instruction {fault.pc}: {fault.cause.name}, "
        f"address 0x{fault.address:x}"
    )
