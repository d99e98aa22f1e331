# SPDX-License-Identifier: Apache-2.0
"""Trials (runs for mutants) in which a program is disturbed.

Disturbances are bus errors, a memory that does not answer (silence), resets, and register writes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import Opcode, encode
from systola.sim.library import Simulator
from systola.verif.kit.bus_errors import (
    BUS_ERRORS,
    SILENCES,
    BusError,
    Silence,
    busy_program,
    errors_at_the_end,
    weights_program,
)
from systola.verif.kit.images import make_image
from systola.verif.kit.programs import random_program
from systola.verif.mutation.leftovers import leftover_trials
from systola.verif.mutation.trial import (
    CYCLE_LIMIT,
    MEMORIES,
    PATIENCE,
    Facts,
    Trial,
    facts_of,
    program_trial,
)
from systola.verif.regress.check import Pair
from systola.verif.regress.disturbances import DISTURBANCES

LATE = (0x3F0, 0x555)
"""Numbers of instructions that run before a failing instruction.

FAULT_PC shows such a number. Between them, the numbers set many bits of FAULT_PC to 1.
"""
FAR = 0x1_0003
"""Number of instructions that run before a failing transfer. It sets bit 16 of FAULT_PC to 1."""
DISTURBED = 24
"""Number of random programs that are disturbed while they run."""


def stop_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Yield all trials of disturbances."""
    yield from _bus_trials(config, seed)
    yield from _disturbed_trials(config, seed)
    yield from leftover_trials(config, seed)
    yield _long_time_outs()


class _Unfilled(Pair):
    """A pair of machine and golden model that does not fill the memories before the first program.

    It suits programs that read only memory that they have written before.
    """

    def fill(self) -> str | None:
        """Fill no memory, and return None: no problem was found."""
        return None


def _disturbed_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Yield trials of random programs with a disturbance; a program without one follows each.

    The kinds of disturbances take turns.
    """
    kinds = list(DISTURBANCES.items())
    for number in range(DISTURBED):
        kind, disturb = kinds[number % len(kinds)]
        image = random_program(config, f"{seed} {kind} {number}")

        def run(
            machine: Simulator,
            limit: int,
            disturb: Callable[[Pair, Image, random.Random], str | None] = disturb,
            image: Image = image,
            number: int = number,
        ) -> Facts:
            pair = _Unfilled(machine, limit=CYCLE_LIMIT)
            problem = disturb(pair, image, random.Random(f"{seed} {number}"))
            assert problem is None, problem
            return (pair.totals.cycles,)

        # The slowest memory, the last of MEMORIES, is left out. Its latency may exceed the time-out
        # that the disturbance `silence` sets.
        yield Trial(f"{kind} {number}", MEMORIES[number // 2 % (len(MEMORIES) - 1)], run)
        again = random_program(config, f"{seed} after {kind} {number}")
        yield program_trial(config, f"after {kind} {number}", again, number // 2)


def _long_time_outs() -> Trial:
    """Return a trial of the bits 9 to 31 of BUS_TIMEOUT, one at a time, with a silent memory.

    With any of these bits set, the machine must still wait after 400 cycles.
    """
    image = make_image([encode(Opcode.HALT)], host=np.zeros(HOST_PAGE_BYTES, np.uint8))

    def run(machine: Simulator, limit: int) -> Facts:
        for bit in range(9, 32):
            result = machine.run(
                image,
                limit=limit,
                host_silence=(0, HOST_PAGE_BYTES),
                bus_timeout=1 << bit | 64,
                abandon_after=400,
                by_reset=True,
            )
            assert result.status == 0, f"no patience with bit {bit} of BUS_TIMEOUT"
        return (400,)

    return Trial("time-outs", MEMORIES[0], run)


def _bus_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Yield trials of bus errors, silent memories, and programs stopped at a fixed time.

    A further program follows most of them, and must run as usual.
    """
    image = busy_program(config, seed)
    after = [random_program(config, f"{seed} after {number}") for number in range(3)]

    def follower(what: str, number: int) -> Trial:
        return program_trial(config, f"after {what}", after[number % 3], number)

    def error_trial(
        image: Image, error: BusError, memory: tuple[int, float], *, soft: bool, when: str = ""
    ) -> Trial:
        return Trial(
            f"{when}{error.cause.name.lower()}",
            memory,
            _stopped(
                image,
                error,
                Simulator.soft_reset if soft else None,
            ),
        )

    for number, error in enumerate((*BUS_ERRORS, *errors_at_the_end(config))):
        for soft in (False, True):
            # Each error runs on each memory, since the time from the end of a failing transfer to
            # its Debug_Tag depends on the memory.
            for memory in range(len(MEMORIES)):
                yield error_trial(image, error, MEMORIES[memory], soft=soft)
            yield follower("a bus error", number)
    for before in LATE:
        late = busy_program(config, seed, before=before)
        for error in BUS_ERRORS[:4]:
            yield error_trial(late, error.late(before), MEMORIES[0], soft=True, when="late ")
    far = busy_program(config, seed, before=FAR)
    for error in BUS_ERRORS[:3]:
        yield error_trial(far, error.late(FAR), MEMORIES[0], soft=True, when="far ")
    weights, errors = weights_program(config, seed)
    for error in errors:
        for memory in (MEMORIES[0], MEMORIES[-1]):
            yield error_trial(weights, error, memory, soft=True, when="one ")
    for number, silent in enumerate(SILENCES):
        run = _stopped(image, silent, Simulator.reset, bus_timeout=PATIENCE)
        yield Trial(f"no answer to {silent.port.name}", MEMORIES[number % len(MEMORIES)], run)
        yield follower("a time-out", number)
    for number, cycles in enumerate((30, 150, 400, 700)):

        def run(machine: Simulator, limit: int, cycles: int = cycles) -> Facts:
            for program in after:
                machine.run(program, limit=limit, abandon_after=cycles)
            return (cycles,)

        yield Trial("abandoned", MEMORIES[number % len(MEMORIES)], run)
        yield follower("an abandoned program", number)


def _stopped(
    image: Image,
    cause: BusError | Silence,
    then: Callable[[Simulator], None] | None,
    *,
    bus_timeout: int = 0,
) -> Callable[[Simulator, int], Facts]:
    """Return a trial's function: it runs a program that an error or silence (`cause`) stops.

    The function checks the fault, and then calls `then`, such as a reset, on the machine.
    """

    def run(machine: Simulator, limit: int) -> Facts:
        result = machine.run(image, limit=limit, bus_timeout=bus_timeout, **cause.memories)
        cause.check(image, result)
        if then is not None:
            then(machine)
        return facts_of(result)

    return run
