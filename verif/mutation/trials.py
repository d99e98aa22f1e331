# SPDX-License-Identifier: Apache-2.0
"""The quick regression that a mutant has to survive: programs and accesses, with what is expected.

What is expected comes from the golden model and from the text of registers and faults. Cycles are
compared with those of the machine without a fault, since the regression holds the machine to its
cycles, too; but that is told apart.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.isa import INSTRUCTION_BYTES, INSTRUCTIONS, Fault, Opcode, decode, encode
from systola.arch.registers import IDENTITY, VERSION, Feature, Interrupt, Register, Status
from systola.golden.machine import Machine
from systola.runtime.backend import Image
from systola.sim.library import RunResult, Simulator
from systola.verif.kit import scoreboard
from systola.verif.kit.bus_errors import BUS_ERRORS, SILENCES, BusError, Silence, busy_program
from systola.verif.kit.crowded_programs import crowded_program
from systola.verif.kit.images import make_image
from systola.verif.kit.large_programs import large_program, longest_program
from systola.verif.kit.program_faults import (
    lone_faults,
    reserved_program,
    static_faults,
)
from systola.verif.kit.program_limits import limit_program
from systola.verif.kit.programs import random_program
from systola.verif.kit.register_bits import writable_bits
from systola.verif.mutation.arithmetic import arithmetic_program
from systola.verif.regress.check import Pair
from systola.verif.regress.disturbances import DISTURBANCES

MEMORIES = ((0, 0.0), (3, 0.1), (30, 0.0), (9, 0.5), (200, 0.0))
"""Latency and stall probability of the memories, in turn."""
CYCLE_LIMIT = 100_000
"""More than any program takes on a machine that works."""
NUMBERS = 16
"""Programs that put many numbers through the arithmetic."""
LIMITS = 40
"""Programs for each fault at a limit; each is one instruction."""
LARGE = 20
"""Programs of instructions over many lines."""
PATIENCE = 400
"""Cycles of BUS_TIMEOUT; more than any of MEMORIES needs."""
LONG = 4
"""Programs in which the queues of the units are fuller than in the others."""
STOCK = 20
"""The logarithm of the most tiles that are asked for and not used."""
FAR_ENDS = 20
"""Programs that go beyond the end of each of the largest windows."""
LONGEST = (0x1555, 0x2AAA)
"""Rows of instructions, with all bits of such numbers."""
LATE = (0x3F0, 0x555)
"""Instructions before one that fails: as many bits of FAULT_PC are told apart."""
CROWDED = 80
"""Programs of instructions that wait for one another."""
DISTURBED = 24
"""Programs into which something comes from outside."""


@dataclass(frozen=True)
class Place:
    """Where the windows are on the bus, and how much of them lies before an image, in bytes."""

    bases: tuple[int, int]
    skipped: tuple[int, int]


Facts = tuple[int, ...]
"""Cycles of a trial: the whole, by class, and those of its tags."""


@dataclass(frozen=True)
class Trial:
    """One thing to do with a machine. `run` raises AssertionError or SimulationError where it does
    not do what it should, and returns its cycles."""

    name: str
    memory: tuple[int, float]
    run: Callable[[Simulator, int], Facts]
    """With the machine and a limit of cycles."""


class Differs(Exception):
    """A machine has done something else than it should; the text says in which trial and what."""


def survive(
    config: Config,
    library: Path | None,
    fault: int,
    trials: Sequence[Trial],
    usual: Sequence[Facts] | None,
) -> tuple[list[Facts], str | None]:
    """Runs the trials on a machine, those with the same memories without a reset in between.

    Returns their cycles, and the first trial whose cycles are not the `usual` ones. Raises Differs
    at the first trial that finds something wrong.
    """
    facts: list[Facts] = []
    late: str | None = None
    machine: Simulator | None = None
    memory: tuple[int, float] | None = None
    name = "start"
    try:
        for number, trial in enumerate(trials):
            name = trial.name
            if machine is None or trial.memory != memory:
                if machine is not None:
                    machine.close()
                memory = trial.memory
                latency, stall = memory
                machine = Simulator(
                    config, latency=latency, stall=stall, seed=1, library=library, fault=fault
                )
            limit = CYCLE_LIMIT if usual is None else 2 * usual[number][0] + 3_000
            found = trial.run(machine, limit)
            if usual is not None and late is None and found != usual[number]:
                late = f"{name}: {found[0]} cycles, not {usual[number][0]}"
            facts.append(found)
    except (AssertionError, RuntimeError, ValueError) as error:
        raise Differs(f"{name}: {str(error).splitlines()[0] if str(error) else error!r}") from None
    finally:
        if machine is not None:
            machine.close()
    return facts, late


def quick_trials(config: Config, seed: int, programs: int) -> list[Trial]:
    """The directed ones and `programs` random ones, those first that find most."""
    trials: list[Trial] = []
    rest = _random_trials(config, seed, programs)
    trials += [next(rest) for _ in range(min(8, programs))]
    trials += [
        program_trial(
            config, f"numbers {number}", arithmetic_program(config, f"{seed} {number}"), number // 4
        )
        for number in range(NUMBERS)
    ]
    trials += [
        program_trial(
            config, f"crowded {number}", crowded_program(config, f"{seed} {number}"), number // 16
        )
        for number in range(CROWDED)
    ]
    trials += _limit_trials(config, seed)
    trials += [
        program_trial(
            config,
            f"large {number}",
            large_program(config, f"{seed} {number}"),
            number // 4,
            bus_timeout=PATIENCE,  # of the memories, which work long enough without any
        )
        for number in range(LARGE)
    ]
    trials += [
        program_trial(
            config,
            f"long {number}",
            random_program(config, f"{seed} long {number}", instructions=90),
            number,
        )
        for number in range(LONG)
    ]
    trials += _register_trials(config)
    trials += _bus_trials(config, seed)
    trials += _disturbed_trials(config, seed)
    trials += _far_trials(config, seed)
    trials += _stock_trials(config)
    trials += _long_loops()
    trials.append(_long_time_outs())
    trials += [
        program_trial(config, f"{rows} rows", longest_program(config, f"{seed}", rows), number)
        for number, rows in zip((0, len(MEMORIES) - 1), LONGEST, strict=True)
    ]
    trials += rest
    return trials


def _random_trials(config: Config, seed: int, programs: int) -> Iterator[Trial]:
    faults = static_faults(config)
    for index in range(programs):
        fault = faults[index // 2 % len(faults)] if index % 2 else None
        image = random_program(config, f"{seed} {index}", fault=fault)
        trial = program_trial(config, f"program {index}", image, index // 8)
        yield trial


def program_trial(
    config: Config,
    name: str,
    image: Image,
    number: int,
    *,
    place: Place | None = None,
    bus_timeout: int = 0,
) -> Trial:
    """The image on the golden model, and what it says. At another place of the bus, the host and
    weight offsets in its instructions are moved for the machine."""
    expected = image.host.copy()
    outcome = Machine(config).run(expected, image.weights, image.program_offset)
    moved = image
    how: dict[str, tuple[int, int]] = {}
    if place is not None:
        moved = _moved(config, image, place)
        code = len(image.program)
        expected[image.program_offset :][:code] = moved.host[image.program_offset :][:code]
        if outcome.fault is not None and outcome.fault.cause == Fault.HOST_WINDOW:
            address = (outcome.fault.address + place.skipped[0]) % (1 << 32)
            outcome = replace(outcome, fault=replace(outcome.fault, address=address))
        how = {"bases": place.bases, "skipped": place.skipped}

    def run(machine: Simulator, limit: int) -> Facts:
        result = machine.run(moved, limit=limit, bus_timeout=bus_timeout, **how)
        scoreboard.check_result(result, expected, outcome)
        return facts_of(result)

    return Trial(name, MEMORIES[number % len(MEMORIES)], run)


def _moved(config: Config, image: Image, place: Place) -> Image:
    """The program with offsets in larger windows."""
    words: list[bytes] = []
    for start in range(0, len(image.program), INSTRUCTION_BYTES):
        entry, operands = decode(image.program[start : start + INSTRUCTION_BYTES])
        if "host" in operands:
            operands["host"] = (operands["host"] + place.skipped[0]) % (1 << 32)
        if "tile" in operands:
            tiles = place.skipped[1] // config.tile_bytes
            operands["tile"] = (operands["tile"] + tiles) % (1 << entry.field("tile").width)
        words.append(encode(entry.opcode, **operands))
    return make_image(
        words, host=image.host, weights=image.weights, program_offset=image.program_offset
    )


def facts_of(result: RunResult) -> Facts:
    """The cycles of a run."""
    return (result.cycles, *result.counters.values(), *(cycle for cycle, _ in result.tags))


def _register_trials(config: Config) -> list[Trial]:
    """Registers by themselves: constants, what can be written, what a reset leaves."""
    constants = {
        Register.ID: IDENTITY,
        Register.VERSION: VERSION,
        Register.GEOMETRY: config.cols << 16 | config.rows,
        Register.BUFFER_LINES: config.buffer_lines,
        Register.ACCUMULATOR_ROWS: config.accumulator_rows,
        Register.FEATURES: int(
            (Feature.TABLES if config.tables else 0)
            | (Feature.DEPTHWISE if config.depthwise else 0)
            | (Feature.WIDE if config.wide else 0)
            | (Feature.PARITY if config.parity else 0)
        ),
    }
    writable = writable_bits(config)
    clear = (
        *(Register.STATUS, Register.IRQ_STATUS, Register.FAULT_CAUSE),
        *(Register.FAULT_PC, Register.FAULT_ADDRESS),
    )

    def reads(machine: Simulator, register: int, value: int) -> None:
        found = machine.read(register)
        assert found == value, f"register 0x{register:03x} is 0x{found:x}, not 0x{value:x}"

    def access(machine: Simulator, limit: int) -> Facts:
        for pattern in (0, 0xFFFF_FFFF, 0xA5C3_96F0, 0x5A3C_690F):
            for number, register in enumerate(writable):
                machine.write(register, pattern ^ number * 0x0101_1000)
            for number, (register, mask) in enumerate(writable.items()):
                reads(machine, register, (pattern ^ number * 0x0101_1000) & mask)
            for register, value in constants.items():
                machine.write(register, pattern)
                reads(machine, register, value)
        return (0,)

    def reset(machine: Simulator, limit: int) -> Facts:
        for hard in (False, True):
            machine.run(make_image([bytes(16)], host=np.zeros(4096, np.uint8)), limit=limit)
            reads(machine, Register.STATUS, Status.FAULT)
            reads(machine, Register.IRQ_STATUS, Interrupt.FAULT)
            machine.write(Register.IRQ_STATUS, Interrupt.DONE | Interrupt.PROGRAM)
            reads(machine, Register.IRQ_STATUS, Interrupt.FAULT)
            if hard:
                machine.reset()
            else:
                machine.soft_reset()
            for register in clear:
                reads(machine, register, 0)
        return (0,)

    return [Trial("registers", MEMORIES[0], access), Trial("resets", MEMORIES[0], reset)]


class _Unfilled(Pair):
    """Of programs that define all that they read: nothing has to be filled."""

    def fill(self) -> str | None:
        """Nothing is wrong."""
        return None


def _disturbed_trials(config: Config, seed: int) -> Iterator[Trial]:
    """What comes from outside while a program runs, each kind in turn."""
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

        # Not the last ones: they may take longer than a time-out of `silence`.
        yield Trial(f"{kind} {number}", MEMORIES[number // 2 % (len(MEMORIES) - 1)], run)
        again = random_program(config, f"{seed} after {kind} {number}")
        yield program_trial(config, f"after {kind} {number}", again, number // 2)


def _far_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Windows as large as they may be, wherever they may be, with all that happens at their end."""
    high = 1 << config.address_bits
    for number, pattern in enumerate((0, 0xFF_5A5A_5A5A, 0xFF_A5A5_A5A5, 0xFF_FFFF_FFFF)):
        image = random_program(config, f"{seed} far {number}")
        room = (1 << 32) - image.host.size
        tiles = (1 << 24) - image.weights.size // config.tile_bytes
        skipped = (
            (room if number in (0, 3) else pattern % room) & -HOST_PAGE_BYTES,
            (tiles if number in (0, 3) else pattern % tiles) * config.tile_bytes,
        )
        bases = (
            min(pattern, high - (1 << 32)) & -HOST_PAGE_BYTES,
            min(pattern ^ 0x7F_0000_0000, high - (1 << 32)) & -HOST_PAGE_BYTES,
        )
        yield program_trial(config, f"far {number}", image, number, place=Place(bases, skipped))
        for end in range(FAR_ENDS):
            image = limit_program(config, f"{seed} far {number} {end}", Fault.HOST_WINDOW)
            skipped = ((1 << 32) - image.host.size) // (1 << number) & -HOST_PAGE_BYTES, 0
            place = Place((0, 0), skipped)
            yield program_trial(config, f"far end {number} {end}", image, 0, place=place)


