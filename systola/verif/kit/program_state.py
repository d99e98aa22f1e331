# SPDX-License-Identifier: Apache-2.0
"""The state of a random program while it is being written, and the rules that follow from it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from systola.arch.config import Config
from systola.arch.isa import BY_OPCODE, REGISTERS, WEIGHT_READS_IN_FLIGHT, Opcode, encode
from systola.golden.window import Window
from systola.verif.kit.random_windows import pixel_window

TILES = 24
ATTEMPTS = 20
"""The number of random values that a writer tries, before it gives up the search for a legal value.
"""
_RECENT = 6


@dataclass(frozen=True)
class Span:
    """A range of a memory, counted in lines, rows, entries, tiles or bytes."""

    start: int
    size: int


@dataclass(frozen=True)
class Spans:
    """A record of the ranges of each memory that a random program uses."""

    lines: Span
    accumulators: Span
    entries: Span
    shared: Span
    """The host bytes that programs both read and write."""
    parameters: Span
    """The host bytes that hold well-formed parameter entries."""
    tables: Span
    """The host bytes that hold tables."""
    window: int
    """The size of the host window in bytes."""


@dataclass(frozen=True)
class Region:
    """A region of `size` cells that an operand names.

    `operands` has the values of the operand's fields. `starts` has the region's first cell at each
    execution of the instruction.
    """

    span: Span
    operands: dict[str, int]
    starts: tuple[int, ...]
    size: int

    def apart(self, other: Region) -> bool:
        """Return whether this region and `other` are disjoint in every execution."""
        return all(
            a + self.size <= b or b + other.size <= a
            for a, b in zip(self.starts, other.starts, strict=True)
        )

    def named(self, name: str, new: str) -> Region:
        """Return this region for operand `new`, which replaces `name` in the fields' names."""
        operands = {key.replace(name, new, 1): value for key, value in self.operands.items()}
        return Region(self.span, operands, self.starts, self.size)


@dataclass(frozen=True)
class Outside:
    """A state of weight queue and window before a loop, which each pass of the loop must find."""

    queued: tuple[int, ...]
    window: Window | None
    window_fixed: bool


