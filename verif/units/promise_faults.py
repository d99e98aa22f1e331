# SPDX-License-Identifier: Apache-2.0
"""Planted faults, each of which breaks one promise, with the unit in which it shows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from amaranth.lib import data

from systola.hdl.memories.block_ring import BlockRing
from systola.hdl.parts.delay_line import DelayLine
from systola.hdl.parts.delay_ring import DelayRing
from systola.hdl.parts.interlock import Check, Interlock
from systola.hdl.parts.payload_ring import PayloadRing
from systola.hdl.parts.round_robin import RoundRobin
from systola.hdl.parts.skid_buffer import SkidBuffer
from systola.hdl.parts.walker import Level, Position, Walk, Walker
from systola.verif.formal.proof import Fault
from systola.verif.units.promise_bench import Bench

WORD = data.StructLayout({"word": 4})


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A promise that a fault breaks: `new` instead of `old` in `unit`.py, seen by `bench`."""

    bench: str
    promise: str
    old: str
    new: str
    unit: str = ""

    @property
    def fault(self) -> Fault:
        """Return the fault; without `unit` it is in the file of the bench."""
        return Fault(unit=self.unit or self.bench, old=self.old, new=self.new)


def _ring_users(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Keep payloads between 0 and 5, and drop none before it can be seen."""
    pushed = state.setdefault("pushed", [])
    count, visible = len(pushed), sum(age >= 2 for age in pushed)
    push = context.get(unit.push) and count < 5
    retire = context.get(unit.retire) and visible
    context.set(unit.push, push)
    context.set(unit.retire, retire)
    state["pushed"] = [age + 1 for age in pushed[bool(retire) :]] + [1] * bool(push)


def _walks(context: Any, unit: Any, state: dict[str, Any], drawn: random.Random) -> None:
    """Give walks whose flags fit their counts."""
    if not state.get("waits"):
        walk = unit.walk.payload
        for name, _ in walk.count.shape():
            number = drawn.randint(1, 3)
            context.set(walk.count[name], number)
            context.set(walk.single[name], number == 1)
            context.set(walk.double[name], number == 2)
    state["waits"] = context.get(unit.walk.valid) and not context.get(unit.walk.ready)


_POSITION = Position(line_bits=6, y_bits=4, x_bits=4)
_LEVELS = (
    Level(name="inner", count_bits=3, moves={"line": 6, "x": 4}),
    Level(name="outer", count_bits=3, moves={"line": 6, "y": 4}),
)

BENCHES = {
    "skid_buffer": Bench(make=lambda: SkidBuffer(payload=WORD)),
    "round_robin": Bench(make=lambda: RoundRobin(count=4)),
    "delay_line": Bench(make=lambda: DelayLine(layout=WORD, cycles=3)),
    "delay_ring": Bench(make=lambda: DelayRing(width=4, cycles=5)),
    "payload_ring": Bench(make=lambda: PayloadRing(payload=WORD, depth=5)),
    "block_ring": Bench(make=lambda: BlockRing(payload=WORD, depth=8), legal=_ring_users),
    "interlock": Bench(
        make=lambda: Interlock(
            item=data.StructLayout({"line": 4, "used": 1}),
            checks=[Check(watched="list", address="line", used="used")],
            depth=2,
            widths={"list": 4},
        )
    ),
    "walker": Bench(make=lambda: Walker(walk=Walk(_LEVELS, _POSITION)), legal=_walks),
}
"""Benches by the file of the unit."""

BROKEN = (
    Broken(
        bench="skid_buffer",
        promise="a payload changes before it is taken",
        old="m.If(output_free)",
        new="m.If(output_free | self.input.valid)",
    ),
    Broken(
        bench="skid_buffer",
        promise="the second place is full and free",
        old="spare_free.eq(~spare_fills)",
        new="spare_free.eq(output_free)",
    ),
    Broken(
        bench="round_robin",
        promise="two requesters are chosen",
        old="bits & (~bits + 1)[: len(bits)]",
        new="bits",
    ),
    Broken(
        bench="round_robin",
        promise="one is chosen that wants nothing",
        old="_lowest(self.wants & later_requesters),",
        new="_lowest(later_requesters),",
    ),
    Broken(
        bench="round_robin",
        promise="no requester is chosen",
        old="_lowest(self.wants),",
        new="0,",
    ),
    Broken(
        bench="delay_line",
        promise="a delay moves while it is held",
        old="m.If(~self.hold)",
        new="m.If(~self.hold | self.input_valid)",
    ),
    Broken(
        bench="delay_ring",
        promise="a delay leaves its ring",
        old="stepped(ring_place, self._cycles)",
        new="ring_place + 1",
    ),
    Broken(
        bench="payload_ring",
        promise="a payload is written beyond the ring",
        old="stepped(write_place, self._depth)",
        new="write_place + 1",
    ),
    Broken(
        bench="payload_ring",
        promise="a payload is read beyond the ring",
        old="stepped(read_place, self._depth)",
        new="read_place + 1",
    ),
    Broken(
        bench="interlock",
        promise="an item that passes is withdrawn",
        old="(looks_again | (judged_moves & compared_valid))",
        new="(looks_again | compared_valid)",
    ),
    Broken(
        bench="interlock",
        promise="the interlock is not ready as it has said",
        old="arrived_free.eq(self.frees)",
        new="arrived_free.eq(compared_moves)",
    ),
    Broken(
        bench="interlock",
        promise="an item is there and not there",
        old="arrived_valid.eq(~self.frees)",
        new="arrived_valid.eq(item_comes)",
    ),
    Broken(
        bench="interlock",
        promise="an item waits that is not there",
        old="(judged_moves & compared_valid)",
        new="judged_moves",
    ),
    Broken(
        bench="walker",
        promise="a walk changes before its last place is left",
        old="self.walk.ready.eq(self.present & self.advance & self.ends)",
        new="self.walk.ready.eq(self.present & self.advance)",
    ),
    Broken(
        bench="walker",
        promise="a place is not present as foretold",
        old="self.present.eq(self.will_be_present)",
        new="self.present.eq(valid)",
    ),
    Broken(
        bench="walker",
        promise="a walk ends too soon",
        old="self.ends.eq(Cat(values).all())",
        new="self.ends.eq(values[0])",
    ),
    Broken(
        bench="walker",
        promise="a walk is idle and present",
        old="idle.eq(~self.will_be_present)",
        new="idle.eq(~valid)",
    ),
    Broken(
        bench="block_ring",
        promise="the oldest payload changes before it is dropped",
        old="memory.output_enable.eq(~has_shown | self.retire)",
        new="memory.output_enable.eq(1)",
    ),
)
