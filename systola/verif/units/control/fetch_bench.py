# SPDX-License-Identifier: Apache-2.0
"""A test bench of the instruction fetch with models of memory and decoder, and all its checks."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from amaranth.lib import data, wiring

from systola.arch.config import Config
from systola.verif.kit.checker import StreamRules
from systola.verif.units.unit import Bench

WORD = 16
"""The number of bytes of an instruction."""


@dataclass
class _Beat:
    """A beat that the memory still owes: its earliest cycle, its address, whether a jump dropped
    it.
    """

    due: int
    address: int
    dropped: bool = False


class FetchBench(Bench):
    """A bench of `component`, the instruction fetch alone or with the unit after it.

    `memory` is the host window from its start up to `limit`, the program begins at byte `start`.
    The memory answers in order, at the earliest `latency` cycles after the request. `ask`, `answer`
    and `take` are the probabilities that request, beat and instruction move in a cycle. Subclasses
    define in `took` the instruction that follows one that was taken.
    """

    def __init__(
        self,
        dut: Any,
        component: wiring.Component,
        config: Config,
        chance: random.Random,
        memory: bytes,
        *,
        start: int = 0,
        latency: int = 0,
        ask: float = 1,
        answer: float = 1,
        take: float = 1,
    ):
        super().__init__(dut, component)
        self.random = chance
        self.memory = memory
        self.program = start
        self.bus = config.host_bus_bytes
        self.rates = ask, answer, take
        self.bad: set[int] = set()
        """The addresses of beats that the memory answers with an error."""
        self.requested: list[int] = []
        """The offsets of all requests that the memory has accepted."""
        self.taken: list[tuple[int, int]] = []
        """The cycle and the number of each instruction that was taken."""
        self.now = 0
        self._latency = latency
        self._chunk_bytes = max(self.bus, min(64, config.max_burst_beats * self.bus))
        self._chunk = self._chunk_bytes // WORD
        beat = max(1, self.bus // WORD)
        self._ahead = max(9 // beat * beat, 2 * self._chunk)
        self._kept = config.instruction_buffer - self._chunk
        self._beats: list[_Beat] = []
        self._rules = StreamRules("instruction")
        self._next = 0  # number of the instruction to be handed out next
        self._first = 0  # number of the first instruction requested since a jump dropped all
        self._asked = 0  # number of the first instruction that has not been requested
        self._arrived = 0  # number of the first instruction that has not arrived
        self._came: _Beat | None = None  # beat that came in the cycle before
        # number of the first instruction that had not arrived in the cycle before
        self._readable = 0
        self._valid = False  # whether the unit must offer the next instruction
        self._offered: int | None = start if start < len(memory) else None
        """The offset of the request that the unit offers, or will offer once it is enabled."""
        # whether a jump has dropped all instructions, and the next request is not known yet
        self._dropped = False
        self._pause = 0  # number of cycles for which a jump still delays the next request
        self._empty = True  # whether, in the cycle before, no instruction was left or requested
        # whether, in the cycle before, the unit offered no request, and was not in a jump
        self._still = False
        self._over = False
        self.set(program=start, limit=len(memory))

    def took(self, instruction: data.Const) -> int:
        """Return the number of the instruction that follows `instruction`, which has just been
        taken.
        """
        raise NotImplementedError

    def word(self, number: int) -> tuple[int, int]:
        """Return the word and the error flag of the instruction with this number."""
        place = self.program + number * WORD
        size = max(self.bus, WORD)
        bad = any(place // size == address // size for address in self.bad)
        return int.from_bytes(self.memory[place : place + WORD], "little"), int(bad)

    async def step(self, **inputs: Any) -> None:
        """Run one cycle of the memory and the decoder, and check the fetch's outputs in it."""
        ask, answer, take = (self.random.random() < rate for rate in self.rates)
        beat = None
        if self._beats and self._beats[0].due <= self.now and answer:
            beat = self._beats.pop(0)
        inputs |= {"request__ready": ask, "instruction__ready": take}
        inputs["beat__valid"] = beat is not None
        if beat is not None:
            bits = int.from_bytes(self.memory[beat.address : beat.address + self.bus], "little")
            inputs["beat__payload"] = {"data": bits, "error": beat.address in self.bad}
        await self.cycle(**inputs)
        assert self.get("beat__ready"), "there is always room for what was asked for"

        shown = self._check_request()
        granted = shown is not None and ask
        self.expect("urgent", self._empty and self._driven["starved"])
        self.expect("exhausted", self._over)
        instruction = self._check_instruction(take)

        # The model's state changes at the end of this cycle.
        following = None if instruction is None else self.took(instruction)
        dropped_before = self._dropped
        enabled = self._driven["enable"]
        offset = self.program + self._asked * WORD
        inside = offset < len(self.memory)
        unit = self._next - self._next % max(self.bus // WORD, 1)
        room = self._asked + self._chunk <= unit + self._ahead
        self._valid = self._next < self._readable and instruction is None
        was_empty, before = self._empty, self._still
        self._empty = self._asked <= self._readable <= self._next and not self._pause
        self._still = self._offered is None and not self._dropped
        self._over = enabled and was_empty and before and self._still and not inside
        if self._offered is None:
            decides = self._still and not self._pause
            self._offered = offset if decides and room and inside else None
            self._dropped &= self._pause > 0
        elif granted:
            self._offered = None
        self._pause = max(self._pause - 1, 0)
        self._readable = self._arrived
        came, self._came = self._came, beat
        if came is not None and not came.dropped:
            self._arrived = (came.address + self.bus - self.program) // WORD
        if granted:
            self.requested.append(shown)
            due = self.now + 1 + self._latency
            self._beats += [
                _Beat(due, address, dropped_before)
                for address in range(shown, shown + self._chunk_bytes, self.bus)
            ]
            if not dropped_before:
                self._asked += self._chunk
        if following is not None:
            self.taken.append((self.now, self._next))
            if following <= self._next:
                self._pause = 1
                if following < max(self._first, self._asked - self._kept):
                    for beat in (*self._beats, *filter(None, [self._came])):
                        beat.dropped = True
                    self._first = self._asked = self._arrived = following - following % self._chunk
                    self._readable = self._arrived
                    self._dropped = True
                    self._pause = 2
            self._next = following
        self.now += 1

    def _check_request(self) -> int | None:
        """Check that the unit offers the request that is due; return the request's offset."""
        due = self._offered if self._driven["enable"] else None
        valid = self.get("request__valid")
        request = self.get("request__payload") if valid else None
        assert (request.offset if request is not None else None) == due
        if request is not None:
            assert (request.length + 1) * self.bus == self._chunk_bytes
        return due

    def _check_instruction(self, take: bool) -> data.Const | None:
        """Check the instruction on offer from the unit; return it if it is taken in this cycle."""
        valid = self.get("instruction__valid")
        assert valid == self._valid, "four cycles after its last beat"
        instruction = self.get("instruction__payload") if valid else None
        self._rules.observe(None if instruction is None else instruction.bits, take)
        if instruction is not None:
            assert instruction.pc == self._next
        return instruction if take else None
