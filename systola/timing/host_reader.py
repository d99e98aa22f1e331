# SPDX-License-Identifier: Apache-2.0
"""A model of reads from host memory into buffer, parameters and tables."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from systola.arch.config import Config
from systola.arch.isa import PARAMETER_PLANES, TABLE_BYTES
from systola.timing.bank_conflicts import yielding_writes
from systola.timing.copies import Copy, copy_of
from systola.timing.host_read_port import HostReadPort
from systola.timing.recent import recent
from systola.timing.regions import Regions, Space, Times, last_overlap
from systola.timing.span import Span

WRITTEN = 2
"""Cycles from the last beat of a line to the write of the line."""
DONE = 2
"""Cycles from the last write to the end of the instruction."""

ReaderState = tuple[float, tuple[tuple[Space, int, int, bytes, float], ...]]
"""Type of the state of a HostReader: the cycle in which it is free, and its last instructions.

Each instruction has its memory, the first and the end address that it fills there, the times of its
writes, and the `distance` of _Fetched.
"""


@dataclass
class _Fetched:
    """An instruction that fills addresses of a memory, with the times of its writes."""

    space: Space
    place: slice
    times: Times
    """Cycle of the write to each address that the instruction fills."""
    distance: float
    """Least number of cycles between the last write of the instruction before and the first write
    of this instruction.
    """


class HostReader:
    """A model of the unit that reads from host memory for one instruction after another."""

    def __init__(self, config: Config, regions: Regions, port: HostReadPort) -> None:
        self._config = config
        self._regions = regions
        self._port = port
        self._free = 0.0
        self._recent: deque[_Fetched] = deque(maxlen=config.queue_depth)

    def read(self, operands: Mapping[str, int], issued: float, alternate: bool) -> Span:
        """Return the span of a Read_Host_Memory, or of a Read_Host_Memory_Alternate."""
        copy = copy_of(self._config, operands, self._config.input_pitch, alternate)
        first = operands["buffer"]
        lines = slice(first, first + copy.lines)
        beats = self._config.input_pitch // self._config.host_bus_bytes
        return self._fetch(copy, self._regions.buffer, lines, beats, 1, issued)

    def load_parameters(self, operands: Mapping[str, int], issued: float) -> Span:
        """Return the span of a Load_Parameters."""
        config = self._config
        count = operands["count"]
        beats = PARAMETER_PLANES * (config.output_pitch // config.host_bus_bytes)
        copy = Copy.linear(config, operands["host"], count, count * beats)
        entries = slice(operands["parameter"], operands["parameter"] + count)
        return self._fetch(copy, self._regions.parameters, entries, beats, 1, issued)

    def load_table(self, operands: Mapping[str, int], issued: float) -> Span:
        """Return the span of a Load_Table, which takes a byte in each cycle."""
        bus = self._config.host_bus_bytes
        copy = Copy.linear(self._config, operands["host"], 1, TABLE_BYTES // bus)
        number = operands["table"]
        here = slice(number, number + 1)
        return self._fetch(copy, self._regions.tables, here, copy.beats, bus, issued)

    def _fetch(
        self, copy: Copy, space: Space, place: slice, beats: int, pace: int, issued: float
    ) -> Span:
        """Fill the addresses `place` of the memory `space`, and return the span of the transfer.

        Each address takes `beats` beats. A beat takes `pace` cycles at best.
        """
        written = last_overlap(self._regions.host_writes, copy.first, copy.end)
        used = np.maximum(space.used[place], space.activated[place])
        begin = max(issued, float(used.max()), written, self._free) + 1
        transfer = self._port.data(begin, copy.beats, copy.bursts, pace)
        self._free = transfer.asked
        steps = transfer.beat * (beats * np.arange(1, copy.lines + 1, dtype=np.float64) - 1)
        times = transfer.first + steps + pace - 1 + WRITTEN
        end = float(times[-1]) + DONE
        space.written[place] = space.filled[place] = times
        self._recent.append(_Fetched(space, place, times, float(steps[0]) + pace))
        self._regions.host_reads[:] = [
            *self._regions.host_reads[-self._config.queue_depth + 1 :],
            (copy.first, copy.end, end),
        ]
        return Span(transfer.first, transfer.end, end, copy.beats * transfer.beat, copy.beats)

    def yield_to(self, writes: Times, line: int) -> list[float] | None:
        """Delay writes that meet writes of the activation unit in a bank of the buffer.

        The activation unit goes first, and writes lines from `line` on in the cycles `writes`. A
        line that waits holds up all lines after it. Returns the new ends of the last instructions,
        or None if nothing changes.
        """
        if not self._recent or self._recent[-1].times[-1] < writes[0]:
            return None
        late = before = 0.0
        for fetched in self._recent:
            times = fetched.times + max(0.0, before + fetched.distance - fetched.times[0])
            if fetched.space is self._regions.buffer:
                banks = self._config.buffer_banks
                times = yielding_writes(times, fetched.place.start, writes, line, banks)
            late = float(times[-1] - fetched.times[-1])
            before = float(times[-1])
            if late:
                fetched.space.written[fetched.place] = times
                fetched.space.filled[fetched.place] = times
                fetched.times = times
        self._port.hold_up(late)
        return [float(fetched.times[-1]) + DONE for fetched in self._recent]

    def state(self, now: float) -> ReaderState:
        """Return the state with times relative to cycle `now`.

        Older instructions are left out if a later one has already written all its data.
        """
        written = sum(fetched.times[-1] < now for fetched in self._recent)
        return recent(self._free, now), tuple(
            (
                fetched.space,
                fetched.place.start,
                fetched.place.stop,
                (fetched.times - now).tobytes(),
                fetched.distance,
            )
            for fetched in islice(self._recent, max(0, written - 1), None)
        )

    def resume(self, state: ReaderState, now: float) -> None:
        """Restore `state`, so that its relative times count from cycle `now`."""
        free, fetched = state
        self._free = now + free
        self._recent.clear()
        for space, start, stop, times, distance in fetched:
            here = now + np.frombuffer(times)
            self._recent.append(_Fetched(space, slice(start, stop), here, distance))
