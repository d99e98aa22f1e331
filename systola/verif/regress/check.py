# SPDX-License-Identifier: Apache-2.0
"""A comparison of one program on the simulated machine and the golden model, to the last byte."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import PARAMETER_PLANES, TABLE_BYTES, Fault, Opcode, encode
from systola.arch.registers import Register, Status
from systola.golden.machine import Machine
from systola.golden.outcome import LimitReached
from systola.sim.library import Simulator
from systola.sim.model import NoEnd, SimulationError
from systola.verif.kit import scoreboard
from systola.verif.kit.blame import blame
from systola.verif.kit.images import make_image, random_memory

INSTRUCTION_LIMIT = 4_000
"""Largest number of instructions that a compared program may execute.

A program that executes more runs for ABANDON_AFTER cycles only, and is not compared."""
ABANDON_AFTER = 5_000
CYCLE_LIMIT = 30_000_000
"""Default limit of a program in cycles. A program that takes longer counts as hanging."""
_ENTRIES_AT_ONCE = 16


@dataclass
class Totals:
    """Counts of the programs that were run, and of the ways in which they ended.

    `faults` counts programs that ended in a fault. `abandoned` counts programs that were stopped
    since their end was unknown. `cut_short` counts programs that a bus error or a reset ended.
    `words` counts executed instructions, also those that faulted.
    """

    programs: int = 0
    faults: int = 0
    abandoned: int = 0
    cut_short: int = 0
    words: int = 0
    cycles: int = 0

    def add(self, other: Totals) -> None:
        """Add the counts of another Totals to these counts."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class Pair:
    """A pair of simulated machine and golden model that runs programs on both and compares them.

    Before each program, the memories of both have the same contents.
    """

    def __init__(
        self, machine: Simulator, golden: Machine | None = None, *, limit: int = CYCLE_LIMIT
    ):
        self.config = machine.config
        self.golden = golden or Machine(self.config)
        self.machine = machine
        self.limit = limit
        """Limit in cycles, at which a program of this pair counts as hanging."""
        self.totals = Totals()
        self.first_difference: int | None = None
        """Offset in the host window of the last program's first wrong byte; None without any."""
        self.last_cycles: int | None = None
        """Number of cycles that the last program took; None if it was not run to its end."""
        problem = self.fill()
        assert problem is None, f"filling the memories: {problem}"

    def check(
        self,
        image: Image,
        *,
        ends: Container[Fault] = scoreboard.HALT,
        progress: Callable[[int], None] | None = None,
        interval: int = 1 << 20,
    ) -> str | None:
        """Run a program on machine and golden model, and return a message about a difference.

        Without a difference, None is returned. A program that ends in none of the faults `ends` is
        an error, too. Only with ANY_END may the program run forever or overwrite its instructions.
        `progress` and `interval` are arguments of Simulator.run.
        """
        self.last_cycles = None
        host = image.host.copy()
        try:
            outcome = self.golden.run(
                host, image.weights, image.program_offset, limit=INSTRUCTION_LIMIT
            )
            scoreboard.check_end(outcome.fault, ends)
        except LimitReached:
            return self._abandon(image, ends)
        except AssertionError as error:
            return str(error)
        program = host[image.program_offset :][: len(image.program)]
        if program.tobytes() != image.program:
            # A program that overwrites its own instructions has undefined results, but must end.
            return self._abandon(image, ends)
        try:
            result = self.machine.run(image, limit=self.limit, progress=progress, interval=interval)
        except NoEnd as error:
            return f"{error}\n{self.machine.what_hangs(image, limit=self.limit)}"
        except SimulationError as error:
            return str(error)
        self.totals.programs += 1
        self.totals.faults += outcome.fault is not None
        self.totals.words += outcome.executed + (outcome.fault is not None)
        self.totals.cycles += result.cycles
        self.last_cycles = result.cycles
        wrong = np.flatnonzero(host != result.host)
        self.first_difference = int(wrong[0]) if wrong.size else None

        def about(place: int) -> str:
            return blame(self.config, image, place, self.machine.written_at(place))

        try:
            scoreboard.check_result(result, host, outcome, about)
        except AssertionError as error:
            return str(error)
        return None

    def _abandon(self, image: Image, ends: Container[Fault]) -> str | None:
        """Run a program for ABANDON_AFTER cycles, stop it, and fill all memories again.

        The golden model has not found the program's end. Returns an error message, or None.
        """
        if ends != scoreboard.ANY_END:
            return f"after {INSTRUCTION_LIMIT} instructions no end, or it has overwritten itself"
        try:
            self.machine.run(image, limit=self.limit, abandon_after=ABANDON_AFTER)
            busy = Status(self.machine.read(Register.STATUS)) & Status.BUSY
        except SimulationError as error:
            return str(error)
        self.totals.abandoned += 1
        if busy:
            return "still busy after a soft reset"
        return self.fill()

    def fill(self) -> str | None:
        """Fill all memories of machine and golden model with the same contents, by a program.

        Returns an error message, or None. The totals do not count this program.
        """
        totals = replace(self.totals)
        problem = self.check(filling(self.config))
        self.totals = totals
        return problem


def filling(config: Config) -> Image:
    """Return a program that writes every line, row, parameter entry and table on the chip."""
    host = random_memory(np.random.default_rng(0), 16)
    data, pitch = HOST_PAGE_BYTES * 8, config.input_pitch
    words = []
    rows = min(config.buffer_lines, (host.size - data) // pitch, 1024)
    for line in range(0, config.buffer_lines, rows):
        words.append(
            encode(
                Opcode.READ_HOST_MEMORY,
                host=data,
                buffer=line,
                rows=min(rows, config.buffer_lines - line),
                stride=pitch,
                blocks=1,
                tail=config.rows,
            )
        )
    for row in range(0, config.accumulator_rows, rows):
        words.append(encode(Opcode.READ_WEIGHTS, tile=0, count=1))
        words.append(
            encode(
                Opcode.MATRIX_MULTIPLY,
                buffer=0,
                accumulator=row,
                rows=min(rows, config.accumulator_rows - row),
                k_tiles=1,
                n_tiles=1,
            )
        )
    count = min(_ENTRIES_AT_ONCE, (host.size - data) // (PARAMETER_PLANES * config.output_pitch))
    for entry in range(0, config.parameter_entries, count):
        words.append(
            encode(
                Opcode.LOAD_PARAMETERS,
                host=data,
                parameter=entry,
                count=min(count, config.parameter_entries - entry),
            )
        )
    for table in range(config.tables):
        words.append(encode(Opcode.LOAD_TABLE, host=data + table * TABLE_BYTES, table=table))
    words.append(encode(Opcode.HALT))
    tile = np.random.default_rng(1).integers(0, 256, config.tile_bytes, dtype=np.uint8)
    return make_image(words, host=host, weights=tile)
