# SPDX-License-Identifier: Apache-2.0
"""A test bench of link units in a ring, with Python models of memories, interlocks and links."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from systola.arch.config import Config
from systola.hdl.link.link_unit import PARTS, SIDES, LinkUnit
from systola.hdl.memories.accumulators import READ_LATENCY
from systola.hdl.ports import BUFFER_LATENCY
from systola.verif.units.unit import Bench

OTHER = {"left": "right", "right": "left"}


class LinkUnits(wiring.Component):
    """A unit for tests that has the link units of several cores, not connected to each other.

    The ports of core i's link unit begin with `core_` and i.
    """

    def __init__(self, *, config: Config, cores: int):
        self._units = [LinkUnit(config=config) for _ in range(cores)]
        super().__init__({f"core_{i}": _port(unit) for i, unit in enumerate(self._units)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for i, unit in enumerate(self._units):
            m.submodules[f"unit_{i}"] = unit
            connect(m, unit, flipped(getattr(self, f"core_{i}")))
        return m


def _port(unit: LinkUnit) -> Any:
    return wiring.Out(unit.signature)


@dataclass(frozen=True)
class Pace:
    """The chances that memories and interlocks are ready, and that links deliver, in a cycle.

    `latency` is the least number of cycles that a beat spends in a link.
    """

    memories: float = 1.0
    interlocks: float = 1.0
    links: float = 1.0
    latency: int = 1


FULL = Pace(latency=2)
PACES = (FULL, Pace(0.5, 0.5, 0.5, 1), Pace(0.9, 0.2, 1.0, 7), Pace(0.2, 0.9, 0.9, 3))


class _Wire:
    """A model of one direction of a link.

    Beats come out in order, at the rate and with the least latency that `pace` has.
    """

    def __init__(self, random: random.Random, pace: Pace) -> None:
        self._random, self._pace = random, pace
        self._inside: deque[tuple[int, Any]] = deque()
        self._now = 0

    def step(self, came: Any) -> Any:
        """Take a beat that goes in, or None; return the beat that comes out in the next cycle, or
        None.
        """
        self._now += 1
        if came is not None:
            self._inside.append((self._now + self._pace.latency - 1, came))
        comes = bool(self._inside) and self._inside[0][0] <= self._now
        if comes and self._random.random() < self._pace.links:
            return self._inside.popleft()[1]
        return None


class Core:
    """A model of the core around one link unit: its memories, interlocks and commands.

    `lines` has the buffer's lines as numbers, `sums` the accumulators' rows as lists of 32-bit
    numbers. `commands` has a queue for each part of the link unit, such as `send_left`.
    """

    def __init__(
        self, bench: Bench, number: int, config: Config, random: random.Random, pace: Pace
    ) -> None:
        self._bench, self._name, self._config = bench, f"core_{number}", config
        self._random, self._pace = random, pace
        self.lines = [random.getrandbits(8 * config.line_bytes) for _ in range(config.buffer_lines)]
        self.sums = [
            [random.getrandbits(32) for _ in range(config.cols)]
            for _ in range(config.accumulator_rows)
        ]
        self.commands: dict[str, deque[dict[str, int]]] = {part: deque() for part in PARTS}
        self.done = dict.fromkeys(PARTS, 0)
        self.written: list[tuple[bool, int]] = []
        self._rows: dict[str, deque[dict[str, int]]] = {part: deque() for part in PARTS}
        self._offered = dict.fromkeys(PARTS, False)
        self._reads: deque[int] = deque([0] * BUFFER_LATENCY)
        self._sums_reads: deque[int] = deque([0] * READ_LATENCY)
        self._next: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """Return the value of a port of this core's link unit."""
        return self._bench.get(f"{self._name}__{name}")

    def drive(self, **inputs: Any) -> None:
        """Drive ports of this core's link unit."""
        self._bench.set(**{f"{self._name}__{name}": value for name, value in inputs.items()})

    def before(self) -> None:
        """Drive, before a cycle, all inputs except for the inputs from links."""
        chance = self._random.random
        ready = {
            f"{port}__ready": chance() < self._pace.memories
            for port in ("buffer_read", "buffer_write", "sums_read", "sums_update")
        }
        self.drive(**ready, **self._next)
        for part in PARTS:
            commands, rows = self.commands[part], self._rows[part]
            # A row that is offered stays on offer until it is accepted.
            self._offered[part] |= bool(rows) and chance() < self._pace.interlocks
            self.drive(
                **{
                    f"{part}__valid": bool(commands),
                    f"{part}__payload": commands[0] if commands else {},
                    f"{PARTS[part]}__rows__ready": chance() < self._pace.interlocks,
                    f"{PARTS[part]}__cleared__valid": self._offered[part],
                    f"{PARTS[part]}__cleared__payload": rows[0] if rows else {},
                }
            )

    def after(self) -> None:
        """Check the cycle that has ended, and carry out the unit's reads and writes."""
        for part in PARTS:
            if self.commands[part] and self.get(f"{part}__ready"):
                self.commands[part].popleft()
            if self._offered[part] and self.get(f"{PARTS[part]}__cleared__ready"):
                self._rows[part].popleft()
                self._offered[part] = False
            if self.get(f"{PARTS[part]}__rows__valid") and self._bench.get(
                f"{self._name}__{PARTS[part]}__rows__ready"
            ):
                self._rows[part].append(self.get(f"{PARTS[part]}__rows__payload"))
            self.done[part] += self.get(f"{PARTS[part]}__retire")
        address = self._taken("buffer_read")
        self._reads.append(self.lines[address] if address is not None else 0)
        address = self._taken("sums_read")
        self._sums_reads.append(_joined(self.sums[address]) if address is not None else 0)
        self._reads.popleft()
        self._sums_reads.popleft()
        self._next = {"buffer_read__data": self._reads[0], "sums_read__data": self._sums_reads[0]}
        address = self._taken("buffer_write")
        if address is not None:
            self.lines[address] = self.get("buffer_write__data")
            self.written.append((False, address))
        address = self._taken("sums_update")
        if address is not None:
            values = self.get("sums_update__sums")
            adds = self.get("sums_update__adds")
            self.sums[address] = [
                ((values >> 32 * c) + (old if adds else 0)) % 2**32
                for c, old in enumerate(self.sums[address])
            ]
            self.written.append((True, address))

    def _taken(self, port: str) -> int | None:
        if self.get(f"{port}__enable") and self.get(f"{port}__ready"):
            return self.get(f"{port}__address")
        return None


