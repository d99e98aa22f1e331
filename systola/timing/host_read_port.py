# SPDX-License-Identifier: Apache-2.0
"""A model of the read half of the host port, where data and instructions take turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from systola.hdl.transfers.host_read_port import READS_IN_FLIGHT
from systola.timing.memory_speed import MemorySpeed
from systola.timing.recent import recent

CUT = 2
"""Cycles from the start of a transfer to the request for its first burst."""
REQUEST = 1
"""Cycles from a request for data until it shows on the bus."""
FETCH_REQUEST = 2
"""Cycles from a fetch's request until it shows on the bus; a register copies it first.
"""

PortState = tuple[
    float,
    float,
    tuple[tuple[float, float, float, float], ...],
    tuple[tuple[float, float], ...],
]
"""Type of the state of a HostReadPort.

In this order: `_free` and `_fetched`; `begun`, `asked`, `first` and `end` of each transfer; `beat`
and `burst` of each transfer.
"""


@dataclass
class Transfer:
    """A transfer of beats with bursts that are requested in cycles `begun` to `asked`."""

    begun: float
    asked: float
    first: float
    """Cycle of the first beat of the transfer."""
    beat: float
    """Mean cycles from one beat to the next."""
    burst: float
    """Mean number of beats of a burst."""
    end: float
    """Cycle of the last beat of the transfer."""


class HostReadPort:
    """A model of the port: beats come in the order of the requests.

    Requests for data are made in the order of the program. A fetch is put in at the cycle of its
    request, and data requested later comes after it.
    """

    def __init__(self, memory: MemorySpeed) -> None:
        self._memory = memory
        self._free = 0.0  # no beat of data comes before
        self._fetched = 0.0  # no beat of instructions comes before
        self._transfers: deque[Transfer] = deque(maxlen=32)
        self.before_data: Callable[[float], None] = _nothing
        """Function that is called before each request for data, with the cycle of the request.

        The function adds the fetches that were requested earlier.
        """

    def data(self, begin: float, beats: int, bursts: int, pace: float) -> Transfer:
        """Return the transfer of `beats` beats that an instruction may request from `begin` on.

        The instruction takes a beat every `pace` cycles at best.
        """
        begin += CUT
        self.before_data(begin)
        answer = REQUEST + self._memory.answer
        burst = beats / bursts
        # A burst is requested only after the burst READS_IN_FLIGHT bursts earlier has arrived.
        beat = max(self._memory.beat, pace, (answer + burst) / (READS_IN_FLIGHT * burst))
        first = max(begin + answer, self._free)
        end = first + (beats - 1) * beat
        waiting = max(0, bursts - READS_IN_FLIGHT)
        asked = max(begin + bursts - 1, first + waiting * burst * beat if waiting else 0.0)
        transfer = Transfer(begin, asked, first, beat, burst, end)
        self._transfers.append(transfer)
        self._free = end + beat + 1  # a cycle is lost between instructions
        return transfer

    def hold_up(self, cycles: float) -> None:
        """Delay the end of the last transfer by `cycles` cycles."""
        self._transfers[-1].end += cycles
        self._free += cycles

    def fetch(self, ready: float, urgent: float, beats: int) -> tuple[float, float]:
        """Return the cycles of the first and last beat of a fetch requested from cycle `ready` on.

        From cycle `urgent` on the fetch goes before all data.
        """
        granted = ready
        before = self._fetched
        for transfer in self._transfers:
            if transfer.begun > granted:
                break
            if granted <= transfer.asked:
                granted = min(max(granted, urgent), transfer.asked + 1)
            if granted > transfer.asked:
                before = max(before, transfer.end + self._memory.beat)
            else:
                # Only bursts of this transfer that were requested earlier delay the fetch.
                number = min(
                    granted - transfer.begun,
                    READS_IN_FLIGHT
                    + max(0.0, (granted - transfer.first) / (transfer.beat * transfer.burst)),
                )
                sent = transfer.first + number * transfer.burst * transfer.beat
                before = max(before, min(sent, transfer.end + self._memory.beat))
        first = max(granted + FETCH_REQUEST + self._memory.answer, before)
        last = first + (beats - 1) * self._memory.beat
        self._fetched = last + self._memory.beat
        self._free = max(self._free, self._fetched)
        return first, last

    def state(self, now: float, earliest: float) -> PortState:
        """Return the state with times relative to cycle `now`; no fetch comes before `earliest`."""
        transfers = [
            each
            for each in self._transfers
            if max(each.asked + 1, each.end + self._memory.beat) > earliest
            or each is self._transfers[-1]  # a write may still hold up the last transfer
        ]
        return (
            recent(self._free, now),
            max(self._fetched, earliest) - now,
            tuple(
                (each.begun - now, each.asked - now, each.first - now, each.end - now)
                for each in transfers
            ),
            tuple((each.beat, each.burst) for each in transfers),
        )

    def resume(self, state: PortState, now: float) -> None:
        """Restore `state`, so that its relative times count from cycle `now`."""
        free, fetched, times, paces = state
        self._free, self._fetched = now + free, now + fetched
        self._transfers.clear()
        for (begun, asked, first, end), (beat, burst) in zip(times, paces, strict=True):
            self._transfers.append(
                Transfer(now + begun, now + asked, now + first, beat, burst, now + end)
            )


def _nothing(time: float) -> None:
    """Do nothing. A port without a Fetch has no fetches to add."""