def _long_loops() -> Iterator[Trial]:
    """Every bit of a loop's count keeps it going."""
    host = np.zeros(HOST_PAGE_BYTES, np.uint8)
    for bit in range(7, 32):
        words = [
            encode(Opcode.LOOP, count=1 << bit),
            encode(Opcode.END_LOOP),
            encode(Opcode.HALT),
        ]
        image = make_image(words, host=host)

        def run(machine: Simulator, limit: int, image: Image = image) -> Facts:
            result = machine.run(image, limit=limit, abandon_after=300)
            assert result.status == 0, "a loop ended early"
            return (300,)

        yield Trial(f"loop of 2^{bit}", MEMORIES[0], run)


def _limit_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Large sizes that end just behind what there is, and what is illegal in itself."""
    often = 3 * [Fault.BUFFER_RANGE]  # of which there are so many kinds
    programs = [*lone_faults(config), *((fault, limit_program) for fault in often)]
    for number in range(LIMITS):
        for kind, (fault, program) in enumerate(programs):
            image = program(config, f"{seed} {number} {kind}", fault)
            yield program_trial(config, f"{fault.name.lower()} {number}", image, 0)
    for bit in range(min(entry.width for entry in INSTRUCTIONS), 8 * INSTRUCTION_BYTES):
        image = reserved_program(config, f"{seed}", bit)
        yield program_trial(config, f"reserved bit {bit}", image, 0)


def _stock_trials(config: Config) -> Iterator[Trial]:
    """Every bit of the number of weight tiles that are still to come counts."""
    host = np.zeros(HOST_PAGE_BYTES, np.uint8)
    weights = np.zeros(config.tile_bytes << STOCK, np.uint8)
    for bit in range(STOCK):
        words = [
            encode(Opcode.READ_WEIGHTS, tile=0, count=1 << bit),
            encode(Opcode.READ_WEIGHTS, tile=0, count=(1 << STOCK) - (1 << bit)),
            encode(
                Opcode.MATRIX_MULTIPLY,
                **{"buffer": 0, "accumulator": 0, "rows": 1, "k_tiles": 1, "n_tiles": 2},
            ),
            encode(Opcode.HALT),
        ]
        for number, some in enumerate((words, [words[0], *words[2:]])):
            image = make_image(some, host=host, weights=weights)
            yield program_trial(config, f"stock of 2^{bit} {number}", image, 0)


def _long_time_outs() -> Trial:
    """Every bit of BUS_TIMEOUT keeps the machine waiting."""
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


def _bus_trials(config: Config, seed: int) -> list[Trial]:
    """Errors on the buses, each followed by a program that must run; and abandoned programs."""
    image = busy_program(config, seed)
    after = [random_program(config, f"{seed} after {number}") for number in range(3)]

    def bus_error(
        error: BusError, soft: bool, image: Image = image
    ) -> Callable[[Simulator, int], Facts]:
        def run(machine: Simulator, limit: int) -> Facts:
            result = machine.run(
                image,
                limit=limit,
                host_errors=error.host_errors,
                weight_errors=error.weight_errors,
            )
            error.check(image, result)
            if soft:
                machine.soft_reset()
            return facts_of(result)

        return run

    def silence(silent: Silence) -> Callable[[Simulator, int], Facts]:
        def run(machine: Simulator, limit: int) -> Facts:
            result = machine.run(
                image,
                limit=limit,
                host_silence=silent.host_silence,
                weight_silence=silent.weight_silence,
                bus_timeout=PATIENCE,
            )
            silent.check(image, result)
            machine.reset()
            return facts_of(result)

        return run

    def abandoned(cycles: int) -> Callable[[Simulator, int], Facts]:
        def run(machine: Simulator, limit: int) -> Facts:
            for program in after:
                machine.run(program, limit=limit, abandon_after=cycles)
            return (cycles,)

        return run

    trials: list[Trial] = []
    for number, error in enumerate(BUS_ERRORS):
        memory = MEMORIES[number % len(MEMORIES)]
        for soft in (False, True):
            trials.append(Trial(f"{error.cause.name.lower()}", memory, bus_error(error, soft)))
            trial = program_trial(config, "after a bus error", after[number % 3], number)
            trials.append(trial)
    for before in LATE:
        late = busy_program(config, seed, before=before)
        for error in BUS_ERRORS[:4]:
            run = bus_error(error.late(before), True, late)
            trials.append(Trial(f"late {error.cause.name.lower()}", MEMORIES[0], run))
    for number, silent in enumerate(SILENCES):
        memory = MEMORIES[number % len(MEMORIES)]
        trials.append(Trial(f"no answer to {silent.port.name}", memory, silence(silent)))
        trial = program_trial(config, "after a time-out", after[number % 3], number)
        trials.append(trial)
    for number, cycles in enumerate((30, 150, 400, 700)):
        memory = MEMORIES[number % len(MEMORIES)]
        trials.append(Trial("abandoned", memory, abandoned(cycles)))
        trial = program_trial(config, "after an abandoned program", after[number % 3], number)
        trials.append(trial)
    return trials
