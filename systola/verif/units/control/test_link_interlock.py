# SPDX-License-Identifier: Apache-2.0
"""The test of waits between link instructions and instructions of other units.

Each sender and receiver of the link unit has a list of its instructions. Its interlock lets a row
pass when no older instruction of another list uses the row.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from systola.hdl.commands import address_bits, row_bits
from systola.hdl.control.link_gate import LinkGate
from systola.hdl.control.link_interlock import LinkInterlock
from systola.hdl.control.link_list import LinkList
from systola.hdl.link_commands import LinkRow, link_address_bits
from systola.hdl.parts.in_flight import Region
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

OWN, OTHERS = "own", ("first", "second")
LISTS = (OWN, *OTHERS)
DEPTHS = {"4": 4, "3": 3}
SPACE = 12
"""The number of lines or rows in use; it is small, so that transfers often use the same one."""


class Rig(wiring.Component):
    """A unit for tests with three lists of link instructions, and with both units that watch them.

    The two units are the interlock of list `own`, and the gate, which holds back instructions of
    other units. List `first` is a sender's, list `second` a receiver's.
    """

    def __init__(self, *, depth: int):
        self._config = config = small_config(queue_depth=depth, links=True)
        row = stream.Signature(LinkRow(config=config))
        lines = Region(address_bits(config))
        members: dict[str, wiring.Member] = {}
        for name in LISTS:
            members |= {
                f"{name}_push": In(1),
                f"{name}_pushed": In(Region(link_address_bits(config))),
                f"{name}_advance": In(1),
                f"{name}_advance_to": In(link_address_bits(config)),
                f"{name}_retire": In(1),
                f"{name}_full": Out(1),
                f"{name}_empties": Out(1),
            }
        regions = dict.fromkeys(("buffer", "source", "operand"), In(lines))
        flags = dict.fromkeys(("taken", "restart", "passes", "fills", "sums"), In(1))
        accumulator = In(Region(row_bits(config)))
        super().__init__(
            {
                **members,
                **regions,
                **flags,
                "accumulator": accumulator,
                "clear": Out(1),
                "rows": In(row),
                "cleared": Out(row),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lists = {name: LinkList(config=self._config) for name in LISTS}
        lock = m.submodules.lock = LinkInterlock(config=self._config, others=OTHERS)
        gate = m.submodules.gate = LinkGate(
            config=self._config, sending=OTHERS[:1], receiving=OTHERS[1:]
        )
        for name, unit in lists.items():
            m.submodules[name] = unit
            for port in ("push", "pushed", "advance", "advance_to", "retire"):
                m.d.comb += getattr(unit, port).eq(getattr(self, f"{name}_{port}"))
            for port in ("full", "empties"):
                m.d.comb += getattr(self, f"{name}_{port}").eq(getattr(unit, port))
        connect(m, flipped(self.rows), lock.rows)
        connect(m, lock.cleared, flipped(self.cleared))
        for port in ("restart", "passes", "fills", "sums"):
            m.d.comb += getattr(gate, port).eq(getattr(self, port))
        for port in ("buffer", "source", "operand", "accumulator"):
            m.d.comb += getattr(gate, port).eq(getattr(self, port))
        m.d.comb += [
            lock.push.eq(self.own_push),
            lock.free.eq(lists[OWN].free),
            lock.taken.eq(self.taken),
            *(lock.others[name].eq(lists[name].view) for name in OTHERS),
            *(gate.lists[name].eq(lists[name].view) for name in OTHERS),
            self.clear.eq(gate.clear),
        ]
        return m


@dataclass
class Entry:
    """An instruction under way: its unfinished region, and its number in the order of issue."""

    sums: int
    base: int
    end: int
    number: int

    def uses(self, sums: int, place: int) -> bool:
        return self.sums == sums and self.base <= place < self.end


class Model:
    """A model of the lists of link instructions, with the functions that drive them."""

    def __init__(self, bench: Bench, random, depth: int):
        self.bench, self.random, self.depth = bench, random, depth
        self.shift = link_address_bits(small_config(links=True)) - 1
        self.lists: dict[str, deque[Entry]] = {name: deque() for name in LISTS}
        self.issued = 0

    def region(self) -> tuple[int, int, int]:
        size = self.random.randint(1, 5)
        base = self.random.randint(0, SPACE - size)
        return self.random.getrandbits(1), base, base + size

    def issue(self, name: str) -> Entry | None:
        """Issue another random instruction into list `name`, if the list has room."""
        if len(self.lists[name]) == self.depth:
            self.bench.set(**{f"{name}_push": 0})
            return None
        entry = Entry(*self.region(), number=self.issued)
        self.issued += 1
        self.lists[name].append(entry)
        at = entry.sums << self.shift
        pushed = {"base": at + entry.base, "end": at + entry.end}
        self.bench.set(**{f"{name}_push": 1, f"{name}_pushed": pushed})
        return entry

    def advance(self, name: str, chance: float, fresh: bool) -> None:
        """Advance the oldest entry of list `name`, which leaves with its last line.

        With `fresh` the youngest entry comes in this cycle, and is not in the list yet.
        """
        entries = self.lists[name]
        moves = len(entries) > fresh and self.random.random() < chance
        self.bench.set(**{f"{name}_advance": int(moves), f"{name}_retire": 0})
        if moves:
            oldest = entries[0]
            oldest.base += 1
            done = oldest.base == oldest.end
            to = (oldest.sums << self.shift) + oldest.base
            self.bench.set(**{f"{name}_advance_to": to, f"{name}_retire": int(done)})
            if done:
                entries.popleft()


@cocotb.test
@cocotb.parametrize(pace=[0.1, 0.5, 1.0])
async def rows_wait_for_older_ones(dut, pace):
    """Check that no row passes the interlock while an older instruction still uses it.

    All rows pass in order.
    """
    random = rng("link_interlock", pace)
    depth = DEPTHS[chosen_variant()]
    bench = Bench(dut, Rig(depth=depth))
    await bench.start()
    model = Model(bench, random, depth)
    # rows that are still to be offered to the interlock
    waiting: deque[tuple[Entry, int]] = deque()
    expected: deque[tuple[Entry, int]] = deque()
    queued: deque[Entry] = deque()
    owners: deque[Entry] = deque()
    offered = False
    passed = 0
    for _ in range(3000):
        name = random.choice((*LISTS, None))
        for each in LISTS:
            if each != name:
                bench.set(**{f"{each}_push": 0})
        came = model.issue(name) if name else None
        if came and name == OWN:
            queued.append(Entry(came.sums, came.base, came.end, came.number))
            owners.append(came)
        for other in OTHERS:
            model.advance(other, pace, bool(came) and name == other)
        # An instruction of the interlock's own list leaves when all of its rows have been cleared.
        own = model.lists[OWN]
        leaves = bool(own) and own[0] is not came and own[0].base == own[0].end
        bench.set(own_retire=int(leaves))
        if leaves:
            own.popleft()
        taken = not waiting and bool(queued) and queued[0].number != (came and came.number)
        offered = bool(waiting) and (offered or random.random() < 0.8)
        ready = random.random() < 0.8
        row = {}
        if waiting:
            entry, place = waiting[0]
            row = {"sums": entry.sums, "place": place}
        bench.set(
            taken=int(taken), rows__valid=int(offered), rows__payload=row, cleared__ready=int(ready)
        )
        await bench.cycle()
        if offered and bench.get("rows__ready"):
            expected.append(waiting.popleft())
            offered = False
        if taken:
            entry = queued.popleft()
            waiting += [(entry, place) for place in range(entry.base, entry.end)]
        if ready and bench.get("cleared__valid"):
            entry, place = expected.popleft()
            found = bench.get("cleared__payload")
            assert (found.sums, found.place) == (entry.sums, place)
            for other in OTHERS:
                for older in model.lists[other]:
                    assert older.number > entry.number or not older.uses(entry.sums, place)
            owners[0].base += 1
            if owners[0].base == owners[0].end:
                owners.popleft()
            passed += 1
    assert passed > 100


def in_the_way(model, uses, flags):
    """Return whether an instruction under way uses an address that must not be touched yet."""
    writes = {name for name, flag in (("buffer", "fills"), ("accumulator", "sums")) if flags[flag]}
    return any(
        entry.uses(use == "accumulator", place) and (name != OTHERS[0] or use in writes)
        for name in OTHERS
        for entry in model.lists[name]
        for use, (base, end) in uses.items()
        for place in range(base, end)
    )


@cocotb.test
async def the_gate_lets_go(dut):
    """Check that the gate opens only when no link instruction is in the way, and opens in time."""
    random = rng("link_gate")
    depth = DEPTHS[chosen_variant()]
    bench = Bench(dut, Rig(depth=depth))
    await bench.start()
    model = Model(bench, random, depth)
    held = 0
    for _ in range(150):
        for name in OTHERS:
            for _ in range(random.randint(0, 2)):
                model.issue(name)
                await bench.cycle(restart=1)
                bench.set(**{f"{name}_push": 0})
        uses = dict.fromkeys(("buffer", "source", "operand", "accumulator"), (0, 0))
        for name in uses:
            if random.random() < 0.5:
                uses[name] = model.region()[1:]
        flags = {name: random.getrandbits(1) for name in ("fills", "sums")}
        passes = int(random.random() < 0.1)
        bench.set(**{name: {"base": base, "end": end} for name, (base, end) in uses.items()})
        await bench.cycle(restart=1)
        bench.set(restart=0, passes=passes, **flags)

        for cycle in range(400):
            for name in OTHERS:
                model.advance(name, 0.05 if cycle < 100 else 0.5, False)
            blocked = in_the_way(model, uses, flags) and not passes
            await bench.cycle()
            if cycle and bench.get("clear"):
                assert not blocked
                break
            held += 1
        else:
            raise AssertionError("the gate stays shut")
        for name in OTHERS:
            bench.set(**{f"{name}_advance": 0, f"{name}_retire": 0})
    assert held > 300


@pytest.mark.parametrize(("simulator", "variant"), variants(*DEPTHS))
def test_link_interlock(simulator, variant):
    run_unit("test_link_interlock", simulator, Rig(depth=DEPTHS[variant]), variant=variant)
