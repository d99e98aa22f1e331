# SPDX-License-Identifier: Apache-2.0
"""Disturbances from outside while a program runs: bus errors, resets, register writes.

Each disturbance is a function of a Pair (machine and golden model), a program and its permitted
ends. The function runs the program with the disturbance, and returns a description of a wrong
behaviour, or None. Afterwards it makes the memories of machine and golden model equal again.
"""

from __future__ import annotations

import random
from collections.abc import Container
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import INSTRUCTION_BYTES, Fault, Opcode
from systola.arch.registers import (
    REGISTER_SPACE_BITS,
    BusPort,
    Control,
    Interrupt,
    Register,
    Status,
)
from systola.golden.outcome import Outcome
from systola.sim.library import RunResult
from systola.sim.model import SimulationError
from systola.verif.kit.scoreboard import HALT, check_end
from systola.verif.regress.check import INSTRUCTION_LIMIT, Pair
from systola.verif.regress.touched import Touched, users

LONGEST_GAP = 60
"""Largest number of cycles between two register writes during a program."""


@dataclass(frozen=True)
class Expected:
    """The golden model's result of a program without a disturbance.

    `touched` has the bus beats that the program needs, and `host` the host window at its end.
    """

    touched: Touched
    host: NDArray[np.uint8]
    outcome: Outcome

    @classmethod
    def of(cls, config: Config, image: Image) -> Expected:
        """Run a program on the golden model, and return the result."""
        touched, host = Touched(config), image.host.copy()
        outcome = touched.run(host, image.weights, image.program_offset, limit=INSTRUCTION_LIMIT)
        return cls(touched, host, outcome)

    def unmeant(self, ends: Container[Fault]) -> str | None:
        """Return a message if the program ends in none of the faults `ends`, else None."""
        try:
            check_end(self.outcome.fault, ends)
        except AssertionError as error:
            return str(error)
        return None

    def stray(self, image: Image, host: NDArray[np.uint8]) -> int | None:
        """Return the offset of the first byte that has changed although no instruction writes it.

        Returns None if there is no such byte. `host` is the host window after the program, and
        `image` has the host window before the program.
        """
        bus = self.touched.config.host_bus_bytes
        may = np.zeros(host.size // bus, np.bool_)
        for beats in self.touched.written.values():
            may[list(beats)] = True
        wrong = np.flatnonzero((host != image.host) & ~np.repeat(may, bus))
        return int(wrong[0]) if wrong.size else None


def bus_error(
    pair: Pair, image: Image, rng: random.Random, ends: Container[Fault] = HALT
) -> str | None:
    """Run a program while the host or weight memory answers one random bus beat with an error.

    The fault must name an instruction that needs the beat. If no instruction needs the beat, the
    error must not be visible.
    """
    expected = Expected.of(pair.config, image)
    if problem := expected.unmeant(ends):
        return problem
    on_host, beat = _some_beat(expected, image, rng)
    return error_on(pair, image, expected, on_host, beat)


def _some_beat(expected: Expected, image: Image, rng: random.Random) -> tuple[bool, int]:
    """Return a random bus beat, as a flag and the beat's number in its window.

    The flag is True for the host port, and False for the weight port. An instruction needs most of
    the returned beats.
    """
    config = expected.touched.config
    on_host = not image.weights.size or rng.random() < 0.7
    touched = expected.touched
    tables = (touched.read, touched.written) if on_host else (touched.weights,)
    needed = sorted(set().union(*(beats for table in tables for beats in table.values())))
    bus = config.host_bus_bytes if on_host else config.weight_bus_bytes
    program = range(
        image.program_offset // bus, (image.program_offset + len(image.program)) // bus + 1
    )
    kind = rng.random()
    if needed and kind < 0.7:
        beat = rng.choice(needed)
    elif on_host and kind < 0.9:
        beat = rng.choice(program)
    else:
        beat = rng.randrange((image.host if on_host else image.weights).size // bus)
    return on_host, beat


def error_on(pair: Pair, image: Image, expected: Expected, on_host: bool, beat: int) -> str | None:
    """Run a program with a bus error on the given beat, and check the fault as `bus_error` does."""
    config, touched = pair.config, expected.touched
    bus = config.host_bus_bytes if on_host else config.weight_bus_bytes
    span = (beat * bus, (beat + 1) * bus)
    errors = {"host_errors" if on_host else "weight_errors": span}
    where = f"error on {'host' if on_host else 'weight'} beat {beat}"
    if on_host:
        may = {(Fault.HOST_READ_ERROR, pc) for pc in users(touched.read, beat)}
        may |= {(Fault.HOST_WRITE_ERROR, pc) for pc in users(touched.written, beat)}
    else:
        may = {(Fault.WEIGHT_READ_ERROR, pc) for pc in users(touched.weights, beat)}
    must = bool(may) and (on_host or beat in touched.used)
    if on_host:
        first = (span[0] - image.program_offset) // INSTRUCTION_BYTES
        last = (span[1] - 1 - image.program_offset) // INSTRUCTION_BYTES
        may |= {(Fault.FETCH_ERROR, pc) for pc in range(max(first, 0), last + 1)}
    try:
        result = pair.machine.run(image, limit=pair.limit, **errors)
    except SimulationError as error:
        return f"{where}: {error}"
    pair.totals.programs += 1
    pair.totals.cut_short += (result.fault_cause, result.fault_pc) in may
    problem = _after_error(expected, image, result, may, must)
    return f"{where}: {problem}" if problem else pair.fill()


def _after_error(
    expected: Expected,
    image: Image,
    result: RunResult,
    may: set[tuple[Fault, int]],
    must: bool,
) -> str | None:
    stray = expected.stray(image, result.host)
    if stray is not None:
        return f"byte {stray} of the host window has changed, and no instruction writes it"
    if (result.fault_cause, result.fault_pc) in may:
        return None if result.status == Status.FAULT else f"STATUS is {result.status!r}"
    found = f"{result.fault_cause!r} at {result.fault_pc}"
    if must:
        return f"{found}, not one of {may}"
    fault = expected.outcome.fault
    wanted = (fault.cause, fault.pc) if fault else (Fault.NONE, 0)
    if wanted != (result.fault_cause, result.fault_pc):
        return f"{found} instead of {wanted}, and one of {may} at most"
    wrong = np.flatnonzero(expected.host != result.host)
    return f"byte {wrong[0]} of the host window is wrong" if wrong.size else None


def silence(
    pair: Pair, image: Image, rng: random.Random, ends: Container[Fault] = HALT
) -> str | None:
    """Run a program while the host or weight memory does not answer bursts with one random beat.

    If an instruction needs the beat, the fault must be BUS_TIMEOUT with the beat's port. After a
    pulse of the reset input, programs must run again.
    """
    expected = Expected.of(pair.config, image)
    if problem := expected.unmeant(ends):
        return problem
    touched = expected.touched
    on_host, beat = _some_beat(expected, image, rng)
    bus = pair.config.host_bus_bytes if on_host else pair.config.weight_bus_bytes
    span = (beat * bus, (beat + 1) * bus)
    silent = {"host_silence" if on_host else "weight_silence": span}
    where = f"no answer for {'host' if on_host else 'weight'} beat {beat}"
    needs = BusPort(0)
    if not on_host:
        needs = BusPort.WEIGHT_READ if beat in touched.used else needs
    else:
        needs |= BusPort.HOST_READ if users(touched.read, beat) else needs
        needs |= BusPort.HOST_WRITE if users(touched.written, beat) else needs
    try:
        result = pair.machine.run(
            image, limit=pair.limit, bus_timeout=rng.randint(100, 300), **silent
        )
    except SimulationError as error:
        return f"{where}: {error}"
    pair.totals.programs += 1
    if result.fault_cause == Fault.BUS_TIMEOUT:
        pair.totals.cut_short += 1
        waits = BusPort(result.fault_address)
        found = (result.status, result.fault_pc, result.irq_status & ~Interrupt.PROGRAM)
        if found != (Status.BUSY | Status.FAULT, 0, Interrupt.FAULT):
            return f"{where}: STATUS, FAULT_PC and IRQ_STATUS are {found}"
        if not waits or (needs and not needs & waits):
            return f"{where}: {waits!r} wait instead of {needs!r}"
        if (stray := expected.stray(image, result.host)) is not None:
            return f"{where}: byte {stray} has changed, and no instruction writes it"
        pair.machine.reset()
    else:
        problem = _after_error(expected, image, result, set(), bool(needs))
        if problem:
            return f"{where}: {problem}"
    problem = pair.fill()
    return f"{where}: afterwards {problem}" if problem else None


def reset(
    pair: Pair, image: Image, rng: random.Random, ends: Container[Fault] = HALT
) -> str | None:
    """Run a program, and reset the machine in a random cycle, by SOFT_RESET or the reset input.

    Afterwards only bytes that the program writes may have changed in the host window.
    """
    problem = pair.check(image, ends=ends)
    if problem or pair.last_cycles is None:
        return problem
    after, by_input = rng.randint(0, pair.last_cycles + 10), rng.random() < 0.5
    expected = Expected.of(pair.config, image)
    where = f"{'reset' if by_input else 'soft reset'} {after} cycles after START"
    try:
        result = pair.machine.run(image, limit=pair.limit, abandon_after=after, by_reset=by_input)
    except SimulationError as error:
        return f"{where}: {error}"
    pair.totals.cut_short += 1
    stray = expected.stray(image, result.host)
    if stray is not None:
        return f"{where}: byte {stray} has changed, and no instruction writes it"
    problem = pair.fill()
    return f"{where}: {problem}" if problem else None


def register_writes(
    pair: Pair, image: Image, rng: random.Random, ends: Container[Fault] = HALT
) -> str | None:
    """Run a program while the host writes random registers, which must have no visible effect."""
    problem = pair.check(image, ends=ends)
    if problem or pair.last_cycles is None:
        return problem
    cycles = pair.last_cycles
    kept = (Register.IRQ_ENABLE, Register.IRQ_STATUS, Register.CONTROL)
    targets = [offset for offset in range(0, 1 << REGISTER_SPACE_BITS, 4) if offset not in kept]
    named = [register for register in Register if register not in kept]

    def write(spent: int) -> None:
        if spent >= cycles - 2 * LONGEST_GAP:
            # The program is about to end. A write after its end would have an effect.
            return
        if rng.random() < 0.2:
            pair.machine.write(Register.CONTROL, Control.START)
        else:
            offset = rng.choice(named if rng.random() < 0.7 else targets)
            pair.machine.write(offset, rng.getrandbits(32))

    problem = pair.check(image, ends=ends, progress=write, interval=rng.randint(1, LONGEST_GAP))
    # If a program waits for the host, its cycles may differ, as a busy host sees the wait later.
    waits = Opcode.SYNCHRONIZE_HOST in image.program[::INSTRUCTION_BYTES]
    if not problem and not waits and pair.last_cycles != cycles:
        problem = f"{pair.last_cycles} cycles instead of {cycles}"
    return f"with register writes: {problem}" if problem else None


DISTURBANCES = {"errors": bus_error, "silence": silence, "resets": reset, "writes": register_writes}
"""Function that disturbs a program, for each kind of regression with disturbances."""
