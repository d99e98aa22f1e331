# SPDX-License-Identifier: Apache-2.0
"""A model of the instruction fetch, and the stages of the scalar unit and the decoder."""

from __future__ import annotations

from collections import deque

import numpy as np

from systola.arch.config import Config
from systola.arch.isa import INSTRUCTION_BYTES, Opcode
from systola.hdl.control.decoder_steps import step_counts
from systola.hdl.control.fetch import fetch_chunk_bytes, fetched_ahead
from systola.hdl.control.sequencer import ISSUE_INTERVAL
from systola.hdl.transfers.host_read_port import FETCH_INTERVAL
from systola.timing.host_read_port import HostReadPort
from systola.timing.recent import FORGOTTEN

FIRST_REQUEST = 1
"""Cycle of the first request; START is accepted in cycle 0."""
HANDED_OUT = 4
"""Cycles from the beat of an instruction to the cycle in which the fetch hands it out."""
MOVED = 3
"""Cycles of an instruction from the fetch to the last stage of the scalar unit."""
DECODED = ISSUE_INTERVAL
"""Cycles from an instruction's last step in the decoder to its issue by the sequencer."""
INTERVAL = 2
"""Least number of cycles between two instructions that the fetch hands out."""
ENDS = 2
"""Cycles for which an End_Loop waits after the first stage of the scalar unit has become empty."""
AFTER_END = 3
"""Least number of cycles from an End_Loop to the next instruction that the fetch hands out."""
NOT_KEPT = 3
"""Cycles that a jump takes to its first request, if the fetch's ring does not hold the target.

The cycles count from the first cycle in which an instruction of the ring could be handed out.
"""
REQUEST_INTERVAL = FETCH_INTERVAL + 1
"""Least number of cycles from one request to the next.

The fetch looks for room in its ring only after a request is accepted.
"""
ASKED = 3
"""Cycles from the take of an instruction, which makes room in the ring, to the next request."""

FetchState = tuple[
    tuple[int, int], tuple[tuple[int, float], ...], tuple[tuple[int, float], ...], tuple[float, ...]
]
"""Type of the state of a Fetch.

In this order: `_requested` and `_kept`, `_requests`, `_arrived`, and at last `_asked`, `_free`,
`_first_free` and `_last_free`. A unit is a beat, or an instruction if it is longer than a beat.
"""


