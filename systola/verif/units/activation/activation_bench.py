# SPDX-License-Identifier: Apache-2.0
"""A test bench of the activation unit between models of its neighbours.

The neighbours are accumulators, buffer, and lists of older instructions. A golden model gives the
expected results.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import wiring

from systola.arch.config import Config
from systola.arch.isa import LONG_TABLES, PARAMETER_PLANES, Opcode
from systola.golden.machine import Machine
from systola.hdl.activation.activation_unit import ActivationUnit
from systola.hdl.commands import parameter_space, table_space
from systola.hdl.memories.accumulators import READ_LATENCY as ROW_LATENCY
from systola.hdl.ports import BUFFER_LATENCY as LINE_LATENCY
from systola.verif.units.activation.activation_jobs import READERS, Job
from systola.verif.units.parts.list_model import Entries, Entry
from systola.verif.units.unit import Bench

LATENCY = 16
"""Cycles from the issue of an accumulator row to the write of its result line."""
SUM_LATENCY = 4
"""Cycles by which a result takes longer if its operands are buffer lines."""
SCALED_LATENCY = 10
"""Cycles by which a result takes longer if it is a sum of scaled operands."""
FRONT_LATENCY = 5
"""Cycles from a command of the activation unit to the first read for it."""
ANNOUNCED = 2
"""Cycles from the announcement of a result line to its write."""
OLDER = ("matrix_summing", "matrix_reading", "host_writing", "host_reading", "loading")
"""The lists of older instructions in other units, for which the activation unit waits."""
AFRESH = 7
"""Largest number of cycles from an instruction's last step to the next but one's first step.

So many pass if the instruction between the two is short. The unit takes one command in advance, and
a further command only when the command in advance has become the present one.
"""


class Unit(wiring.Component):
    """An activation unit with its list `activate_writing` connected to its queue, as in the core.

    Commands in the queue wait for ends of instructions that the list reports.
    """

    def __init__(self, *, config: Config):
        self._unit = ActivationUnit(config=config)
        super().__init__(self._unit.signature)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.unit = unit = self._unit
        inner, outer = (part.signature.flatten(part) for part in (unit, self))
        for (_, member, its), (_, _, mine) in zip(inner, outer, strict=True):
            m.d.comb += its.eq(mine) if member.flow is wiring.In else mine.eq(its)
        for mask in ("activate_writing", "operand_writing"):
            m.d.comb += unit.queue.progress[mask].retires.eq(unit.activate_writing.retire)
        return m


@dataclass
class Run:
    """A record of how an instruction goes through the unit.

    It has the cycles of each vector's steps, and whether the job waits for older instructions.
    `first` is the number of lines that the unit writes before the job's first line.
    """

    job: Job
    first: int
    hindered: bool
    offered: int
    awaits: set[int]
    """The numbers of the list entries that the instruction's masks name."""
    writers: list[set[int]]
    """Two sets of the unit's own entries: those with lines that the job reads as source, and those
    with lines that it reads as operands.
    """
    steps: list[list[int]] = field(default_factory=lambda: [[]])
    entries: list[int] = field(default_factory=list[int])
    counts: list[int] = field(default_factory=list[int])

    @property
    def over(self) -> bool:
        """Whether all steps of the instruction are done."""
        return len(self.steps) > len(self.counts)


class _Before(NamedTuple):
    """A state of the lists in an earlier cycle, with the row and the line that this cycle read."""

    lists: dict[str, list[Entry]]
    row: int | None
    line: int | None


