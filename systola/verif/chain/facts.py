# SPDX-License-Identifier: Apache-2.0
"""The facts about a program's run that `make chain` compares between simulators."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import Fault
from systola.arch.registers import Interrupt, Status
from systola.golden.machine import Machine
from systola.sim.library import RunResult
from systola.verif.kit import scoreboard
from systola.verif.kit.program_faults import static_faults
from systola.verif.kit.programs import random_program

LATENCY, STALL = 7, 0.1
"""Latency in cycles and stall probability of the memories."""


@dataclass(frozen=True)
class Facts:
    """The state that a program leaves, and the times of its events on a machine with a clock."""

    host: str
    """SHA-256 of the host window."""
    fault: tuple[int, int, int]
    """Cause, instruction and address of the program's fault; zeros without a fault."""
    interrupt: int
    """Code of the last Interrupt_Host, 0 without one."""
    tags: tuple[int, ...]
    times: tuple[object, ...] = ()
    """Cycles in total, cycles of each class by name, and the cycle of each Debug_Tag."""


def meant_faults(config: Config, seed: int, count: int) -> list[Fault | None]:
    """Return the fault in which each program of `programs` is meant to end.

    Only the last program has a fault; all others end at Halt.
    """
    faults = static_faults(config)
    return [*[None] * (count - 1), faults[seed % len(faults)]]


def programs(config: Config, seed: int, count: int) -> list[Image]:
    """Return `count` random programs, of which the last ends in a fault."""
    return [
        random_program(config, f"chain {seed} {index}", instructions=10, fault=fault)
        for index, fault in enumerate(meant_faults(config, seed, count))
    ]


def golden_facts(config: Config, seed: int, count: int) -> list[Facts]:
    """Return the facts of `programs` on the golden model, which has no clock.

    Fails if a program ends otherwise than intended.
    """
    golden = Machine(config)
    found: list[Facts] = []
    for image, meant in zip(
        programs(config, seed, count), meant_faults(config, seed, count), strict=True
    ):
        host = image.host.copy()
        outcome = golden.run(host, image.weights, image.program_offset)
        scoreboard.check_end(outcome.fault, scoreboard.ends_in(meant))
        fault = outcome.fault
        found.append(
            Facts(
                host=hashlib.sha256(host.tobytes()).hexdigest(),
                fault=(int(fault.cause), fault.pc, fault.address) if fault else (0, 0, 0),
                interrupt=outcome.interrupts[-1] if outcome.interrupts else 0,
                tags=outcome.tags,
            )
        )
    return found


def facts_of(result: RunResult) -> Facts:
    """Return the facts about a program's run on a simulated machine."""
    assert bool(result.status & Status.FAULT) == bool(result.fault_cause)
    return Facts(
        host=hashlib.sha256(result.host.tobytes()).hexdigest(),
        fault=(int(result.fault_cause), result.fault_pc, result.fault_address),
        interrupt=result.irq_code if result.irq_status & Interrupt.PROGRAM else 0,
        tags=tuple(tag for _, tag in result.tags),
        times=(
            result.cycles,
            *sorted(result.counters.items()),
            *(cycle for cycle, _ in result.tags),
        ),
    )


def to_json(facts: list[Facts]) -> str:
    """Return facts as a JSON text, which another process reads."""
    return json.dumps([asdict(each) for each in facts])


def from_json(text: str) -> list[Facts]:
    """Return the facts in a JSON text from `to_json`."""

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return [
        Facts(**{name: tuples(value) for name, value in entry.items()})
        for entry in json.loads(text)
    ]