@dataclass
class ProgramState:
    """A writer of instructions that knows the weight queue, the window and the index registers."""

    config: Config
    rng: random.Random
    spans: Spans
    words: list[bytes] = field(default_factory=list[bytes])
    registers: list[tuple[int, ...]] = field(default_factory=lambda: [(0,) * REGISTERS])
    """The values of the index registers at the present place, for each time that it is executed."""
    queued: deque[int] = field(default_factory=deque[int])
    """The number of tiles not yet consumed of each Read_Weights, oldest first."""
    window: Window | None = None
    """The present window; None if none has been set, or if passes of a loop may differ in it."""
    window_fixed: bool = False
    """Whether the present loop uses the window that was set before it."""
    outside: list[Outside] = field(default_factory=list[Outside])
    recent: dict[Span, deque[Region]] = field(default_factory=dict[Span, deque["Region"]])
    """The regions of the last few instructions in each range of a memory."""

    @property
    def machine(self) -> dict[str, int]:
        """The operands with which Require_Machine accepts a machine of this configuration."""
        return {
            "rows": self.config.rows,
            "columns": self.config.cols,
            "host_bus": self.config.host_bus_bytes,
            "weight_bus": self.config.weight_bus_bytes,
        }

    def emit(self, opcode: Opcode, *regions: Region, **operands: int) -> None:
        """Write an instruction with the operands of `regions` and the further `operands`."""
        for region in regions:
            operands |= region.operands
            self.recent.setdefault(region.span, deque(maxlen=_RECENT)).append(region)
        self.words.append(encode(opcode, **operands))

    def region(self, opcode: Opcode, name: str, span: Span, size: int, *, unit: int = 1) -> Region:
        """Return a random region of `size` cells within the span, often with an index register.

        The region starts at a multiple of `unit` from the start of the span. Often it is near the
        region of a recent instruction, or at an end of the span.
        """
        entry = BY_OPCODE[opcode]
        modulus = 1 << entry.field(name).width
        choices = [0]
        if any(other.indexes == name for other in entry.fields):
            choices = [r for r in range(REGISTERS) if self._usable(r, modulus, span, size, unit)]
        moving = [r for r in choices if any(self.offsets(r, modulus))]
        register = self.rng.choice((moving or choices) if self.rng.random() < 0.6 else choices)
        offsets = self.offsets(register, modulus)
        spread = max(offsets) - min(offsets)
        last = (span.size - size - spread) // unit
        if span in self.recent and self.rng.random() < 0.5:
            other = self.rng.choice(self.recent[span])
            first, end = min(other.starts), max(other.starts) + other.size
            near = self.rng.choice((first, self.rng.randint(first - size + 1, end - 1)))
            lowest = span.start + unit * min(last, max(0, (near - span.start) // unit))
        else:
            place = self.rng.choice((0, last, *(self.rng.randint(0, last) for _ in range(4))))
            lowest = span.start + unit * place
        starts = tuple(lowest - min(offsets) + offset for offset in offsets)
        operands = {name: (starts[0] - self.registers[0][register]) % modulus}
        if register:
            operands[f"{name}_register"] = register
        return Region(span, operands, starts, size)

    def offsets(self, register: int, modulus: int) -> list[int]:
        """Return a register's change since the first execution of the present place.

        There is a change for each execution of the place, modulo `modulus`, from -modulus/2 on.
        """
        first = self.registers[0][register]
        half = modulus // 2
        return [(values[register] - first + half) % modulus - half for values in self.registers]

    def _usable(self, register: int, modulus: int, span: Span, size: int, unit: int) -> bool:
        offsets = self.offsets(register, modulus)
        fits = max(offsets) - min(offsets) + size <= span.size
        return fits and not any(offset % unit for offset in offsets)

    def rows(self, limit: int) -> int:
        """Return a random number of rows, which is small if the present place is executed often."""
        if len(self.registers) > 3:
            limit = min(limit, 3)
        return self.rng.choice((1, 1, min(2, limit), self.rng.randint(1, limit), min(limit, 8)))

    def number(self, low: int, high: int) -> int:
        """Return a random number from `low` to `high`, often `low`, `high` or zero."""
        corners = [value for value in (low, 0, high) if low <= value <= high]
        if self.rng.random() < 0.15:
            return self.rng.choice(corners)
        return self.rng.randint(low, high)

    def queue_weights(self, count: int) -> None:
        """Write a Read_Weights of `count` tiles, and note them in the model of the weight queue."""
        self.queued.append(count)
        where = self.region(Opcode.READ_WEIGHTS, "tile", Span(0, TILES), count)
        self.emit(Opcode.READ_WEIGHTS, where, count=count)

    def consume(self, tiles: int) -> None:
        """Remove tiles from the model of the weight queue, oldest first."""
        while tiles:
            used = min(tiles, self.queued[0])
            tiles -= used
            self.queued[0] -= used
            if not self.queued[0]:
                self.queued.popleft()

    def multiply(
        self, k_tiles: int, n_tiles: int, rows: int, wide_vectors: int = 0, wide_weights: int = 0
    ) -> None:
        """Write a MatrixMultiply of this size at random lines and rows.

        The tiles of the instruction leave the model of the weight queue.
        """
        self.consume(k_tiles * n_tiles << wide_weights)
        opcode, spans = Opcode.MATRIX_MULTIPLY, self.spans
        lines = rows * k_tiles << wide_vectors
        self.emit(
            opcode,
            self.region(opcode, "buffer", spans.lines, lines),
            self.region(opcode, "accumulator", spans.accumulators, rows * n_tiles),
            rows=rows,
            k_tiles=k_tiles,
            n_tiles=n_tiles,
            accumulate=self.rng.randrange(2),
            wide_vectors=wide_vectors,
            wide_weights=wide_weights,
        )

    def supply(self, tiles: int) -> bool:
        """Queue weight tiles until there are `tiles`; return False if the queue has no room."""
        missing = tiles - sum(self.queued)
        if missing > 0 and len(self.queued) == WEIGHT_READS_IN_FLIGHT:
            return False
        while missing > 0:
            count = missing
            if len(self.queued) < WEIGHT_READS_IN_FLIGHT - 1:
                count = self.rng.randint(1, missing)
            self.queue_weights(count)
            missing -= count
        return True

    def some_window(
        self, draw: Callable[[], Window], fits: Callable[[Window], bool], windows: int
    ) -> Window | None:
        """Return the present window, or set and return a new one, with at most `windows` results.

        The window also satisfies `fits`. The result is None if there is no such window.
        """

        def suits(window: Window) -> bool:
            small = window.windows <= windows and window.map_lines <= self.spans.lines.size
            return small and fits(window)

        if self.window and suits(self.window) and (self.window_fixed or self.rng.random() < 0.6):
            return self.window
        if self.window_fixed:
            return None
        for _ in range(ATTEMPTS):
            window = draw()
            if suits(window):
                if self.rng.random() < 0.1:
                    self.emit(Opcode.SET_CONFIG_WINDOW, **vars(pixel_window(self.rng)))
                self.set_window(window)
                return window
        return None

    def set_window(self, window: Window) -> None:
        """Write a Set_Config_Window for this window."""
        self.window = window
        self.emit(Opcode.SET_CONFIG_WINDOW, **vars(window))

    def enter_loop(self) -> None:
        """Store the state of weight queue and window that each pass of the new loop must find."""
        self.outside.append(Outside(tuple(self.queued), self.window, self.window_fixed))
        if self.window and self.rng.random() < 0.5:
            self.window_fixed = True
        if not self.window_fixed:
            self.window = None

    def leave_loop(self) -> None:
        """Write instructions that leave the weight queue as the loop has found it, and end the
        loop.
        """
        outside = self.outside.pop()
        if tuple(self.queued) != outside.queued:
            if self.queued:
                tiles = sum(self.queued)
                self.multiply(*self.rng.choice(((1, tiles), (tiles, 1))), rows=1)
            for count in outside.queued:
                self.queue_weights(count)
        self.window = self.window or outside.window
        self.window_fixed = outside.window_fixed