class Fetch:
    """A model of the fetch that gives the cycle in which each instruction can be issued."""

    def __init__(self, config: Config, port: HostReadPort) -> None:
        self._port = port
        unit_bytes = max(config.host_bus_bytes, INSTRUCTION_BYTES)
        self._per_unit = unit_bytes // INSTRUCTION_BYTES
        self._unit_beats = unit_bytes // config.host_bus_bytes
        self._chunk = fetch_chunk_bytes(config) // unit_bytes
        self._ahead = fetched_ahead(config) // self._per_unit
        self._depth = config.instruction_buffer // self._per_unit
        self._requests: deque[tuple[int, float]] = deque()
        """Requests without an answer so far: number of the first unit, and cycle of the request.

        `FetchState` defines a unit.
        """
        self._requested = 0
        self._kept = 0
        self._asked = float(FIRST_REQUEST - REQUEST_INTERVAL)
        self._arrived: dict[int, float] = {}
        """First cycle in which the fetch can hand out each unit that has arrived."""
        self._free = 0.0
        """First cycle in which the next instruction can leave the fetch."""
        self._steps = step_counts(config)
        self._first_free = 0.0
        """First cycle in which the first stage of the scalar unit can take the next instruction."""
        self._last_free = 0.0
        """First cycle in which the last stage of the scalar unit can take the next instruction."""
        self._issued = 0.0
        port.before_data = self._receive_until
        self._ask(0, FIRST_REQUEST)

    def _ask(self, unit: int, time: float) -> None:
        """Request units from cycle `time` on, as long as the ring has room.

        `unit` is the next unit to be handed out.
        """
        while self._requested - unit <= self._ahead - self._chunk:
            self._asked = max(self._asked + REQUEST_INTERVAL, time)
            self._requests.append((self._requested, self._asked))
            self._requested += self._chunk
            self._kept = min(self._kept + self._chunk, self._depth - self._chunk)

    def _receive(self) -> None:
        """Receive the answer to the oldest request."""
        first_unit, ready = self._requests.popleft()
        # If no instruction is left, not even in the decoder, the fetch takes precedence over data.
        urgent = self._issued + 1
        first, last = self._port.fetch(ready, urgent, self._chunk * self._unit_beats)
        beat = (last - first) / max(1, self._chunk * self._unit_beats - 1)
        for number in range(self._chunk):
            end = first + ((number + 1) * self._unit_beats - 1) * beat
            self._arrived[first_unit + number] = end + HANDED_OUT

    def _receive_until(self, time: float) -> None:
        """Receive the answers to all requests that were made before cycle `time`."""
        while self._requests and self._requests[0][1] < time:
            self._receive()

    def next(self, pc: int, opcode: Opcode) -> float:
        """Return the first cycle in which instruction `pc` can be issued."""
        unit = pc // self._per_unit
        while unit not in self._arrived:
            self._receive()
        taken = max(self._arrived[unit], self._free, self._first_free)
        if opcode == Opcode.END_LOOP:
            taken = max(taken, self._first_free + ENDS)
        moved = max(taken + MOVED, self._last_free)
        if opcode == Opcode.SET_CONFIG_WINDOW:
            # The window can change only after the instructions that use the present window are
            # issued.
            moved = max(moved, self._issued, self._last_free + 1)
        steps = self._steps[opcode]
        self._free = taken + (AFTER_END if opcode == Opcode.END_LOOP else INTERVAL)
        self._first_free = moved + steps - MOVED
        self._last_free = max(moved + steps, self._issued)
        self._ask((pc + 1) // self._per_unit, taken + ASKED)
        return self._last_free + DECODED

    def issue(self, time: float) -> None:
        """Note that the instruction last taken from the fetch is issued in cycle `time`."""
        self._issued = time

    def jump(self, target: int) -> None:
        """Continue with instruction `target`, which is at or before the instruction last taken."""
        while self._requests:
            self._receive()
        unit = target // self._per_unit
        if self._requested - unit > self._kept:
            self._arrived.clear()
            self._requested = unit - unit % self._chunk
            self._kept = 0
            self._asked = max(self._asked, self._free + NOT_KEPT - REQUEST_INTERVAL)
            self._ask(unit, self._free + NOT_KEPT)

    def end(self, pc: int) -> float:
        """Return the cycle in which the last unit requested before a Halt at `pc` has arrived."""
        # Until the Halt is issued, instructions after it still advance and make room for requests.
        halted = self._issued
        while True:
            pc += 1
            self._receive_until(halted)
            there = self._arrived.get(pc // self._per_unit, np.inf)
            if max(there, self._free, self._first_free) >= halted:
                break
            self.next(pc, Opcode.NOP)
            self._issued = np.inf
        while self._requests and self._requests[0][1] <= halted:
            self._receive()
        return max(self._arrived.values()) - HANDED_OUT

    def earliest(self) -> float:
        """Return the earliest cycle of a fetch request that may still come to the port."""
        return min(max(self._free, self._first_free), *(time for _, time in self._requests), np.inf)

    def state(self, now: float) -> FetchState:
        """Return the state with times relative to cycle `now`, the cycle of the last issue."""
        free = max(self._free, self._first_free)
        # Units before `first` have left the ring.
        first = self._requested - self._depth
        self._arrived = {unit: time for unit, time in self._arrived.items() if unit >= first}
        return (
            (self._requested, self._kept),
            tuple((unit, time - now) for unit, time in self._requests),
            # No unit is taken before cycle `free`, so earlier arrivals make no difference.
            tuple((unit, max(time, free) - now) for unit, time in self._arrived.items()),
            (
                max(self._asked, free - FORGOTTEN) - now,
                self._free - now,
                self._first_free - now,
                self._last_free - now,
            ),
        )

    def resume(self, state: FetchState, now: float) -> None:
        """Restore `state`, so that its relative times count from cycle `now`."""
        (self._requested, self._kept), requests, arrived, times = state
        self._requests = deque((unit, now + time) for unit, time in requests)
        self._arrived = {unit: now + time for unit, time in arrived}
        self._asked, self._free, self._first_free, self._last_free = (now + time for time in times)
        self._issued = now
