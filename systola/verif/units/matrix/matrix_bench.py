# SPDX-License-Identifier: Apache-2.0
"""A test bench of the matrix unit between a buffer, a weight FIFO and accumulators.

The expected sums are calculated with numpy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.hdl.commands import MatrixCommand
from systola.hdl.matrix.matrix_unit import MatrixUnit
from systola.hdl.ports import BUFFER_LATENCY
from systola.verif.units.matrix.feature_map import Convolution, some_convolution
from systola.verif.units.parts.walks import walk_of
from systola.verif.units.unit import Bench, chosen_variant, rng, small_config

CONFIGS = {
    "4x6": small_config(cols=6, columns_per_stage=2, accumulator_rows=64),
    "5x3": small_config(rows=5, cols=3, columns_per_stage=3, accumulator_rows=64),
    "3x8": small_config(rows=3, cols=8, columns_per_stage=1, accumulator_rows=64, wide=False),
    "9x4": small_config(rows=9, accumulator_rows=64, host_bus_bytes=16),
}
FEED_LATENCY = 4
"""Cycles from the issue of a vector until it enters the array."""
ARRAY_LAG = 3
"""Cycles by which a hold reaches the array later than the issue of vectors."""
FRONT_LATENCY = 5
"""Cycles from a command to the issue of its first vector."""
BETWEEN_COMMANDS = 1
"""Cycles without an issue between the last vector of a command and the first of the next."""
LINE_LISTS = ("host_reading", "activate_writing")
"""The lists of older instructions that may hold up the read of a buffer line."""
SUMS_LATENCY = 1
"""Cycles from the start of an accumulator row's update to the cycle in which its sums come."""
UPDATE_LATENCY = 2
"""Cycles from the start of an accumulator row's update to its write."""
SUMS_ANNOUNCED = 2
"""Cycles from the announcement of an accumulator row to its write."""


def unit(variant: str | None = None) -> MatrixUnit:
    return MatrixUnit(config=CONFIGS[variant or chosen_variant()])


@dataclass(frozen=True)
class Issue:
    """The issue of a vector: its buffer lines, its accumulator row, and `first`.

    `first` is set for the first vector that meets a weight tile.
    `line` is the line that is read for the vector, or None. `missing` is a line that must be read
    before `line`, or None.
    """

    line: int | None
    missing: int | None
    row: int
    first: bool
    optional: bool = False
    """Whether `line` holds nothing of the map, so that the unit need not read this line."""


@dataclass(frozen=True)
class Instruction:
    """A command, with the vectors that it issues, in order.

    `lines` and `rows` are the buffer lines and accumulator rows that the unit must report as done.
    """

    command: dict[str, Any]
    issues: list[Issue]
    lines: range
    rows: range


