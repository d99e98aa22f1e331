# SPDX-License-Identifier: Apache-2.0
"""A memory at an AXI port, with latency and stalls: the rules, and a reference in Python.

harness.cpp follows the same rules in C++, and a program takes the same cycles with both.

A cycle has two halves. `drive` decides the signals of the memory's channels from its own state
alone. `sample` takes the machine's signals of the same cycle.

Stalls. Each channel (AR 0, R 1, AW 2, W 3, B 4) has a 64-bit xorshift generator. Its seed is
splitmix64(16 * seed + 8 * port + channel), where port is 0 for host and 1 for weight memory. A zero
state becomes 1. Each generator is drawn once in every cycle, even if its number is not needed. It
stalls the channel in that cycle if the upper 24 of the low 64 bits are below floor(stall * 2^24).
The generators start afresh in the cycle after the machine accepts START. So a program takes the
same time after any activity of the host.

Ready. AR, AW and W are ready in a cycle unless stalled, or 64 bursts are already under way. On AR a
burst is under way until it is completely delivered. On AW a burst is under way from its address,
and on W from its last data, until its answer is accepted.

Valid. A read accepted in cycle t has its first beat due in cycle t + 1 + latency, and each further
beat a cycle later. Reads are delivered in the order of the addresses. A write enters memory in the
cycle t in which its AW and its last W have both been accepted. Its answer is due in cycle t + 1 +
latency. If R or B is not valid and its oldest entry is due, the channel becomes valid unless
stalled in that cycle. It stays valid until accepted.

Errors. A beat that is not wholly inside the memory reads 0, or writes nothing, and answers DECERR.
A beat with its address in the error range reads, or writes nothing, and answers SLVERR. The answer
to a write is the worst answer of its beats.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

QUEUE = 64
"""Bursts in each direction that a memory accepts before it stops being ready."""

_MASK = (1 << 64) - 1


class Response(IntEnum):
    """A value of RRESP or BRESP of AXI."""

    OKAY = 0
    SLVERR = 2
    DECERR = 3


class Channel(IntEnum):
    """A number of an AXI channel in the seed of its stalls."""

    AR = 0
    R = 1
    AW = 2
    W = 3
    B = 4


def stall_threshold(probability: float) -> int:
    """Return the bound for the upper 24 bits of a generator, for a probability in [0, 1)."""
    if not 0 <= probability < 1:
        raise ValueError(f"a stall probability is at least 0 and less than 1, not {probability}")
    return int(probability * (1 << 24))


class Stall:
    """A generator of the stalls of one channel."""

    def __init__(self, number: int, threshold: int):
        z = (number + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        self._state = (z ^ (z >> 31)) or 1
        self._threshold = threshold

    def draw(self) -> bool:
        """Return whether the channel is stalled in this cycle; call it once in every cycle."""
        if self._threshold == 0:
            return False  # without stalls the state has no effect
        x = self._state
        x ^= (x << 13) & _MASK
        x ^= x >> 7
        x ^= (x << 17) & _MASK
        self._state = x
        return x >> 40 < self._threshold


@dataclass(frozen=True)
class Burst:
    """A burst that is accepted on AR or AW."""

    address: int
    length: int
    """Number of beats less one, as in AXI."""
    id: int = 0


@dataclass(frozen=True)
class ReadBeat:
    """A beat that the memory puts on R."""

    data: int
    id: int
    response: int
    last: bool


@dataclass(frozen=True)
class WriteBeat:
    """A beat that the memory accepts on W."""

    data: int
    strobe: int
    last: bool


@dataclass(frozen=True)
class WriteAnswer:
    """An answer that the memory puts on B."""

    id: int
    response: int


@dataclass
class Outputs:
    """A record of the memory's signals in one cycle."""

    ar_ready: bool = False
    aw_ready: bool = False
    w_ready: bool = False
    r: ReadBeat | None = None
    b: WriteAnswer | None = None


@dataclass
class Inputs:
    """A record of the machine's signals in one cycle.

    A signal is None if VALID is low or its channel is not ready.
    """

    ar: Burst | None = None
    aw: Burst | None = None
    w: WriteBeat | None = None
    r_ready: bool = False
    b_ready: bool = False


