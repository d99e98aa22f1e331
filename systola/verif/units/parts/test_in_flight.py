# SPDX-License-Identifier: Apache-2.0
"""The test of `InFlight`, a list of instructions under way, against a Python list.

Masks that name entries of the list, and the comparison of two regions, are tested, too.
"""

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.in_flight import Awaited, InFlight, Region, holds, overlaps, still
from systola.verif.kit.launch import simulators
from systola.verif.units.parts.list_model import Entries, Entry
from systola.verif.units.unit import Bench, rng, run_unit

DEPTH = 4
CYCLES = 3000


class Watched(wiring.Component):
    """A unit for tests with a list of instructions under way, a mask, a comparison of regions.

    `holds`: the mask holds `address` back. `still`: the mask is pending after the cycle. `touches`:
    regions `one` and `other` overlap.
    """

    def __init__(self):
        self._list = InFlight(width=8, depth=DEPTH)
        super().__init__(
            {
                **self._list.signature.members,
                "mask": In(Awaited(DEPTH)),
                "address": In(8),
                "one": In(Region(8)),
                "other": In(Region(8)),
                "holds": Out(1),
                "still": Out(1),
                "touches": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.list = inner = self._list
        for name, member in inner.signature.members.items():
            mine, its = getattr(self, name), getattr(inner, name)
            m.d.comb += its.eq(mine) if member.flow is In else mine.eq(its)
        m.d.comb += [
            self.holds.eq(holds(self.mask, inner.progress, self.address < inner.progress.reached)),
            self.still.eq(still(self.mask, inner.progress)),
            self.touches.eq(overlaps(self.one, self.other)),
        ]
        return m


def unit():
    return Watched()


def check(bench, entries, retires):
    """Check that the list shows `entries`, and no others."""
    valid, full, empties, free = bench.gets("valid", "full", "empties", "free")
    assert valid == (1 << len(entries)) - 1
    assert full == (len(entries) == DEPTH)
    assert empties == (len(entries) - retires <= 0)
    assert free == (entries.left + len(entries)) % DEPTH
    shown = bench.get("progress")
    for name, value in entries.shown(retires=retires).items():
        assert shown[name] == value, name


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.5])
async def random_use(dut, rate):
    """Check any mixture of push, retire and advance in one cycle.

    A mask must hold back each address that an entry in the mask still needs. It must also let
    other addresses pass, often enough.
    """
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("in_flight", rate)
    entries = Entries(DEPTH)
    passed = runs = 0
    rises, pushed = [False, False], False
    for number in range(CYCLES):
        push = len(entries) < DEPTH and not pushed and random.random() < rate
        # In its first cycles an entry does not change, and no mask names it.
        known = [entry for entry in entries if entry is not entries.fresh]
        retire = entries.under_way and random.random() < (0.5 if rate == 1 else rate)
        advance = None
        if entries.under_way and random.random() < 0.5:
            advance = random.randint(max(entries[0].base, entries[0].reached), entries[0].end)
        awaits = {entry.number for entry in known if random.random() < 0.5}
        mask, address = entries.mask(awaits), random.randint(0, 50)
        # The new entry often begins at the end of the entry before.
        base = entries[-1].end if entries and random.random() < 0.5 else random.randint(0, 40)
        new = Entry(number, base, base + random.randint(1, 8))
        one, other = ((base, base + random.randint(1, 8)) for base in random.sample(range(20), 2))
        await bench.cycle(
            push=push,
            rises=rises[0],
            retire=retire,
            advance=advance is not None,
            advance_to=random.getrandbits(8) if advance is None else advance,
            mask=mask,
            address=address,
            one=dict(zip(("base", "end"), one, strict=True)),
            other=dict(zip(("base", "end"), other, strict=True)),
        )
        check(bench, entries, retire)
        held, stays, touches = bench.gets("holds", "still", "touches")
        assert held == entries.holds(mask, address)
        assert stays == entries.kept(mask, retire)["pending"]
        assert held or not any(e.needs(address) for e in entries if e.number in awaits)
        assert touches == (one[0] < other[1] and other[0] < one[1])
        passed += bool(awaits) and not held
        runs += mask["run"] > 0 and not held
        if advance is not None:
            entries.advance(advance)
        if retire:
            entries.retire()
        rises, pushed = [rises[1], push and entries.rises(new)], push
        if push:
            entries.take(new)
    assert passed > 50 and runs > 10


@cocotb.test
async def one_in_one_out(dut):
    """Check a list of one entry that is replaced as often as possible, then filled and emptied."""
    bench = Bench(dut, unit())
    await bench.start()
    entries = Entries(DEPTH)
    for push, retire in (
        [(1, 0)] + [(0, 0), (0, 0), (1, 1)] * 9 + [(0, 0), (1, 0)] * 3 + [(0, 0)] * 2 + [(0, 1)] * 4
    ):
        await bench.cycle(push=push, retire=retire)
        check(bench, entries, retire)
        if retire:
            entries.retire()
        if push:
            entries.take(Entry(0, 0, 1))
    assert not entries


@pytest.mark.parametrize("simulator", simulators())
def test_in_flight(simulator):
    run_unit("test_in_flight", simulator, unit())
