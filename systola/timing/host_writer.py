# SPDX-License-Identifier: Apache-2.0
"""A model of writes from the buffer into host memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from systola.arch.config import Config
from systola.hdl.ports import BUFFER_LATENCY
from systola.hdl.transfers.host_writer import LINES_AHEAD, WRITES_IN_FLIGHT
from systola.timing.copies import copy_of
from systola.timing.memory_speed import MemorySpeed
from systola.timing.recent import recent
from systola.timing.regions import Regions, last_overlap, paced
from systola.timing.span import Span

BEGUN = 4
"""Cycles from the command to the read of its first line, if no older instruction holds the line."""
FOLLOWS = 3
"""Cycles from the announcement of a line by its writer to the line's read."""
SENT = BUFFER_LATENCY + 2
"""Cycles from the read of a line to the line's first beat on the bus."""
ANSWERED = 1
"""Cycles from the answer to the last burst to the end of the instruction."""


class HostWriter:
    """A model of the writer, which does one instruction at a time, line by line.

    An instruction ends after the answer to its last burst.
    """

    def __init__(self, config: Config, regions: Regions, memory: MemorySpeed) -> None:
        self._config = config
        self._regions = regions
        self._memory = memory
        self._free = 0.0

    def write(self, operands: Mapping[str, int], issued: float, alternate: bool) -> Span:
        """Return the span of a Write_Host_Memory or Write_Host_Memory_Alternate."""
        config, space, answer = self._config, self._regions.buffer, self._memory.answer
        copy = copy_of(config, operands, config.output_pitch, alternate)
        place = slice(operands["buffer"], operands["buffer"] + copy.lines)
        reading = last_overlap(self._regions.host_reads, copy.first, copy.end)
        start = max(issued, self._free) + 1 + BEGUN
        # A burst is sent only after the answer to the burst WRITES_IN_FLIGHT bursts earlier.
        burst = copy.beats / copy.bursts
        beat = max(self._memory.beat, (answer + burst) / (WRITES_IN_FLIGHT * burst))
        line = copy.beats // copy.lines * beat
        offsets = line * np.arange(copy.lines, dtype=np.float64)
        needed = space.written[place] + FOLLOWS
        sent = paced(start + SENT, offsets, np.maximum(needed, reading + 1) + SENT)
        # A line is read at the earliest when the line LINES_AHEAD lines before it is sent.
        ahead = np.full(copy.lines, float(start))
        ahead[LINES_AHEAD:] = sent[:-LINES_AHEAD]
        read = np.minimum(np.maximum(ahead, needed), sent - SENT)
        last = float(sent[-1]) + (copy.beats // copy.lines - 1) * beat
        end = last + answer + ANSWERED
        space.read[place] = np.maximum(space.read[place], np.maximum.accumulate(read))
        space.used[place] = np.maximum(space.used[place], end)
        self._free = end
        self._regions.host_writes[:] = [
            *self._regions.host_writes[-config.queue_depth + 1 :],
            (copy.first, copy.end, end),
        ]
        return Span(float(sent[0]) - SENT, last, end, copy.beats * beat, copy.beats)

    def state(self, now: float) -> float:
        """Return the state with times relative to cycle `now`."""
        return recent(self._free, now)

    def resume(self, state: float, now: float) -> None:
        """Restore `state`, so that its relative times count from cycle `now`."""
        self._free = now + state