class Machine(Bench):
    """A bench of the matrix unit between a buffer, a weight FIFO and accumulators."""

    def __init__(self, dut: Any, name: str):
        super().__init__(dut, unit())
        self.config = config = CONFIGS[chosen_variant()]
        self.latency = FEED_LATENCY + config.rows + config.stages + 2
        self.random = rng("matrix_unit", name, chosen_variant())
        data = np.random.default_rng(self.random.getrandbits(32))
        self.data = data
        self.lines = data.integers(-128, 128, (config.buffer_lines, config.line_bytes))
        self.sums = data.integers(-(1 << 31), 1 << 31, (config.accumulator_rows, config.cols))
        self.expected = self.sums.copy()
        self.fifo = []
        self.oldest = np.zeros(config.cols, int)
        self.tiles = []
        self.shown = deque([0] * BUFFER_LATENCY)
        self.updated = deque([None] * SUMS_LATENCY)
        self.now = 0
        self.array_now = 0
        self.cycles = 0
        self.array_holds = deque([False] * ARRAY_LAG)
        self.holds = 0
        self.takes = 0
        self.swaps = 0
        self.issues = []
        self.primed = False
        self.before = 0
        self.older = {}
        self.older_names = (*LINE_LISTS, "activate_reading")
        self.active = []
        self.summed = []
        self.written = []
        self.events = {"reading": [], "summing": [], "reading_retires": [], "summing_retires": []}

    def tile(self, weight_bytes: int = 1) -> NDArray[Any]:
        """Queue a random weight tile, and return its weights; weights of int16 are two tiles."""
        shape = weight_bytes, self.config.rows, self.config.cols
        halves = self.data.integers(-128, 128, shape)
        for half in halves:
            self.tiles.extend(half)
        return halves[0] if weight_bytes == 1 else halves[0] % 256 + 256 * halves[1]

    def multiply(
        self,
        *,
        buffer: int,
        accumulator: int,
        rows: int,
        k_tiles: int,
        n_tiles: int,
        accumulate: int = 0,
        wide_vectors: int = 0,
        wide_weights: int = 0,
    ) -> Instruction:
        """Make a MatrixMultiply: queue its tiles, and calculate its effect on the accumulators."""
        halves = 1 + wide_vectors
        issues = []
        for n in range(n_tiles):
            first_row = accumulator + n * rows
            target = self.expected[first_row : first_row + rows]
            for k in range(k_tiles):
                first = buffer + halves * k * rows
                lines = self.lines[first : first + halves * rows, : self.config.rows]
                x = lines[::2] % 256 + 256 * lines[1::2] if wide_vectors else lines
                if k == 0 and not accumulate:
                    target[:] = 0
                target += x @ self.tile(1 + wide_weights)
                for _, m, half in product(range(1 + wide_weights), range(rows), range(halves)):
                    line = first + halves * m + half
                    issues.append(Issue(line, None, first_row + m, m == half == 0))
        command = {
            "walk": walk_of(
                start={"line": buffer},
                count={
                    "ox": halves,
                    "oy": rows,
                    "block": 1 + wide_weights,
                    "kx": k_tiles,
                    "ky": 1,
                    "n": n_tiles,
                },
                step={
                    "ox": {"line": 1},
                    "oy": {"line": halves},
                    "kx": {"line": halves * rows},
                },
            ),
            "accumulator": accumulator,
            "accumulate": accumulate,
            "wide_vectors": wide_vectors,
            "wide_weights": wide_weights,
            "sequential": 1,
            "fill": 99,
        }
        return Instruction(
            command,
            issues,
            range(buffer, buffer + halves * rows * k_tiles),
            range(accumulator, accumulator + rows * n_tiles),
        )

    def convolve(
        self, convolution: Convolution, *, accumulator: int, n_tiles: int, accumulate: int = 0
    ) -> Instruction:
        """Make a Convolve: queue its tiles, and calculate its effect on the accumulators."""
        window = convolution.window
        windows = window.out_height * window.out_width
        issues = []
        for n in range(n_tiles):
            first_row = accumulator + n * windows
            target = self.expected[first_row : first_row + windows]
            if not accumulate:
                target[:] = 0
            for step in convolution.steps():
                vectors = list(convolution.vectors(self.lines, *step))
                target += np.array([vector.values for vector in vectors]) @ self.tile()
                for index, v in enumerate(vectors):
                    row = first_row + index
                    issues.append(Issue(v.line, v.missing, row, index == 0, v.optional))
        command = {
            **convolution.command(),
            "walk": convolution.walk(n_tiles),
            "accumulator": accumulator,
            "accumulate": accumulate,
        }
        done = range(accumulator, accumulator + windows * n_tiles)
        return Instruction(command, issues, range(0), done)

    async def step(self, arrive: int = 1, advance: float = 0.0) -> None:
        """Run one cycle of the unit and its neighbours, and check its outputs.

        Up to `arrive` rows of weights come into the FIFO. Each of the older instructions that block
        the unit advances with the chance `advance`. `now` counts the cycles in which the issue is
        not held. The issue must be held if a tile was swapped in before its last row came, and the
        tile's next row is missing. An issue is visible one cycle later. `array_now` counts the
        cycles in which the array is not held. The array lags by ARRAY_LAG cycles.
        """
        oldest = self.fifo[0] if self.fifo else np.zeros(self.config.cols, int)
        weights, self.oldest = self.oldest, oldest
        await self.cycle(
            queue__masks={
                name: {"pending": name in self.older, "place": 1} for name in self.older_names
            },
            queue__progress={
                name: {"place": 1, "reached": self.older.get(name, {"base": 0})["base"]}
                for name in self.older_names
            },
            buffer__ready=1,
            buffer__data=self.shown.popleft(),
            weight_rows__row=int.from_bytes(weights.astype(np.int8).tobytes(), "little"),
            weight_rows__valid=bool(self.fifo),
        )
        active, enable = self.gets("active", "buffer__enable")
        if self.issues:
            self.check_turn(active, enable)
        else:
            assert not active and not enable
        held = bool(
            self.takes % self.config.rows
            and self.swaps > self.takes // self.config.rows
            and not self.fifo
        )
        self.holds += held
        assert not (self.array_holds[-1] and (active or enable)), "issued while held"
        assert self.array_holds[-1] <= self.get("awaiting_weights")
        self.array_holds.append(held)
        array_held = self.array_holds.popleft()
        if self.get("weight_rows__pop"):
            assert self.fifo, "takes weights from an empty FIFO"
            self.fifo.pop(0)
            self.takes += 1
        self.fill(arrive)
        if enable:
            line = self.lines[self.get("buffer__address")]
            self.shown.append(int.from_bytes(line.astype(np.int8).tobytes(), "little"))
        else:
            self.shown.append(self.random.getrandbits(8 * self.config.line_bytes))
        self.check_sums()

        for name in ("reading", "summing"):
            if self.get(f"matrix_{name}__advance"):
                self.events[name].append(self.get(f"matrix_{name}__advance_to"))
            if self.get(f"matrix_{name}__retire"):
                self.events[f"{name}_retires"].append(self.cycles)
        for region in self.older.values():
            region["base"] += region["base"] < region["end"] and self.random.random() < advance
        self.before = self.now
        self.now += not held
        self.array_now += not array_held
        self.cycles += 1

    def blocked(self, name: str, address: int) -> bool:
        """Return whether an older instruction in list `name` blocks an address."""
        region = self.older.get(name, {"base": 0, "end": 0})
        return region["base"] <= address < region["end"]

    def check_turn(self, active: int, enable: int) -> None:
        """Check whether and how the unit reads a line and issues the next vector in this cycle."""
        turn = self.issues[0]
        primes = turn.missing is not None and not self.primed
        if enable:
            line = turn.missing if primes else turn.line
            # A line that need not be read may lie beyond the end of the buffer.
            address = self.get("buffer__address")
            assert turn.optional or address == line % self.config.buffer_lines
            assert not any(self.blocked(name, address) for name in LINE_LISTS), "a blocked line"
        if primes:
            assert not active, "the line before is missing"
            self.primed = bool(enable)
        elif not turn.optional:
            assert enable == (active and turn.line is not None)
        if active:
            assert not self.blocked("activate_reading", turn.row), "a blocked row"
            self.swaps += turn.first
            self.issues.pop(0)
            self.primed = False
            self.active.append(self.before)

    def check_sums(self) -> None:
        """Check the sums for the row of which the update began SUMS_LATENCY cycles before."""
        due = self.updated.popleft()
        if due is not None:
            row, accumulate, shift = due
            raw = self.get("update__sums").to_bytes(4 * self.config.cols, "little")
            sums = np.frombuffer(raw, "<i4").astype(np.int64) << (8 * shift)
            self.sums[row] = self.sums[row] + sums if accumulate else sums
            self.summed.append(self.array_now)
            self.written.append(self.cycles + UPDATE_LATENCY - SUMS_LATENCY)
        enable, *new = self.gets(
            *(f"update__{name}" for name in ("enable", "address", "adds", "shift"))
        )
        new = new if enable else None
        self.updated.append(new)

    def fill(self, rows: int = 1000) -> None:
        """Move up to `rows` rows of weights into the FIFO, as far as there is room."""
        room = self.config.weight_fifo_tiles * self.config.rows - len(self.fifo)
        for _ in range(min(rows, room, len(self.tiles))):
            self.fifo.append(self.tiles.pop(0))

    def some_multiply(self) -> Instruction:
        """Make a random MatrixMultiply, with its tiles and its effect."""
        rows, k_tiles = self.random.choice((1, 2, 5, 9)), self.random.choice((1, 1, 2, 3))
        n_tiles = self.random.choice((1, 1, 2, 3))
        wide_vectors, wide_weights = (
            self.random.getrandbits(1) * self.config.wide for _ in range(2)
        )
        lines = rows * k_tiles * (1 + wide_vectors)
        return self.multiply(
            buffer=self.random.randint(0, self.config.buffer_lines - lines),
            accumulator=self.random.randint(0, self.config.accumulator_rows - rows * n_tiles),
            rows=rows,
            k_tiles=k_tiles,
            n_tiles=n_tiles,
            accumulate=self.random.getrandbits(1),
            wide_vectors=wide_vectors,
            wide_weights=wide_weights,
        )

    def some_convolve(self) -> Instruction:
        """Make a random Convolve, with its tiles and its effect."""
        n_tiles = self.random.choice((1, 1, 2))
        convolution = some_convolution(
            self.random,
            rows=self.config.rows,
            lines=self.config.buffer_lines,
            packed=self.random.random() < 0.6,
            vectors=12,
        )
        windows = convolution.window.out_height * convolution.window.out_width
        return self.convolve(
            convolution,
            accumulator=self.random.randint(0, self.config.accumulator_rows - windows * n_tiles),
            n_tiles=n_tiles,
            accumulate=self.random.getrandbits(1),
        )

    def some(self) -> Instruction:
        """Make a random MatrixMultiply or Convolve, with its tiles and its effect."""
        return self.some_multiply() if self.random.random() < 0.5 else self.some_convolve()

    async def run(
        self,
        instruction: Instruction,
        arrive: Callable[[], int] = lambda: 1,
        advance: float = 1.0,
        older: Iterable[str] = (),
    ) -> None:
        """Offer an instruction's command until the unit pops it, then drive noise instead.

        Each list in `older` gets an older instruction, which at first blocks all addresses of the
        command.
        """
        self.older = {}
        for name in older:
            addresses = [
                i.row if name == "activate_reading" else i.line for i in instruction.issues
            ]
            used = [address for address in addresses if address is not None] or [0]
            self.older[name] = {"base": 0, "end": max(used) + 1}
        self.issues += instruction.issues
        self.set(queue__command=instruction.command, queue__valid=1)
        for _ in range(20000):
            await self.step(arrive(), advance)
            if self.get("queue__pop"):
                break
        else:
            raise AssertionError("the command does not end")
        noise = self.random.getrandbits(MatrixCommand(config=self.config).size)
        self.set(queue__valid=0, queue__command=noise)

    async def drain(self, arrive: Callable[[], int] = lambda: 1, advance: float = 1.0) -> None:
        """Wait until all vectors of the commands are issued."""
        for _ in range(20000):
            if not self.issues:
                return
            await self.step(arrive(), advance)
        raise AssertionError("vectors that are never issued")

    async def finish(self, instructions: Sequence[Instruction]) -> None:
        """Wait for the last sums; check the accumulators, the unit's reports, and all cycles."""
        await self.drain()
        end = self.now + 2 * ARRAY_LAG + self.latency
        while self.array_now < end:
            await self.step()
        for _ in range(UPDATE_LATENCY):
            await self.step()
        wrong = (self.sums - self.expected) % (1 << 32)
        assert not wrong.any(), f"rows {np.flatnonzero(wrong.any(axis=1))}"
        assert self.summed == [cycle + 1 + self.latency for cycle in self.active]
        assert self.events["reading"] == [line + 1 for i in instructions for line in i.lines]
        assert self.events["summing"] == [row + 1 for i in instructions for row in i.rows]
        assert len(self.events["reading_retires"]) == len(instructions)
        last = np.cumsum([len(i.issues) for i in instructions]) - 1
        assert self.events["summing_retires"] == [
            self.written[place] - SUMS_ANNOUNCED for place in last
        ]
