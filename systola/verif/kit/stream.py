# SPDX-License-Identifier: Apache-2.0
"""The source, sink and monitor of Amaranth streams: name__valid, name__ready, name__payload.

Payloads are numbers, see `Layout.const({...}).as_value().value` and `Layout.from_bits(number)`.
Pauses are iterators of bool, one item a cycle, true in cycles without a transfer.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from systola.verif.kit.signals import Driven, read, read_bit


def never() -> Iterator[bool]:
    """Return an iterator without pauses, for a stream at full rate."""
    return repeat(False)


def randomly(rng: random.Random, probability: float) -> Iterator[bool]:
    """Yield pauses of a stream, in a random share of the cycles."""
    while True:
        yield rng.random() < probability


class StreamSource:
    """A source that feeds an input stream of `dut` from a queue. VALID never waits for READY."""

    def __init__(self, dut: Any, name: str, clock: Any, pauses: Iterator[bool] | None = None):
        self._valid = Driven(getattr(dut, f"{name}__valid"))
        self._payload = Driven(getattr(dut, f"{name}__payload"))
        self._ready = getattr(dut, f"{name}__ready")
        self._pauses = pauses or never()
        self._clock = clock
        self._queue: deque[int] = deque()
        cocotb.start_soon(self._run())

    def put(self, items: Iterable[int]) -> None:
        """Add items to the end of the queue from which the stream is fed."""
        self._queue.extend(items)

    def empty(self) -> bool:
        """Return whether the unit has accepted every item."""
        return not self._queue and not self._valid.value

    async def drained(self) -> None:
        """Wait until the unit has accepted every item."""
        while not self.empty():
            await RisingEdge(self._clock)

    async def _run(self) -> None:
        while True:
            await RisingEdge(self._clock)
            if self._valid.value and not read_bit(self._ready):
                next(self._pauses)
                continue
            go = not next(self._pauses) and bool(self._queue)
            self._valid.set(go)
            if go:
                self._payload.set(self._queue.popleft())


class StreamMonitor:
    """A monitor that collects the items on a stream of `dut`, and the cycle of each."""

    def __init__(self, dut: Any, name: str, clock: Any):
        self._valid = getattr(dut, f"{name}__valid")
        self._ready = getattr(dut, f"{name}__ready")
        self._payload = getattr(dut, f"{name}__payload")
        self._clock = clock
        self.items: list[int] = []
        self.cycles: list[int] = []
        """The cycle in which each item was taken, counted in clock cycles from the start of the
        monitor.
        """
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        cycle = 0
        while True:
            await RisingEdge(self._clock)
            if read_bit(self._valid) and read_bit(self._ready):
                self.items.append(read(self._payload))
                self.cycles.append(cycle)
            cycle += 1


class StreamSink:
    """A sink that takes the items of an output stream of `dut` into a queue."""

    def __init__(self, dut: Any, name: str, clock: Any, pauses: Iterator[bool] | None = None):
        self._valid = getattr(dut, f"{name}__valid")
        self._ready = Driven(getattr(dut, f"{name}__ready"))
        self._payload = getattr(dut, f"{name}__payload")
        self._pauses = pauses or never()
        self._clock = clock
        self._queue: deque[int] = deque()
        cocotb.start_soon(self._run())

    def empty(self) -> bool:
        """Return whether the sink is empty, because `receive` has returned all items."""
        return not self._queue

    async def receive(self) -> int:
        """Wait for the stream's next item, and return it."""
        while not self._queue:
            await RisingEdge(self._clock)
        return self._queue.popleft()

    async def receive_all(self, count: int) -> list[int]:
        """Wait for the stream's next `count` items, and return them."""
        return [await self.receive() for _ in range(count)]

    async def _run(self) -> None:
        while True:
            await RisingEdge(self._clock)
            if self._ready.value and read_bit(self._valid):
                self._queue.append(read(self._payload))
            self._ready.set(not next(self._pauses))