def _joined(values: list[int]) -> int:
    return sum(value << 32 * c for c, value in enumerate(values))


class Pod:
    """A ring of `cores` modelled cores, joined by links of any latency."""

    def __init__(
        self, dut: Any, config: Config, cores: int, random: random.Random, pace: Pace
    ) -> None:
        self.bench = Bench(dut, LinkUnits(config=config, cores=cores))
        self.cores = [Core(self.bench, i, config, random, pace) for i in range(cores)]
        self.under_way = {(i, side): 0 for i in range(cores) for side in SIDES}
        self.most = 0
        self._config = config
        self._wires = {
            (i, side, what): _Wire(random, pace)
            for i in range(cores)
            for side in SIDES
            for what in ("beat", "token", "credit")
        }

    def neighbour(self, core: int, side: str) -> int:
        """Return the number of the core beside core `core`, on side `side` (left or right)."""
        return (core + (1 if side == "right" else -1)) % len(self.cores)

    async def cycle(self) -> None:
        """Run one cycle of all cores and links."""
        for core in self.cores:
            core.before()
        await self.bench.cycle()
        for core in self.cores:
            core.after()
        for i, core in enumerate(self.cores):
            for side in SIDES:
                there, back = self.cores[self.neighbour(i, side)], OTHER[side]
                valid = core.get(f"to_{side}__valid")
                beat = core.get(f"to_{side}__beat") if valid else None
                token = core.get(f"to_{side}__token") or None
                credit = there.get(f"from_{back}__credit") or None
                self.under_way[i, side] += bool(valid) - bool(credit)
                self.most = max(self.most, self.under_way[i, side])
                came = self._wires[i, side, "beat"].step(beat)
                there.drive(
                    **{
                        f"from_{back}__valid": came is not None,
                        f"from_{back}__beat": came or {},
                        f"from_{back}__token": self._wires[i, side, "token"].step(token) or 0,
                    }
                )
                core.drive(
                    **{f"to_{side}__credit": self._wires[i, side, "credit"].step(credit) or 0}
                )
        assert self.most <= self._config.link_beats
