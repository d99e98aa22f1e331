# SPDX-License-Identifier: Apache-2.0
"""The outcome of a program's run: its end, and the events that the host sees."""

from __future__ import annotations

from dataclasses import dataclass

from systola.arch.isa import Fault


class LimitReached(RuntimeError):
    """An error for a program that still runs after as many instructions as the caller allows."""


@dataclass(frozen=True)
class FaultReport:
    """The contents of the FAULT registers of a stopped machine."""

    cause: Fault
    pc: int
    """Number of the faulting instruction in the program."""
    address: int
    """The offending address, 32 bits; its meaning depends on the cause: see FAULT_TEXT."""


@dataclass(frozen=True)
class Outcome:
    """Result of one run of a program."""

    fault: FaultReport | None
    """Fault that ended the program; None if the program ended at Halt."""
    interrupts: tuple[int, ...]
    """Codes of the Interrupt_Host instructions, in order."""
    tags: tuple[int, ...]
    """Tags of the Debug_Tag instructions, in order."""
    executed: int
    """Instructions that completed, Halt included; each pass of a loop counts."""
