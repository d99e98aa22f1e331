# SPDX-License-Identifier: Apache-2.0
"""What runs a program: the interface that all machines, real or modelled, share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.isa import INSTRUCTION_BYTES
from systola.arch.registers import PROGRAM_ALIGNMENT
from systola.golden.outcome import FaultReport

if TYPE_CHECKING:
    from systola.sim.recording import Recording


@dataclass(frozen=True)
class Image:
    """Everything that a machine needs to run one program."""

    program: bytes
    """Encoded instructions, whole instructions of 16 bytes."""
    host: NDArray[np.uint8]
    """Content of the host window, 1-D, whole pages of 4096 bytes. It holds `program` already, at
    `program_offset`."""
    program_offset: int
    """Byte offset of the program in the host window, a multiple of 128."""
    weights: NDArray[np.uint8]
    """Content of the weight window, 1-D, whole tiles of `config.tile_bytes`; may be empty."""


def check_image(config: Config, image: Image) -> None:
    """Raises ValueError, with the reason in one line, unless `image` is one for `config`."""
    for name, memory, unit, what in (
        ("host memory", image.host, HOST_PAGE_BYTES, "pages"),
        ("weight memory", image.weights, config.tile_bytes, f"tiles of '{config.name}'"),
    ):
        if memory.ndim != 1 or memory.dtype != np.uint8:
            raise ValueError(f"{name} is a row of uint8, not {memory.dtype} {memory.shape}")
        if memory.size % unit:
            raise ValueError(f"{name} has {memory.size} bytes, not whole {what} of {unit} bytes")
    start, size = image.program_offset, len(image.program)
    if not size or size % INSTRUCTION_BYTES:
        raise ValueError(f"a program of {size} bytes is not one of whole instructions")
    if start % PROGRAM_ALIGNMENT or not 0 <= start <= image.host.size - size:
        raise ValueError(
            f"the program is {size} bytes at offset {start} of {image.host.size} bytes of host "
            f"memory: it must be inside, and its offset a multiple of {PROGRAM_ALIGNMENT}"
        )
    if image.host[start : start + size].tobytes() != image.program:
        raise ValueError(f"the program is not in host memory at offset {start}")


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
