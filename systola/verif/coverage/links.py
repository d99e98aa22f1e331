# SPDX-License-Identifier: Apache-2.0
"""Bins (cases to cover) of the link instructions, and a golden pod that counts their hits.

A part of the links sends to a side or receives from a side. As in hardware, a part waits if it
cannot move its next row, and an instruction waits if it cannot go on. The golden pod has no soft
reset, which verif/system/test_pod.py covers on the RTL.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import LINK_OPCODES, Fault, Instruction, LinkPart, Opcode, Side
from systola.golden.links import Channel, Transfer, link_part
from systola.golden.machine import Machine
from systola.golden.outcome import Outcome
from systola.golden.pod import Core, Pod

_PARTS = tuple(part for part in LinkPart if part != LinkPart.BARRIER)
_RECEIVES = (LinkPart.RECEIVE_LEFT, LinkPart.RECEIVE_RIGHT)
_CAUSES = {Fault.LINK_TIMEOUT: tuple(LinkPart), Fault.LINK_KIND: _RECEIVES}
"""Parts of the links that a fault's address can name, by the cause of the fault."""


def link_bins() -> list[str]:
    """Return the names of all bins of the link instructions."""
    parts = [_name(part) for part in _PARTS]
    return [
        *(f"send {what} {side.name.lower()}" for side in Side for what in ("lines", "sums")),
        *(f"receive {side.name.lower()}" for side in Side),
        *(f"reduce {how} {side.name.lower()}" for side in Side for how in ("added", "replaced")),
        "barrier",
        *(f"{part} waits for its neighbour" for part in parts),
        *(f"{part} waits for another part" for part in parts),
        *(f"an instruction waits for room in {part}" for part in parts),
        *(f"{what} waits for {part}" for what in ("halt", "barrier", "another") for part in parts),
        "a core waits at a barrier",
        *(f"{cause.name.lower()} {_name(part)}" for cause, of in _CAUSES.items() for part in of),
        "pod_stopped",
    ]


def observed_run(
    config: Config, images: Sequence[Image], order: random.Random | None = None
) -> tuple[list[Outcome], Counter[str]]:
    """Run programs on a golden pod; return the outcome of each core, and the bins hit.

    `order` chooses the core that steps next, as in Pod.run.
    """
    hits: Counter[str] = Counter()

    def observed(
        machine: Machine, sends: Mapping[Side, Channel], receives: Mapping[Side, Channel]
    ) -> Core:
        return _ObservedCore(machine, sends, receives, hits)

    outcomes = Pod(config, len(images), core=observed).run(images, order=order)
    for fault in (outcome.fault for outcome in outcomes if outcome.fault is not None):
        if fault.cause == Fault.POD_STOPPED:
            hits["pod_stopped"] += 1
        for part in _CAUSES.get(fault.cause, ()):
            hits[f"{fault.cause.name.lower()} {_name(part)}"] += bool(fault.address & part)
    return outcomes, hits


class _ObservedCore(Core):
    """A core of a golden pod that counts the bins that its barriers and waits hit."""

    def __init__(
        self,
        machine: Machine,
        sends: Mapping[Side, Channel],
        receives: Mapping[Side, Channel],
        hits: Counter[str],
    ) -> None:
        super().__init__(machine, sends, receives)
        self._hits = hits

    def step(self, barriers: int) -> bool:
        """Take a step as a core of the golden pod does, and count the bins that it hits."""
        arrived = self.arrived
        moved = super().step(barriers)
        self._hits["barrier"] += self.arrived - arrived
        if not moved and self.end is None:
            for transfer in self._heads():
                older = self._under_way[: self._under_way.index(transfer)]
                row = transfer.next_row()
                by_part = any(other.use.meets(row) for other in older)
                what = "another part" if by_part else "its neighbour"
                self._hits[f"{_name(transfer.part)} waits for {what}"] += 1
            if self._next is not None and not isinstance(self._next, Outcome):
                self._note_waiting(*self._next)
        return moved

    def _note_waiting(self, entry: Instruction, operands: Mapping[str, int]) -> None:
        opcode = entry.opcode
        if opcode in LINK_OPCODES and opcode != Opcode.BARRIER:
            part = link_part(opcode, operands)
            self._hits[f"an instruction waits for room in {_name(part)}"] += 1
        elif opcode in (Opcode.HALT, Opcode.BARRIER):
            for transfer in self._under_way:
                self._hits[f"{entry.mnemonic} waits for {_name(transfer.part)}"] += 1
            self._hits["a core waits at a barrier"] += self._at_barrier
        else:
            uses = self.machine.accesses(entry, operands)
            for transfer in self._under_way:
                if any(transfer.use.meets(use) for use in uses):
                    self._hits[f"another waits for {_name(transfer.part)}"] += 1

    def _transfer(
        self, entry: Instruction, operands: Mapping[str, int], part: LinkPart
    ) -> Transfer:
        side = Side(operands["side"]).name.lower()
        what = ""
        if entry.opcode == Opcode.SEND:
            what = " sums" if operands["sums"] else " lines"
        elif entry.opcode == Opcode.REDUCE:
            what = " added" if operands["accumulate"] else " replaced"
        self._hits[f"{entry.mnemonic}{what} {side}"] += 1
        return super()._transfer(entry, operands, part)


def _name(part: LinkPart) -> str:
    return str(part.name).lower()