@dataclass(kw_only=True)
class MemoryModel:
    """A memory with `data` as its content, uint8 [bytes]; writes change the array in place."""

    data: NDArray[np.uint8]
    bus_bytes: int
    port: int
    base: int = 0
    """Bus address of data[0]."""
    latency: int = 0
    stall: float = 0.0
    seed: int = 0
    error_range: tuple[int, int] = (0, 0)
    """Bus addresses [low, high) that answer SLVERR."""
    outputs: Outputs = field(default_factory=Outputs)
    _cycle: int = 0
    _started: int = 0

    def __post_init__(self) -> None:
        self._reads: deque[tuple[int, Burst]] = deque()
        self._beat = 0
        self._addresses: deque[Burst] = deque()
        self._beats: list[WriteBeat] = []
        self._bursts: deque[list[WriteBeat]] = deque()
        self._answers: deque[tuple[int, WriteAnswer]] = deque()
        self.restart()

    def restart(self) -> None:
        """Start the stalls afresh, as after an accepted START."""
        self._started = self._cycle - 1
        self._written: dict[int, int] = {}
        threshold = stall_threshold(self.stall)
        self._stalls = {
            channel: Stall(16 * self.seed + 8 * self.port + channel, threshold)
            for channel in Channel
        }

    def written_at(self, offset: int) -> int | None:
        """Return the cycle in which byte `offset` of `data` was last written; None if it was not
        written.

        The cycle counts from START.
        """
        return self._written.get(offset)

    @property
    def idle(self) -> bool:
        """Return whether all requests of the machine have been answered."""
        return not (self._reads or self._addresses or self._beats or self._bursts or self._answers)

    def drive(self) -> Outputs:
        """Begin a cycle, and return the signals that the memory drives in it."""
        stalled = {channel: generator.draw() for channel, generator in self._stalls.items()}
        out = self.outputs
        answers = len(self._answers)
        out.ar_ready = not stalled[Channel.AR] and len(self._reads) < QUEUE
        out.aw_ready = not stalled[Channel.AW] and len(self._addresses) + answers < QUEUE
        out.w_ready = not stalled[Channel.W] and len(self._bursts) + answers < QUEUE
        if out.r is None and self._reads and not stalled[Channel.R]:
            due, burst = self._reads[0]
            if self._cycle >= due:
                out.r = self._read(burst)
        if out.b is None and self._answers and not stalled[Channel.B]:
            due, answer = self._answers[0]
            if self._cycle >= due:
                out.b = answer
        return out

    def sample(self, now: Inputs) -> None:
        """End the cycle, given the signals that the machine drives in it."""
        out = self.outputs
        due = self._cycle + 1 + self.latency
        if out.r is not None and now.r_ready:
            self._beat += 1
            if out.r.last:
                self._reads.popleft()
                self._beat = 0
            out.r = None
        if out.ar_ready and now.ar is not None:
            self._reads.append((due, now.ar))
        if out.b is not None and now.b_ready:
            self._answers.popleft()
            out.b = None
        if out.aw_ready and now.aw is not None:
            self._addresses.append(now.aw)
        if out.w_ready and now.w is not None:
            self._beats.append(now.w)
            if now.w.last:
                self._bursts.append(self._beats)
                self._beats = []
        while self._addresses and self._bursts:
            burst = self._addresses.popleft()
            worst = self._write(burst, self._bursts.popleft())
            self._answers.append((due, WriteAnswer(burst.id, worst)))
        self._cycle += 1

    def _response(self, address: int) -> Response:
        offset = address - self.base
        if not 0 <= offset <= len(self.data) - self.bus_bytes:
            return Response.DECERR
        low, high = self.error_range
        return Response.SLVERR if low <= address < high else Response.OKAY

    def _read(self, burst: Burst) -> ReadBeat:
        address = burst.address + self._beat * self.bus_bytes
        response = self._response(address)
        value = 0
        if response != Response.DECERR:
            offset = address - self.base
            value = int.from_bytes(self.data[offset : offset + self.bus_bytes].tobytes(), "little")
        return ReadBeat(value, burst.id, response, self._beat == burst.length)

    def _write(self, burst: Burst, beats: list[WriteBeat]) -> Response:
        worst = Response.OKAY
        for number, beat in enumerate(beats):
            address = burst.address + number * self.bus_bytes
            response = self._response(address)
            worst = max(worst, response)
            if response != Response.OKAY:
                continue
            for lane, value in enumerate(beat.data.to_bytes(self.bus_bytes, "little")):
                if beat.strobe >> lane & 1:
                    offset = address - self.base + lane
                    self.data[offset] = value
                    self._written[offset] = self._cycle - self._started
        return worst