class Surroundings(Bench):
    """A bench of the activation unit and its neighbours, with a golden model that runs ahead of it.

    `blocked` is the share of instructions that older instructions block, for each list of
    `blocking`. `busy` is the share of cycles in which accumulators and buffer refuse a read.
    """

    def __init__(
        self,
        dut: Any,
        config: Config,
        chance: random.Random,
        *,
        blocked: float = 0.0,
        busy: float = 0.0,
        blocking: Container[str] = OLDER,
    ):
        super().__init__(dut, ActivationUnit(config=config))
        self.config = config
        self.random = chance
        self.rates = blocked, busy
        self.blocking = blocking
        self.golden = golden = Machine(config)
        data = np.random.default_rng(chance.getrandbits(32))
        golden.buffer[:] = data.integers(-128, 128, golden.buffer.shape)
        golden.buffer[data.random(golden.buffer.shape) < 0.05] = -128
        golden.accumulators[:] = data.integers(-(1 << 17), 1 << 17, golden.accumulators.shape)
        golden.accumulators[data.random(golden.accumulators.shape) < 0.05] = -(1 << 31)
        golden.parameters[:] = self._parameters(data)
        golden.tables[:] = data.integers(-128, 128, golden.tables.shape)
        if config.attention:
            # The first numbers of int32 are below 2^16, so that partitions divide by small sums.
            golden.tables[:LONG_TABLES].reshape(-1, 4)[:, 2:] = 0
        self.memory = [_number(line) for line in golden.buffer]
        self.accumulators = [_number(row.astype("<i4")) for row in golden.accumulators]
        self.now = 0
        self.rows = deque([0] * ROW_LATENCY)
        self.lines = deque([(0, 0)] * LINE_LATENCY)
        """The data that accumulators and buffer return in the next cycles."""
        self.lists = {name: Entries(config.queue_depth) for name in (*OLDER, "activate_writing")}
        self.numbers = itertools.count()
        self.runs: deque[Run] = deque()
        """The runs of instructions with steps that are still to be done."""
        self.turns = config.columns_per_lane
        self.before = deque([_Before({}, None, None)] * self.turns)
        """The states of the lists in the last `turns` cycles, which are the cycles of one step.

        The unit reports a step in the cycle after the step's end.
        """
        self.turn = -1
        """Number of the last cycle within its step, from 0 on; -1 before the first cycle."""
        self.pending: list[tuple[int, int]] = []
        """The lines that instructions are still to write, in order, with their future content."""
        self.written: list[int] = []
        """The cycles in which a line was written."""
        self.announced: list[tuple[int, int, int]] = []
        """For each announcement: its cycle, the line after the announced line, and a flag.

        The flag is set if the announced line is the instruction's last.
        """

    def _parameters(self, data: np.random.Generator) -> Any:
        """Return parameter entries for sums of very different sizes; some are wholly at random."""
        entries, cols = self.config.parameter_entries, self.config.cols
        planes = data.integers(0, 256, (entries, PARAMETER_PLANES, cols), dtype=np.uint8)
        for entry in range(entries):
            if entry % 4 == 3:
                continue
            bias = data.integers(-(1 << 9), 1 << 9, cols)
            multiplier = data.integers(1 << 29, 1 << 32, cols)
            right = data.integers((0, 5, 12)[entry % 4], (3, 10, 20)[entry % 4], cols)
            for place in range(4):
                planes[entry, place] = bias >> 8 * place & 0xFF
                planes[entry, 4 + place] = multiplier >> 8 * place & 0xFF
            planes[entry, 8] = data.integers(0, 2, cols) << 5 | right
        return planes

    async def load(self) -> None:
        """Write the golden model's parameters and tables into the unit through its ports."""
        for entry, planes in enumerate(self.golden.parameters):
            for number, plane in enumerate(planes):
                await self.cycle(
                    parameters__planes=1 << number,
                    parameters__address=entry,
                    parameters__data=_number(plane),
                )
        self.set(parameters__planes=0)
        if self.config.tables:
            for address, value in enumerate(self.golden.tables.ravel()):
                await self.cycle(
                    tables__enable=1, tables__address=address, tables__data=int(value) & 0xFF
                )
            self.set(tables__enable=0)

    async def perform(self, jobs: list[Job], *, idle: tuple[int, ...] = (0,)) -> list[Run]:
        """Offer the jobs' commands until the last vector is issued, with `idle` cycles between
        commands.
        """
        waiting, pause, free = deque(jobs), 0, self.now
        offered: Run | None = None
        runs: list[Run] = []
        for _ in range(20000 + 2000 * len(jobs)):
            room = len(self.lists["activate_writing"]) < self.config.queue_depth
            if offered is None and waiting and not pause and room:
                offered = self._offer(waiting.popleft())
                runs.append(offered)
                offered.hindered |= self.now > free
            await self.step(offered)
            if offered is not None and self.get("queue__pop"):
                offered, pause, free = None, self.random.choice(idle), self.now
            pause = max(0, pause - 1)
            if not waiting and offered is None and not self.runs:
                return runs
        raise AssertionError(f"{self.runs[0].job} does not end")

    def _offer(self, job: Job) -> Run:
        """Put a job into the queue, and return its run with the expected steps and waits."""
        pending = {line for line, _ in self.pending}
        own = self.lists["activate_writing"]
        writers = [
            {e.number for e in own if not lines.isdisjoint(range(e.base, e.end))}
            for lines in (job.reads(), job.operands())
        ]
        entries = [parameter_space(self.config) + entry for entry in sorted(set(job.entries()))]
        reads = job.reads() | job.operands()
        awaits = writers[0] | writers[1]
        run = Run(
            job=job,
            first=len(self.written) + len(self.pending),
            # A job that reads unwritten lines waits for the end of the writing instruction.
            hindered=bool(awaits) or not reads.isdisjoint(pending),
            offered=self.now,
            awaits=awaits,
            writers=writers,
            entries=job.entries(),
            counts=job.steps(self.config),
        )
        lines = job.writes()
        targets = {
            "matrix_summing": [],
            "matrix_reading": [lines],
            "host_writing": [lines],
            "host_reading": [lines, sorted(reads)],
            "loading": [entries],
        }
        if job.opcode == Opcode.ACTIVATE:
            first = job.fields["accumulator"]
            targets["matrix_summing"].append(list(range(first, first + len(run.entries))))
        if job.tables:
            targets["loading"].append([table_space(self.config) + table for table in job.tables])
        for name, choices in targets.items():
            choices = [choice for choice in choices if choice]
            known = self.lists[name]
            if not choices or len(known) == self.config.queue_depth:
                continue
            if name in self.blocking and self.random.random() < self.rates[0]:
                base = self.random.choice(self.random.choice(choices))
                entry = Entry(next(self.numbers), base, base + self.random.randint(1, 4))
                known.take(entry)
                # The job's masks leave out some older instructions, which must not block the job.
                if self.random.random() < 0.7:
                    awaits.add(entry.number)
                    run.hindered = True
        golden = self.golden
        golden.set_config_window(**job.window)
        golden.set_config_scale(**job.scale)
        getattr(golden, job.opcode.name.lower())(**job.fields)
        self.pending += [(line, _number(golden.buffer[line])) for line in lines]
        base, end = (lines[0], lines[-1] + 1) if lines else (0, 0)
        own.take(Entry(next(self.numbers), base, end))
        self.runs.append(run)
        return run

    async def cycle(self, **inputs: Any) -> None:
        """Run one cycle with these inputs, and count the cycles of the present step."""
        await super().cycle(**inputs)
        self.turn = (self.turn + 1) % self.turns

    async def step(self, offered: Run | None = None) -> None:
        """Run one cycle of the unit and its neighbours, with a command on offer or none."""
        random = self.random
        masks = {name: random.getrandbits(5) for name in (*self.lists, "operand_writing")}
        if offered is not None:
            self.set(queue__command=offered.job.command(self.config))
            masks = {name: entries.mask(offered.awaits) for name, entries in self.lists.items()}
            own = self.lists["activate_writing"]
            masks["activate_writing"], masks["operand_writing"] = map(own.mask, offered.writers)
        ends = {name: bool(self.lists[name]) and random.random() < 0.05 for name in OLDER}
        progress = {
            name: entries.progress(retires=ends.get(name, False))
            for name, entries in self.lists.items()
        }
        ready, operands_ready = (random.random() >= self.rates[1] for _ in range(2))
        before, line = self.lines.popleft()
        self.set(accumulators__data=self.rows.popleft(), operands__data=line)
        if self.config.reads_pairs:
            self.set(operands__before=before)
        await self.cycle(
            queue__valid=offered is not None,
            queue__masks=masks,
            queue__progress=progress | {"operand_writing": progress["activate_writing"]},
            accumulators__ready=ready,
            operands__ready=operands_ready,
            buffer__ready=1,
        )
        self._report()
        noise = random.getrandbits
        row = noise(32 * self.config.cols)
        before, line = (noise(8 * self.config.line_bytes) for _ in range(2))
        row_taken = bool(self.get("accumulators__enable") and ready)
        line_taken = bool(self.get("operands__enable") and operands_ready)
        if row_taken:
            row = self.accumulators[self.get("accumulators__address")]
        if line_taken:
            address = self.get("operands__address")
            line = self.memory[address]
            if self.config.reads_pairs and self.get("operands__pair"):
                assert address % 2
                before = self.memory[address - 1]
        self.rows.append(row)
        self.lines.append((before, line))
        self.before.append(
            _Before(
                {name: [replace(entry) for entry in own] for name, own in self.lists.items()},
                self.get("accumulators__address") if row_taken else None,
                self.get("operands__address") if line_taken else None,
            )
        )
        self._writes()
        self._advance(ends)
        self.now += 1

    def _report(self) -> None:
        """Check the unit's reports of the step that ended in the last cycle, and the step's reads.

        A step of several cycles reads in only one of them.
        """
        lists, row, line = self.before[0]
        told = self.gets(
            "activate_reading__advance", "activate_reading__retire", "activate_operands__retire"
        )
        if self.turn:
            self.before.popleft()
            assert not self.get("takes_line") and told == (0, 0, 0)
            return
        for other in list(self.before)[1:]:
            assert row is line is None or other.row is other.line is None
            row, line = (row, line) if row is not None or line is not None else other[1:]
        self.before.popleft()
        reads = row is not None or line is not None
        if not self.runs:
            assert not reads and not self.get("takes_line") and told == (0, 0, 0)
            return
        run = self.runs[0]
        job, vector = run.job, len(run.steps) - 1
        is_reader = job.opcode in READERS
        taken = bool(self.get("takes_line")) if is_reader else reads
        assert taken >= reads and (is_reader or not self.get("takes_line"))
        final = taken and len(run.steps[-1]) + 1 == run.counts[vector]
        last = final and vector + 1 == len(run.counts)
        assert told == (final and not is_reader, last and not is_reader, last and is_reader), job

        def held(name: str, address: int) -> bool:
            return any(entry.number in run.awaits and entry.needs(address) for entry in lists[name])

        if row is not None:
            assert not held("matrix_summing", row)
        if line is not None:
            assert not held("host_reading", line) and not held("activate_writing", line)
        if taken:
            run.steps[-1].append(self.now - self.turns)
        if final:
            run.steps.append([])
            if not is_reader:
                assert row == job.fields["accumulator"] + vector
                self.expect("activate_reading__advance_to", row + 1)
            target = job.destination + vector * (1 + job.wide)
            for name in ("matrix_reading", "host_writing", "host_reading"):
                if job.is_partition:
                    pass
                elif job.wide:
                    assert not any(entry.number in run.awaits for entry in lists[name])
                else:
                    assert not held(name, target)
            assert not held("loading", parameter_space(self.config) + run.entries[vector])
            for table in job.tables:
                assert not held("loading", table_space(self.config) + table)
        if last:
            run.steps.pop()
            self.runs.popleft()

    def _advance(self, ends: dict[str, bool]) -> None:
        """Update the lists of older instructions at the end of the cycle."""
        random = self.random
        for name, end in ends.items():
            entries = self.lists[name]
            if end:
                entries.retire()
            elif entries and random.random() < 0.3:
                oldest = entries[0]
                entries.advance(min(max(oldest.base, oldest.reached) + 1, oldest.end))
        own = self.lists["activate_writing"]
        advances, advance_to, retires = self.gets(
            *(f"activate_writing__{name}" for name in ("advance", "advance_to", "retire"))
        )
        if advances:
            own.advance(advance_to)
            self.announced.append((self.now, advance_to, retires))
        else:  # a partition ends without the announcement of a line
            assert not retires or own[0].base == own[0].end
        if retires:
            own.retire()

    def _writes(self) -> None:
        """Check a line that the unit writes in this cycle: it must be the next pending line."""
        if not self.get("buffer__enable"):
            return
        assert self.pending, f"line {self.get('buffer__address')} is written for nobody"
        place = self.get("buffer__address"), self.get("buffer__data")
        assert place == self.pending.pop(0), self.runs and self.runs[0].job
        self.memory[place[0]] = place[1]
        self.written.append(self.now)

    async def finish(self, jobs: list[Job]) -> None:
        """Wait until all jobs have left their list, and check all announcements."""
        for _ in range(200):
            if not self.pending and not self.lists["activate_writing"]:
                break
            await self.step()
        assert not self.pending, "lines that are never written"
        for _ in range(2 * LATENCY):
            await self.step()
        lines = [(job, line) for job in jobs for line in job.writes()]
        expected = [
            (time - ANNOUNCED, line + 1, line == job.writes()[-1])
            for time, (job, line) in zip(self.written, lines, strict=True)
            if not job.wide or (line - job.destination) % 2
        ]
        assert self.announced == expected


def _number(row: Any) -> int:
    """Return the bytes of a numpy row as one number, the first byte lowest."""
    return int.from_bytes(np.ascontiguousarray(row).tobytes(), "little")
