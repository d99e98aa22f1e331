# SPDX-License-Identifier: Apache-2.0
"""Lists of regions under way against a Python list, and the comparisons made with them."""

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from systola.hdl.parts.in_flight import InFlight, Region, holds, overlaps
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, rng, run_unit

DEPTH = 4
CYCLES = 3000


class Watched(wiring.Component):
    """A list, and which of its entries hold `address`, and touch what is `pushed`."""

    def __init__(self):
        entry = data.StructLayout({"tag": 6, "region": Region(8)})
        self._list = InFlight(entry=entry, depth=DEPTH, advancing="region")
        super().__init__(
            {
                **self._list.signature.members,
                "address": In(8),
                "holds": Out(DEPTH),
                "touches": Out(DEPTH),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.list = inner = self._list
        for name, member in inner.signature.members.items():
            mine, its = getattr(self, name), getattr(inner, name)
            m.d.comb += its.eq(mine) if member.flow is In else mine.eq(its)
        regions = [entry.region for entry in inner.entries]
        for i, region in enumerate(regions):
            m.d.comb += [
                self.holds[i].eq(holds(region, self.address)),
                self.touches[i].eq(overlaps(region, self.pushed.region)),
            ]
        return m


def unit():
    return Watched()


def region(random):
    base = random.randint(0, 40)
    return {"base": base, "end": base + random.randint(1, 8)}


def contents(entries):
    """All places of a list, whether they count or not."""
    return [
        {"tag": entry.tag, "region": {"base": entry.region.base, "end": entry.region.end}}
        for entry in entries
    ]


def check(bench, entries):
    """The list shows `entries`, oldest first, and nothing else."""
    valid, shown, full = bench.gets("valid", "entries", "full")
    assert valid == (1 << len(entries)) - 1
    assert full == (len(entries) == DEPTH)
    assert contents(shown)[: len(entries)] == entries


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.5])
async def random_use(dut, rate):
    """Any mixture of push, retire and advance in one cycle."""
    bench = Bench(dut, unit())
    await bench.start()
    random = rng("in_flight", rate)
    entries = []
    told = []
    for _ in range(CYCLES):
        push = len(entries) < DEPTH and random.random() < rate
        retire = bool(entries) and random.random() < (0.5 if rate == 1 else rate)
        advance = bool(entries) and random.random() < 0.5
        pushed = {"tag": random.getrandbits(6), "region": region(random)}
        base = random.randint(0, 48)
        address = random.randint(0, 50)
        await bench.cycle(
            push=push,
            pushed=pushed,
            retire=retire,
            advance=advance,
            advance_to=base,
            address=address,
        )
        check(bench, entries)
        assert told[: len(entries)] == entries
        told = contents(bench.get("following"))
        for i, r in enumerate(entry["region"] for entry in entries):
            assert bench.get("holds") >> i & 1 == (r["base"] <= address < r["end"])
            common = set(range(r["base"], r["end"])) & set(
                range(pushed["region"]["base"], pushed["region"]["end"])
            )
            if r["base"] < r["end"]:
                assert (bench.get("touches") >> i & 1) == bool(common)
        if advance:
            entries[0] = {**entries[0], "region": {**entries[0]["region"], "base": base}}
        if retire:
            entries.pop(0)
        if push:
            entries.append(pushed)


@cocotb.test
async def one_in_one_out(dut):
    """A list of one entry that is replaced in every cycle, then filled and emptied."""
    bench = Bench(dut, unit())
    await bench.start()
    entry = [{"tag": i, "region": {"base": i, "end": i + 1}} for i in range(20)]
    await bench.cycle(push=1, pushed=entry[0])
    for i in range(1, 10):
        await bench.cycle(push=1, pushed=entry[i], retire=1)
        check(bench, [entry[i - 1]])
    for i in range(10, 13):
        await bench.cycle(push=1, pushed=entry[i], retire=0)
        check(bench, entry[9:i])
    await bench.cycle(push=0)
    for i in range(9, 13):
        await bench.cycle(retire=1)
        check(bench, entry[i:13])
    await bench.cycle(retire=0)
    check(bench, [])


@pytest.mark.parametrize("simulator", simulators())
def test_in_flight(simulator):
    run_unit("test_in_flight", simulator, unit())
