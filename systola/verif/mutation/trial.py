# SPDX-License-Identifier: Apache-2.0
"""A trial: a run on a machine or pod with a planted fault (a mutant), and the expected result.

A trial that fails has found the fault. The expected result comes from the golden model and from the
documents on registers and faults. The expected cycles come from a run without a fault. If only the
cycles differ, the verdict on the mutant is "slower".
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import Fault
from systola.golden.machine import Machine
from systola.sim.library import RunResult, Simulator
from systola.verif.kit import scoreboard
from systola.verif.mutation.design import Design, M
from systola.verif.mutation.places import Place, moved_to, skipped_by

MEMORIES = ((0, 0.0), (3, 0.1), (30, 0.0), (9, 0.5), (200, 0.0))
"""Latency in cycles and stall probability of the memories, which trials use in turn."""
CYCLE_LIMIT = 1_000_000
"""Limit of a trial in cycles, more than any program takes on a working machine."""
PATIENCE = 400
"""Value of BUS_TIMEOUT in cycles, more than any of MEMORIES needs for an answer."""


Facts = tuple[int, ...]
"""Cycles of a trial: in total, in each class of the counters, and from START to each Debug_Tag.

A trial may leave out classes and tags.
"""


@dataclass(frozen=True)
class TrialOn(Generic[M]):
    """A trial of a design: a run with an expected result.

    `run` returns the trial's cycles, and raises AssertionError or SimulationError if it fails.
    """

    name: str
    memory: tuple[int, float]
    run: Callable[[M, int], Facts]
    """Function that runs the trial on a simulator, with a limit in cycles."""


Trial = TrialOn[Simulator]
"""A trial of a whole machine, as opposed to a pod."""


class Differs(Exception):
    """An error: a design differs from the expected result; the text names trial and difference."""


def survive(
    design: Design[M],
    library: Path | None,
    fault: int,
    trials: Sequence[TrialOn[M]],
    usual: Sequence[Facts] | None,
) -> tuple[list[Facts], str | None]:
    """Run trials on a simulator of a design with the fault number `fault`, where 0 plants no fault.

    Successive trials with the same memories share a simulator, without a reset between them.
    Returns the cycles of each trial, and a message about the first trial with other cycles than
    `usual`. Raises Differs at the first trial with a wrong result.
    """
    facts: list[Facts] = []
    late: str | None = None
    running: M | None = None
    memory: tuple[int, float] | None = None
    name = "start"
    try:
        for number, trial in enumerate(trials):
            name = trial.name
            if running is None or trial.memory != memory:
                if running is not None:
                    running.close()
                memory = trial.memory
                running = design.simulator(library, fault, memory)
            limit = CYCLE_LIMIT if usual is None else 2 * usual[number][0] + 3_000
            found = trial.run(running, limit)
            if usual is not None and late is None and found != usual[number]:
                late = f"{name}: {found[0]} cycles, not {usual[number][0]}"
            facts.append(found)
    except (AssertionError, RuntimeError, ValueError) as error:
        raise Differs(f"{name}: {str(error).splitlines()[0] if str(error) else error!r}") from None
    finally:
        if running is not None:
            running.close()
    return facts, late


def program_trial(
    config: Config,
    name: str,
    image: Image,
    number: int,
    *,
    ends: Container[Fault] = scoreboard.HALT,
    place: Place | None = None,
    bus_timeout: int = 0,
) -> Trial:
    """Return a trial of an image that expects the golden model's result.

    The golden model's run must end in one of the faults `ends`. With a `place`, the image lies
    elsewhere in its windows, and the machine's instructions get other host and weight offsets.
    """
    expected = image.host.copy()
    outcome = Machine(config).run(expected, image.weights, image.program_offset)
    scoreboard.check_end(outcome.fault, ends)
    moved = image
    how: dict[str, tuple[int, int]] = {}
    if place is not None:
        moved = moved_to(config, image, place)
        code = len(image.program)
        expected[image.program_offset :][:code] = moved.host[image.program_offset :][:code]
        if outcome.fault is not None:
            address = outcome.fault.address + skipped_by(config, outcome.fault.cause, place)
            fault = replace(outcome.fault, address=address % (1 << 32))
            outcome = replace(outcome, fault=fault)
        how = {"bases": place.bases, "skipped": place.skipped}

    def run(machine: Simulator, limit: int) -> Facts:
        result = machine.run(moved, limit=limit, bus_timeout=bus_timeout, **how)
        scoreboard.check_result(result, expected, outcome)
        return facts_of(result)

    return Trial(name, MEMORIES[number % len(MEMORIES)], run)


def facts_of(result: RunResult) -> Facts:
    """Return the cycles of a run: in total, in each class, and from START to each Debug_Tag."""
    return (result.cycles, *result.counters.values(), *(cycle for cycle, _ in result.tags))
