# SPDX-License-Identifier: Apache-2.0
"""An estimate of the cycles of a pod's programs, with each core's waits on its links.

The walks of all cores, as in timing/estimate.py, advance side by side: the earliest event of all
cores is calculated first. A Send, Receive or Reduce goes on beside the instructions after it, row
by row, as the neighbour's Sends and credits allow. No iteration of a loop is skipped.

LinkGate compares each other instruction with the unfinished instructions of the links, one entry a
cycle. It holds up the instruction until rows that both use are done. At a Barrier each core sends a
token to all other cores, and waits for the tokens of all others.

The model leaves out rows that wait for a port of the buffer or of the accumulators because a unit
outside the links has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import LINK_OPCODES, Instruction, LinkPart, Opcode
from systola.golden import ranges
from systola.golden.links import link_part
from systola.golden.ranges import Access
from systola.golden.window import UNSET, Window
from systola.hdl.control.hazards import TOUCHES
from systola.hdl.control.link_list import list_places
from systola.hdl.pod.pod import LINK_STAGES
from systola.timing.estimate import SEEN, WAITS, Walk
from systola.timing.links import OFFERED, Part, Port, Transfer, Wire
from systola.timing.memory_speed import MemorySpeed
from systola.timing.record import Estimate
from systola.timing.span import Span

AFTER_USE = 6
"""Cycles from the end of another unit's instruction to the first row of a transfer that waited for
this end.
"""
LOOKED_THROUGH = 3
"""Cycles that LinkGate takes for an instruction, beyond a cycle for each entry compared."""
GATE = 3
"""Cycles from the announcement that a row is done until LinkGate knows of it."""
ARRIVED = 2
"""Cycles from the completion of all instructions before a Barrier to the core's token."""
HOP = 2
"""Cycles that a token takes in each core that it passes, without the wires."""
PASSED = 3
"""Cycles from the arrival of the last token at a core to the issue of its Barrier."""
SENDS = (LinkPart.SEND_LEFT, LinkPart.SEND_RIGHT)
RECEIVES = (LinkPart.RECEIVE_LEFT, LinkPart.RECEIVE_RIGHT)


@dataclass(frozen=True)
class PodEstimate:
    """The estimates of a pod's programs."""

    cores: tuple[Estimate, ...]

    @property
    def cycles(self) -> int:
        """Cycles until the last core has ended."""
        return max(core.cycles for core in self.cores)


def estimate_pod(
    config: Config,
    images: Sequence[Image],
    memory: MemorySpeed | None = None,
    *,
    stages: int = LINK_STAGES,
) -> PodEstimate:
    """Return the cycles of `images`, one for each core in order, all started in the same cycle.

    Each core has memories of its own. `stages` registers lie between two cores each way. Raises
    ValueError as estimate() does, and if all cores wait for one another without end.
    """
    count = len(images)
    right, left = ([Wire(config, stages) for _ in range(count)] for _ in range(2))
    arrivals: list[list[float]] = [[] for _ in range(count)]
    cores: list[_Core] = []
    for i, image in enumerate(images):
        wires = {
            LinkPart.SEND_LEFT: left[i],
            LinkPart.SEND_RIGHT: right[i],
            LinkPart.RECEIVE_LEFT: right[i - 1],
            LinkPart.RECEIVE_RIGHT: left[(i + 1) % count],
        }
        # A token goes from each core to every other core on the shorter way round the ring.
        ways = [min((i - j) % count, (j - i) % count) * (HOP + stages) for j in range(count)]
        cores.append(_Core(config, image, memory or MemorySpeed(), wires, arrivals, i, ways))
    steps = [core.steps() for core in cores]
    while True:
        first = min(
            (step for own in steps for step in own), key=lambda step: step[:2], default=None
        )
        if first is None:
            # Only a core that moves, and its neighbours, get new steps. But a core at a Barrier may
            # go on because of a core that is no neighbour.
            steps = [core.steps() for core in cores]
            if not any(steps):
                break
            continue
        _, _, i, part = first
        cores[i].go(part)
        for near in {i, i - 1, (i + 1) % count}:
            steps[near] = cores[near].steps()
    if not all(core.halted for core in cores):
        raise ValueError("the pod waits for what nobody sends, takes, or comes to")
    return PodEstimate(tuple(core.result() for core in cores))


