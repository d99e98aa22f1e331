# SPDX-License-Identifier: Apache-2.0
"""A pod as the text of the instruction set describes it: cores in a ring."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import LINK_OPCODES, Fault, Instruction, LinkPart, Opcode, Side
from systola.golden.links import Channel, Transfer, link_part
from systola.golden.machine import Machine
from systola.golden.outcome import LimitReached, Outcome

_WAITS_FOR_ALL = (
    *(Opcode.HALT, Opcode.SYNCHRONIZE, Opcode.INTERRUPT_HOST, Opcode.SYNCHRONIZE_HOST),
    Opcode.BARRIER,
)
"""Instructions that wait until all earlier ones have completed."""


class Core:
    """One core of a pod: a machine, and its Sends, Receives and Reduces under way.

    The transfers go on beside later instructions. Each part of the link unit executes its own
    transfers in order. A part has at most `config.queue_depth` transfers under way. An instruction
    waits for an earlier one if both touch the same row and one of them writes it. Two instructions
    of the links wait for each other row by row.
    """

    def __init__(
        self, machine: Machine, sends: Mapping[Side, Channel], receives: Mapping[Side, Channel]
    ) -> None:
        self.machine = machine
        self.arrived = 0
        """Number of barriers that the core has come to."""
        self.end: Outcome | None = None
        """The end of the program; None while it runs."""
        self._channels = {
            LinkPart.SEND_LEFT: sends[Side.LEFT],
            LinkPart.SEND_RIGHT: sends[Side.RIGHT],
            LinkPart.RECEIVE_LEFT: receives[Side.LEFT],
            LinkPart.RECEIVE_RIGHT: receives[Side.RIGHT],
        }
        self._under_way: list[Transfer] = []
        self._next: tuple[Instruction, Mapping[str, int]] | Outcome | None = None
        self._at_barrier = False

    def start(self, image: Image) -> None:
        """Prepare for the first instruction; the host window of `image` is modified in place."""
        self.machine.start(image.host, image.weights, image.program_offset)
        self.arrived, self.end = 0, None
        self._under_way, self._next, self._at_barrier = [], None, False

    def step(self, barriers: int) -> bool:
        """Move a line or row, or execute an instruction; return False if the core can do neither.

        `barriers`: the number of barriers that all cores have come to.
        """
        if self.end is not None:
            return False
        return self._move() or self._instruction(barriers)

    def fault(self) -> Outcome | None:
        """Return the end of the program if lines came where rows are expected, or rows for lines,
        else None.
        """
        wrong = sum(transfer.part for transfer in self._heads() if transfer.mismatched)
        return self.machine.stopped(Fault.LINK_KIND, 0, wrong) if wrong else None

    def timeout(self) -> Outcome:
        """Return the end of the program of a core that waits for other cores in vain."""
        waits = sum(transfer.part for transfer in self._heads())
        if self._at_barrier:
            waits += LinkPart.BARRIER
        return self.machine.stopped(Fault.LINK_TIMEOUT, 0, waits)

    def _heads(self) -> list[Transfer]:
        """Return the oldest transfer of each part."""
        return list({t.part: t for t in reversed(self._under_way)}.values())

    def _move(self) -> bool:
        for transfer in self._heads():
            older = self._under_way[: self._under_way.index(transfer)]
            row = transfer.next_row()
            if any(other.use.meets(row) for other in older) or not transfer.move():
                continue
            if not transfer.use.region:
                self._under_way.remove(transfer)
                self.machine.executed += 1
            return True
        return False

    def _instruction(self, barriers: int) -> bool:
        if self._next is None:
            self._next = self.machine.next_instruction()
        if isinstance(self._next, Outcome):
            if self._under_way:
                return False
            # Transfers may have completed since the instruction with the fault was found.
            self.end = self.machine.outcome(self._next.fault)
            return True
        entry, operands = self._next
        if entry.opcode in _WAITS_FOR_ALL and self._under_way:
            return False
        if entry.opcode == Opcode.BARRIER:
            if not self._at_barrier:
                self._at_barrier = True
                self.arrived += 1
                return True
            if barriers < self.arrived:
                return False
            self._at_barrier = False
            self.machine.executed += 1
            self.machine.skip()
        elif entry.opcode in LINK_OPCODES:
            part = link_part(entry.opcode, operands)
            queued = sum(transfer.part == part for transfer in self._under_way)
            if queued == self.machine.config.queue_depth:
                return False
            self._under_way.append(self._transfer(entry, operands, part))
            self.machine.skip()
        else:
            uses = self.machine.accesses(entry, operands)
            if any(other.use.meets(use) for other in self._under_way for use in uses):
                return False
            self.machine.execute(entry, operands)
            if entry.opcode == Opcode.HALT:
                self.end = self.machine.outcome(None)
        self._next = None
        return True

    def _transfer(
        self, entry: Instruction, operands: Mapping[str, int], part: LinkPart
    ) -> Transfer:
        machine = self.machine
        (use,) = machine.accesses(entry, operands)
        return Transfer(
            part,
            self._channels[part],
            machine.accumulators if use.accumulators else machine.buffer,
            use,
            adds=bool(operands.get("accumulate")),
        )


CoreMaker = Callable[[Machine, Mapping[Side, Channel], Mapping[Side, Channel]], Core]


class Pod:
    """A golden model of `cores` cores of one configuration in a ring.

    The right neighbour of core i is core i + 1, and core 0 for the last core. A single core is its
    own neighbour. Cores step in any order, and their results and ends are always the same. The
    reason is that a core can only wait for a beat, and cannot ask whether it is there. After a
    fault of one core the others go on here as far as they can; the hardware stops them at once.
    """

    def __init__(self, config: Config, cores: int, *, core: CoreMaker = Core) -> None:
        """Make the cores. The function `core` makes a core from its machine, the channels that it
        sends to, and the channels that it reads.
        """
        size = config.host_bus_bytes
        right = [Channel(size, config.link_beats) for _ in range(cores)]
        left = [Channel(size, config.link_beats) for _ in range(cores)]
        self._channels = (*right, *left)
        self._cores = [
            core(
                Machine(config),
                {Side.LEFT: left[i], Side.RIGHT: right[i]},
                {Side.LEFT: right[i - 1], Side.RIGHT: left[(i + 1) % cores]},
            )
            for i in range(cores)
        ]

    @property
    def machines(self) -> list[Machine]:
        """The cores' machines; their memories persist from one run to the next."""
        return [core.machine for core in self._cores]

    def run(
        self,
        images: Sequence[Image],
        *,
        order: random.Random | None = None,
        limit: int | None = None,
    ) -> list[Outcome]:
        """Run a program on each core; the contents of their host windows are modified in place.

        `order` chooses the core that steps next, and how often it steps. Without `order`, each core
        steps as far as it can, core 0 first. Raises LimitReached before a core executes more than
        `limit` instructions.
        """
        cores = self._cores
        for channel in self._channels:
            channel.clear()
        for core, image in zip(cores, images, strict=True):
            core.start(image)
        moved = True
        while moved:
            moved = False
            turns = order.sample(cores, len(cores)) if order else cores
            for core in turns:
                steps = order.choice((1, 3, 20, None)) if order else None
                while (steps is None or steps) and core.step(min(c.arrived for c in cores)):
                    moved = True
                    steps = steps and steps - 1
                    if limit is not None and core.machine.executed > limit:
                        raise LimitReached(f"a core still runs after {limit} instructions")
        faults = [core.end or core.fault() for core in cores]
        failed = any(end is not None and end.fault is not None for end in faults)
        return [
            end or (core.machine.stopped(Fault.POD_STOPPED, 0, 0) if failed else core.timeout())
            for core, end in zip(cores, faults, strict=True)
        ]
