# SPDX-License-Identifier: Apache-2.0
"""Instruction fetch, the scalar unit's jumps, and the two stages of the decoder."""

from __future__ import annotations

from collections import deque

import numpy as np

from systola.arch.config import Config
from systola.arch.isa import INSTRUCTION_BYTES
from systola.hdl.fetch import fetch_chunk_bytes, fetched_ahead
from systola.timing.host_read_port import HostReadPort

FIRST_REQUEST = 1
"""Cycle of the first request, START being accepted in cycle 0."""
HANDED_OUT = 1
"""Cycles from the beat of an instruction to the instruction."""
DECODED = 3
"""Cycles from an instruction to its issue."""
WINDOW = 2
"""Cycles that the decoder takes for a Set_Config_Window."""
AFTER_JUMP = 2
"""Cycles from a jump to what is not kept to its request."""


class Fetch:
    """The cycle in which each instruction is there to be issued, one after the other."""

    def __init__(self, config: Config, port: HostReadPort) -> None:
        self._port = port
        unit_bytes = max(config.host_bus_bytes, INSTRUCTION_BYTES)
        self._per_unit = unit_bytes // INSTRUCTION_BYTES
        self._unit_beats = unit_bytes // config.host_bus_bytes
        self._chunk = fetch_chunk_bytes(config) // unit_bytes
        self._ahead = fetched_ahead(config) // self._per_unit
        self._depth = config.instruction_buffer // self._per_unit
        self._requests: deque[tuple[int, float]] = deque()
        """First unit and time of what was asked for and not looked at since."""
        self._requested = 0
        self._kept = 0
        self._asked = FIRST_REQUEST - 1.0
        self._arrived: dict[int, float] = {}
        """When each unit was there."""
        self._taken = FIRST_REQUEST - 1.0
        self._issued = deque([0.0, 0.0], maxlen=2)
        self._window_busy = False
        port.before_data = self._receive_until
        self._ask(0, FIRST_REQUEST)

    def _ask(self, unit: int, time: float) -> None:
        """Asks for all that there is room for when `unit` is the next to be handed out."""
        while self._requested - unit <= self._ahead - self._chunk:
            self._asked = max(self._asked + 1, time)
            self._requests.append((self._requested, self._asked))
            self._requested += self._chunk
            self._kept = min(self._kept + self._chunk, self._depth - self._chunk)

    def _receive(self) -> None:
        """Lets the oldest chunk come that was asked for."""
        first_unit, ready = self._requests.popleft()
        # With nothing left, and nothing in the decoder, the fetch goes before the data.
        urgent = self._issued[-1] + 1
        first, last = self._port.fetch(ready, urgent, self._chunk * self._unit_beats)
        beat = (last - first) / max(1, self._chunk * self._unit_beats - 1)
        for number in range(self._chunk):
            end = first + ((number + 1) * self._unit_beats - 1) * beat
            self._arrived[first_unit + number] = end + HANDED_OUT

    def _receive_until(self, time: float) -> None:
        """Lets all chunks come that were asked for before `time`."""
        while self._requests and self._requests[0][1] < time:
            self._receive()

    def next(self, pc: int, is_window: bool) -> float:
        """The cycle in which instruction `pc` can be issued at the earliest."""
        unit = pc // self._per_unit
        while unit not in self._arrived:
            self._receive()
        taken = max(
            self._arrived[unit],
            self._taken + (WINDOW if self._window_busy else 1),
            self._issued[0],
        )
        self._taken = taken
        self._window_busy = is_window
        self._ask((pc + 1) // self._per_unit, taken + 1)
        return taken + DECODED

    def issue(self, time: float) -> None:
        """The instruction is issued."""
        self._issued.append(time)

    def jump(self, target: int) -> None:
        """The instruction just taken is followed by `target`, which is not behind it."""
        while self._requests:
            self._receive()
        unit = target // self._per_unit
        if self._requested - unit > self._kept:
            self._arrived.clear()
            self._requested = unit - unit % self._chunk
            self._kept = 0
            self._asked = max(self._asked, self._taken + AFTER_JUMP - 1)
            self._ask(unit, self._taken + AFTER_JUMP)

    def end(self, pc: int) -> float:
        """When all fetches have come, instruction `pc` being a Halt."""
        # The decoder takes one more, if it is there.
        if self._arrived.get((pc + 1) // self._per_unit, np.inf) <= self._taken + 1:
            self.next(pc + 1, False)
        while self._requests:
            self._receive()
        return max(self._arrived.values()) - HANDED_OUT

    def shift(self, cycles: float) -> None:
        """Moves everything that happened to later."""
        self._asked += cycles
        self._taken += cycles
        self._issued = deque((time + cycles for time in self._issued), maxlen=2)
        self._requests = deque((unit, time + cycles) for unit, time in self._requests)
        self._arrived = {unit: time + cycles for unit, time in self._arrived.items()}
