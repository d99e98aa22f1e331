# SPDX-License-Identifier: Apache-2.0
"""A model of weight tiles on their way from memory or the buffer, through a FIFO, to the array.

The tiles go into shadow registers of the array, and from there into use.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from systola.arch.config import Config
from systola.hdl.ports import BUFFER_LATENCY
from systola.hdl.transfers.weight_fetch import READS_IN_FLIGHT, ROW_LATENCY
from systola.timing.memory_speed import MemorySpeed
from systola.timing.recent import FORGOTTEN

ASK = 1
"""Cycles from a request of the unit until the request shows on the bus."""
REQUEST = 2 + ASK
"""Cycles from the issue of a Read_Weights, through its queue, to its first request on the bus."""


BUFFERED = 2
"""Cycles from the issue of a MatrixMultiply to the read of its first row of weights."""

WeightState = tuple[
    tuple[float, float, float], tuple[float, ...], tuple[tuple[float, int, float, float], ...]
]
"""Type of the state of a WeightFetch.

In this order: `_free`, `_loaded` and `_swapped`, the cycles in which the last tiles left the FIFO,
and the fields of the queued commands.
"""


@dataclass
class _Command:
    """A command for successive tiles, all from weight memory or all from the buffer."""

    first: float
    """First cycle in which the first beat can come, or the first row can be read."""
    left: int
    row: float
    """Cycles from one row of a tile to the next."""
    delay: float
    """Cycles from the first beat of a row, or its buffer read, until the row leaves the FIFO."""


class WeightFetch:
    """A model of the weight fetch: tiles in the order of the program.

    The arrival of a tile is calculated when the tile is wanted. It depends on the cycles in which
    earlier tiles left the FIFO.
    """

    def __init__(self, config: Config, memory: MemorySpeed) -> None:
        self._rows = config.rows
        self._stages = config.stages
        self._answer = memory.answer
        self._row_beats = config.weight_row_pitch // config.weight_bus_bytes
        numerator, denominator = config.weight_throttle
        burst = min(config.max_burst_beats, config.tile_bytes // config.weight_bus_bytes)
        self._beat = max(
            memory.beat,
            denominator / numerator,
            (ASK + self._answer + burst) / (READS_IN_FLIGHT * burst),
        )
        self._queue: deque[_Command] = deque()
        self._free = 0.0  # no beat comes before this cycle
        self._begun = deque([0.0] * config.weight_fifo_tiles, maxlen=config.weight_fifo_tiles)
        self._loaded = 0.0  # cycle in which the last row of a tile entered its shadow registers
        self._swapped = -float(self._stages + 1)
        self.tiles = 0
        """Number of tiles consumed so far."""
        self.row_interval = self._row_beats * self._beat
        """Cycles from one row of a tile to the next, over the weight port."""

    @property
    def tile_cycles(self) -> float:
        """Cycles that the port takes for a tile."""
        return self._rows * self.row_interval

    def read(self, issued: float, count: int) -> None:
        """Note a Read_Weights of `count` tiles."""
        delay = (self._row_beats - 1) * self._beat + ROW_LATENCY
        first = issued + REQUEST + self._answer
        self._queue.append(_Command(first, count, self.row_interval, delay))

    def read_buffer(self, issued: float, written: float, count: int) -> None:
        """Note the tiles of a MatrixMultiply with weights from the buffer.

        All lines of these tiles can be read from cycle `written` on.
        """
        first = max(issued, written) + BUFFERED
        self._queue.append(_Command(first, count, 1.0, BUFFER_LATENCY + ROW_LATENCY))

    def next_tile(self) -> tuple[float, float]:
        """Return the cycles in which the next tile's first and last row enter the shadow registers.

        The cycles depend on the port, and on the time that the array needs to take the tile before.
        """
        command = self._queue[0]
        first = max(self._free, command.first, self._begun[0] + 1)
        command.left -= 1
        self.tiles += 1
        if not command.left:
            self._queue.popleft()
        self._free = first + self._rows * command.row
        arrived = first + command.delay
        begun = max(arrived, self._loaded + 1, self._swapped + self._stages + 1)
        last = arrived + (self._rows - 1) * command.row
        self._loaded = max(begun + self._rows - 1, last)
        self._begun.append(begun)
        return begun, self._loaded

    def swap(self, time: float) -> None:
        """Note that the first vector of the tile last returned by next_tile is issued at `time`."""
        self._swapped = time

    def state(self, now: float) -> WeightState:
        """Return the state with times relative to cycle `now`.

        While commands wait in the queue, even old times matter, since tiles of the queue may have
        arrived long ago.
        """
        since = now - FORGOTTEN - self._stages
        if self._queue:
            since = -np.inf
        free, loaded, swapped, *begun = (
            max(time, since) - now
            for time in (self._free, self._loaded, self._swapped, *self._begun)
        )
        return (
            (free, loaded, swapped),
            tuple(begun),
            tuple((each.first - now, each.left, each.row, each.delay) for each in self._queue),
        )

    def resume(self, state: WeightState, now: float) -> None:
        """Restore `state`, so that its relative times count from cycle `now`."""
        times, begun, queue = state
        self._free, self._loaded, self._swapped = (now + time for time in times)
        self._begun.extend(now + time for time in begun)
        self._queue.clear()
        self._queue.extend(
            _Command(now + first, left, row, delay) for first, left, row, delay in queue
        )

    @property
    def streamed(self) -> float:
        """Cycle in which the last beat of all tiles that the array has asked for so far has
        arrived.
        """
        return self._free