class _Core(Walk):
    """A core of the pod that advances by one row or one instruction at a time."""

    def __init__(
        self,
        config: Config,
        image: Image,
        memory: MemorySpeed,
        wires: Mapping[LinkPart, Wire],
        arrivals: list[list[float]],
        number: int,
        ways: Sequence[int],
    ) -> None:
        """Begin the core with number `number` of the pod.

        `arrivals` has for each core the cycles in which it came to each barrier. `ways` has for
        each core the cycles that its token takes to this core.
        """
        super().__init__(config, image, memory, [])
        reads, writes = ({False: Port(), True: Port()} for _ in range(2))
        self._parts = {
            part: Part(config, wire, reads if part in SENDS else writes)
            for part, wire in wires.items()
        }
        self._arrivals, self._ways = arrivals, ways
        self._place = number
        self._own = arrivals[number]
        self._next: tuple[Opcode, dict[str, int], float] | None = None
        self._uses: list[Access] = []
        """Lines and rows that the next instruction uses."""
        self._passed = 0
        self._order: list[Transfer] = []
        """Transfers in program order. `_waits` removes each transfer with no row left to move."""
        self._written, self._used = (
            {False: np.zeros(config.buffer_lines), True: np.zeros(config.accumulator_rows)}
            for _ in range(2)
        )
        """End of the last instruction that wrote (`_written`) or used (`_used`) each address.

        Instructions of the links do not count. The addresses are lines (False) or rows (True).
        """
        self._shape = UNSET
        """Fields of the window (Set_Config_Window) that is in force for the next instruction."""
        self.halted = False

    def steps(self) -> list[tuple[float, float, int, LinkPart | None]]:
        """Return the next row of each part, and the core's next instruction, as possible steps.

        A step has its earliest cycle, a rank among steps of the same cycle, its core's number, and
        the part (None for an instruction). Steps that wait for an unknown cycle are left out.
        """
        found: list[tuple[float, float, int, LinkPart | None]] = []
        for name, part in self._parts.items():
            time = part.next_row()
            if time is not None:
                found.append((time, part.free, self._place, name))
        if not self.halted and not self._waits():
            found.append((self._issued, self._issued, self._place, None))
        return found

    def go(self, part: LinkPart | None) -> None:
        """Move the next row of `part`, or issue the next instruction if `part` is None."""
        if part is not None:
            time = self._parts[part].next_row()
            assert time is not None
            self._parts[part].move(time)
            return
        assert self._next is not None
        self.halted = not self._issue(*self._next)
        self._next = None

    def _waits(self) -> bool:
        """Return whether the next instruction waits for an event that has no known cycle yet."""
        if self._next is None:
            self._next = self._offered()
            entry, operands = self._effective(self._pc, self._registers)
            self._uses = self._accesses(entry, operands)
        opcode, operands, _ = self._next
        self._order = [transfer for transfer in self._order if not transfer.known]
        if opcode == Opcode.BARRIER:
            if self._order:
                return True
            if len(self._own) == self._passed:
                self._own.append(self._arrival())
            return any(len(arrived) == self._passed for arrived in self._arrivals)
        if opcode in WAITS or opcode == Opcode.HALT:
            return bool(self._order)
        if opcode in LINK_OPCODES:
            transfers = self._parts[link_part(opcode, operands)].transfers
            depth = self._config.queue_depth
            return len(transfers) >= depth and not transfers[-depth].known
        return any(
            other.use.meets(use) and other.done_with(use) is None
            for other in self._order
            for use in self._uses
        )

    def _accesses(self, entry: Instruction, operands: dict[str, int]) -> list[Access]:
        if entry.opcode == Opcode.SET_CONFIG_WINDOW:
            self._shape = Window(**operands)
        if entry.opcode not in TOUCHES and entry.opcode not in LINK_OPCODES:
            return []
        return ranges.accesses(entry, operands, self._shape, self._config.rows)

    def _arrival(self) -> float:
        """Return the cycle in which this core has come to the Barrier, its next instruction."""
        assert self._next is not None
        return max(self._next[2] + SEEN, self._idle()) + ARRIVED

    def _room(self, opcode: Opcode) -> float:
        if opcode == Opcode.BARRIER:
            known = [arrived[self._passed] for arrived in self._arrivals]
            self._passed += 1
            late = max(time + way for time, way in zip(known, self._ways, strict=True))
            return late + PASSED
        assert self._next is not None
        _, operands, seen = self._next
        if opcode in LINK_OPCODES:
            transfers = self._parts[link_part(opcode, operands)].transfers
            depth = self._config.queue_depth
            return transfers[-depth].done[-1] + SEEN if len(transfers) >= depth else 0.0
        room = super()._room(opcode)
        if opcode in TOUCHES:
            return max(room, self._gate(seen))
        return room

    def _gate(self, seen: float) -> float:
        """Return the cycle in which LinkGate lets the next instruction go.

        The sequencer sees the instruction from cycle `seen` on.
        """
        places = list_places(self._config)
        time = seen + LOOKED_THROUGH
        last = 0.0
        for part in self._parts.values():
            transfers = part.transfers
            entries = [time] * places
            for number in range(max(0, len(transfers) - self._config.queue_depth), len(transfers)):
                transfer = transfers[number]
                last = max(last, transfer.done[-1] if transfer.known else np.inf)
                for use in self._uses:
                    if transfer.use.meets(use):
                        done = transfer.done_with(use)
                        assert done is not None
                        entries[number % places] = max(entries[number % places], done + GATE)
            for entry in entries:
                time = max(time + 1, entry)
        return min(time, last + GATE) if last > seen else 0.0

    def _idle(self) -> float:
        ends = (part.transfers[-1].done[-1] for part in self._parts.values() if part.transfers)
        sent = (part.last for part in self._parts.values() if self.halted)
        return max(super()._idle(), 0.0, *(end + SEEN for end in ends), *sent)

    def _execute(self, opcode: Opcode, operands: dict[str, int]) -> None:
        if opcode in LINK_OPCODES and opcode != Opcode.BARRIER:
            self._transfer(link_part(opcode, operands))
        else:
            super()._execute(opcode, operands)

    def _transfer(self, part: LinkPart) -> None:
        """Add the transfer of a Send, Receive or Reduce that has just been issued to `part`."""
        (use,) = self._uses
        times = (self._used if use.writes else self._written)[use.accumulators]
        used = float(times[use.region.start : use.region.stop].max())
        transfer = Transfer(
            part,
            use,
            max(self._issued + OFFERED, used + AFTER_USE),
            [
                other
                for own, each in self._parts.items()
                if own != part
                for other in each.transfers[-self._config.queue_depth :]
                if other.use.meets(use)
            ],
        )
        self._parts[part].add(transfer)
        self._order.append(transfer)

    def _span(self, opcode: Opcode, operands: dict[str, int]) -> Span:
        span = super()._span(opcode, operands)
        for use in self._uses:
            here = slice(use.region.start, use.region.stop)
            for times in (self._used, self._written) if use.writes else (self._used,):
                ends = times[use.accumulators]
                ends[here] = np.maximum(ends[here], span.end)
        return span
