# SPDX-License-Identifier: Apache-2.0
"""Instruction fetch, and the stages of the scalar unit and the decoder."""

from __future__ import annotations

from collections import deque

import numpy as np

from systola.arch.config import Config
from systola.arch.isa import INSTRUCTION_BYTES, Opcode
from systola.hdl.control.decoder import SETTLING, Decoder
from systola.hdl.control.fetch import fetch_chunk_bytes, fetched_ahead
from systola.hdl.control.scalar_unit import ScalarUnit
from systola.hdl.control.sequencer import ISSUE_INTERVAL
from systola.hdl.transfers.host_read_port import FETCH_INTERVAL
from systola.timing.host_read_port import HostReadPort

FIRST_REQUEST = 1
"""Cycle of the first request, START being accepted in cycle 0."""
HANDED_OUT = 4
"""Cycles from the beat of an instruction to the instruction."""
DECODED = Decoder.LATENCY + ISSUE_INTERVAL - 1
"""Cycles from the decoder's taking an instruction to its issue, which the sequencer decides."""
INTERVAL = 2
"""Cycles from an instruction to the next one in the scalar unit and in the decoder: a stage takes
the next one when it is empty."""
CONVOLVE = 3
"""Cycles more that a Convolve takes in the decoder."""
AFTER_SET = 3
"""Cycles from a Set_Register to the instruction behind it, where that is no End_Loop."""
AFTER_END = 3
"""Cycles from an End_Loop to the instruction that follows."""
NOT_KEPT = 3
"""Cycles from where the instruction behind a jump would be there to its request, if not kept."""
REQUEST_INTERVAL = FETCH_INTERVAL + 1
"""Cycles from one request to the next: the fetch looks for room once one is accepted."""
ASKED = 3
"""Cycles from the instruction that makes room to the request, on the port."""


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
        self._asked = float(FIRST_REQUEST - REQUEST_INTERVAL)
        self._arrived: dict[int, float] = {}
        """When each unit was there."""
        self._free = 0.0
        """When the next instruction can be taken from the fetch."""
        self._entered = deque([0.0] * ScalarUnit.LATENCY, ScalarUnit.LATENCY)
        """When the last instructions left the scalar unit for the decoder."""
        self._decoder_free = 0.0
        self._sets = False
        """The last instruction was a Set_Register."""
        self._issued = deque([0.0] * Decoder.LATENCY, Decoder.LATENCY)
        port.before_data = self._receive_until
        self._ask(0, FIRST_REQUEST)

    def _ask(self, unit: int, time: float) -> None:
        """Asks for all that there is room for when `unit` is the next to be handed out."""
        while self._requested - unit <= self._ahead - self._chunk:
            self._asked = max(self._asked + REQUEST_INTERVAL, time)
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

    def next(self, pc: int, opcode: Opcode) -> float:
        """The cycle in which instruction `pc` can be issued at the earliest."""
        unit = pc // self._per_unit
        while unit not in self._arrived:
            self._receive()
        # An empty place goes from the end of either unit to its begin.
        taken = max(self._arrived[unit], self._free, self._entered[0] + ScalarUnit.LATENCY)
        enters = max(taken + ScalarUnit.LATENCY, self._decoder_free, self._issued[0] + 1)
        if opcode in (Opcode.LOOP, Opcode.END_LOOP):
            enters = max(enters, taken + ScalarUnit.LATENCY + 1)
        elif self._sets:
            enters = max(enters, self._entered[-1] + AFTER_SET)
        free = INTERVAL
        if opcode == Opcode.CONVOLVE:
            enters += CONVOLVE
        elif opcode == Opcode.SET_CONFIG_WINDOW:
            # The decoder must be empty, and shows two pairs of operands to the multipliers.
            enters = max(enters, self._issued[-1] + 1) + 1
            free = 1 + SETTLING
        self._free = taken + (AFTER_END if opcode == Opcode.END_LOOP else INTERVAL)
        self._entered.append(enters)
        self._decoder_free = enters + free
        self._sets = opcode == Opcode.SET_REGISTER
        self._ask((pc + 1) // self._per_unit, taken + ASKED)
        return enters + DECODED

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
            self._asked = max(self._asked, self._free + NOT_KEPT - REQUEST_INTERVAL)
            self._ask(unit, self._free + NOT_KEPT)

    def end(self, pc: int) -> float:
        """When all fetches have come, instruction `pc` being a Halt."""
        # What is there goes on until the Halt is issued.
        halted = self._issued[-1]
        while True:
            pc += 1
            self._receive_until(halted)
            there = self._arrived.get(pc // self._per_unit, np.inf)
            if max(there, self._free, self._entered[0]) >= halted:
                break
            self.next(pc, Opcode.NOP)
            self._issued.append(np.inf)
        while self._requests and self._requests[0][1] <= halted:
            self._receive()
        return max(self._arrived.values()) - HANDED_OUT

    def shift(self, cycles: float) -> None:
        """Moves everything that happened to later."""
        self._asked += cycles
        self._free += cycles
        self._decoder_free += cycles
        self._entered = deque((time + cycles for time in self._entered), self._entered.maxlen)
        self._issued = deque((time + cycles for time in self._issued), self._issued.maxlen)
        self._requests = deque((unit, time + cycles) for unit, time in self._requests)
        self._arrived = {unit: time + cycles for unit, time in self._arrived.items()}
