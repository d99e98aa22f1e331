# SPDX-License-Identifier: Apache-2.0
"""The test of the interlock against Python lists: items leave in order, in time, never early."""

from collections import deque

import cocotb
import pytest
from amaranth.lib import data

from systola.hdl.parts.interlock import Check, Interlock
from systola.verif.kit.launch import simulators
from systola.verif.units.parts.list_model import Entries, Entry
from systola.verif.units.unit import Bench, rng, run_unit

DEPTH = 4
LISTS = ("filling", "draining", "summing")
SPACE = 256
"""The first address of parameter entries in list `filling`; lines have the addresses below."""
LAST = {"filling": 511, "draining": 63, "summing": 31}
FLAGS = ("reads", "sums", "enters", "alone")
ITEM = data.StructLayout({"number": 16, "line": 6, "row": 5, "entry": 4, **dict.fromkeys(FLAGS, 1)})


def unit():
    return Interlock(
        item=ITEM,
        checks=[
            Check(watched="filling", address="line", used="reads"),
            Check(watched="draining", address="line", used="reads"),
            Check(watched="summing", address="row", used="sums"),
            Check(watched="filling", address="entry", space=SPACE, used="enters"),
            Check(watched="draining", used="alone"),
        ],
        depth=DEPTH,
        widths={"filling": 9, "draining": 6, "summing": 5},
    )


class Model(Bench):
    """A bench of the interlock and the lists that it watches.

    Each item has the numbers of the entries that it waits for.
    """

    def __init__(self, dut, name):
        super().__init__(dut, unit())
        self.random = rng("interlock", name)
        self.lists = {name: Entries(DEPTH) for name in LISTS}
        self.entries = 0
        self.items = 0
        self.inside = deque()
        self.clear_since = None
        self.now = 0
        self.left = []

    def push(self, name, low, high):
        """Push an entry into list `name`; the masks of later items may name it."""
        self.lists[name].take(Entry(self.entries, low, high))
        self.entries += 1

    def checks(self, item):
        """Return the list and the address of each check of an item, and whether the item uses the
        check.
        """
        return [
            ("filling", item["line"], item["reads"]),
            ("draining", item["line"], item["reads"]),
            ("summing", item["row"], item["sums"]),
            ("filling", SPACE + item["entry"], item["enters"]),
            ("draining", None, item["alone"]),
        ]

    def blocked(self, item):
        """Return whether an item's masks hold it back in this cycle."""
        return any(
            used and self.lists[name].holds(item["masks"][name], address)
            for name, address, used in self.checks(item)
        )

    def needed(self, item):
        """Return whether an entry that an item waits for still needs an address of the item."""
        return any(
            used and entry.number in item["awaits"] and (address is None or entry.needs(address))
            for name, address, used in self.checks(item)
            for entry in self.lists[name]
        )

    async def step(self, item=None, *, ready=True, retire=(), advance=None):
        """Run one cycle that offers `item`, or none; return whether it was accepted.

        At the end of the cycle, the oldest entry leaves each list named in `retire`. `advance` has,
        by name of a list, the address that its oldest entry reaches.
        """
        noise = self.random.getrandbits
        masks = {name: noise(5) for name in LISTS}
        if item is not None:
            masks = {name: self.lists[name].mask(item["awaits"]) for name in LISTS}
            item = {**item, "masks": masks}
            fields = {name: item[name] for name in ITEM.members}
        await self.cycle(
            input__valid=item is not None,
            input__payload=fields if item is not None else noise(ITEM.size),
            awaited=masks,
            progress={name: self.lists[name].progress(retires=name in retire) for name in LISTS},
            output__ready=ready,
        )
        valid, taken = self.get("output__valid"), item is not None and self.get("input__ready")
        if valid:
            oldest = self.inside[0]
            assert self.get("output__payload").number == oldest["number"]
            assert not self.needed(oldest), "too early"
            assert not any(self.get("waits")[name] for name in LISTS)
        if valid and ready:
            self.left.append((self.inside.popleft()["number"], self.now))
            self.clear_since = None
        elif self.inside and not self.blocked(self.inside[0]):
            self.clear_since = self.now if self.clear_since is None else self.clear_since
            assert valid or self.now <= self.clear_since + 1, "clear, and not offered"
        if taken:
            self.inside.append(item)
        for inside in self.inside:
            inside["masks"] = {
                name: self.lists[name].kept(mask, name in retire)
                for name, mask in inside["masks"].items()
            }
        for name, base in (advance or {}).items():
            self.lists[name].advance(base)
        for name in retire:
            self.lists[name].retire()
        self.now += 1
        return bool(taken)

    def some(self):
        """Return a random item that waits for any of the present entries."""
        random = self.random
        numbers = [e.number for entries in self.lists.values() for e in entries]
        self.items += 1
        return {
            "number": self.items,
            "line": random.randrange(12),
            "row": random.randrange(12),
            "entry": random.randrange(12),
            "reads": random.random() < 0.8,
            "sums": random.random() < 0.5,
            "enters": random.random() < 0.3,
            "alone": random.random() < 0.3,
            "awaits": {number for number in numbers if random.random() < 0.5},
        }


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.6], lively=[0.05, 0.3])
async def random_use(dut, rate, lively):
    """Check the interlock on items with any masks, while lists move and the output stalls."""
    bench = Model(dut, f"{rate} {lively}")
    await bench.start()
    random = bench.random
    item = None
    for _ in range(3000):
        retire = [name for name in LISTS if bench.lists[name] and random.random() < lively]
        advance = {
            name: random.randint(
                max(bench.lists[name][0].base, bench.lists[name][0].reached),
                bench.lists[name][0].end,
            )
            for name in LISTS
            if bench.lists[name] and name not in retire and random.random() < lively
        }
        if item is None and random.random() < rate:
            item = bench.some()
        taken = await bench.step(item, ready=random.random() < rate, retire=retire, advance=advance)
        item = None if taken else item
        for name in LISTS:
            if len(bench.lists[name]) < DEPTH and random.random() < 2 * lively:
                low = random.randrange(12) + SPACE * (name == "filling" and random.random() < 0.3)
                if bench.lists[name] and random.random() < 0.4:
                    low = bench.lists[name][-1].end
                low = min(low, LAST[name] - 6)
                bench.push(name, low, low + random.randint(1, 6))
    assert len(bench.left) > 50
    assert [number for number, _ in bench.left] == list(range(1, len(bench.left) + 1))


@cocotb.test
async def full_rate(dut):
    """Check that items with nothing to wait for leave two cycles after they came, one a cycle.

    Items that queued up after a waiting item leave one a cycle as well.
    """
    bench = Model(dut, "full")
    await bench.start()
    free = {"line": 3, "row": 3, "entry": 3, **dict.fromkeys(FLAGS, 1), "awaits": set()}
    for number in range(20):
        assert await bench.step(free | {"number": number})
    assert bench.left == [(number, number + 2) for number in range(18)]
    for _ in range(3):
        await bench.step()
    assert not bench.inside

    bench.push("filling", 0, 9)
    waiting = free | {"line": 5, "enters": 0, "awaits": {0}}
    assert await bench.step(waiting | {"number": 20})
    number = 21
    for cycle in range(6):
        number += await bench.step(
            free | {"number": number}, advance={"filling": max(0, cycle - 1)}
        )
    assert number == 23 and len(bench.left) == 20 and bench.get("waits").filling
    for _ in range(10):
        number += await bench.step(free | {"number": number}, advance={"filling": 6})
    when = dict(bench.left)
    assert [when[n] - when[20] for n in range(20, 26)] == list(range(6))


@pytest.mark.parametrize("simulator", simulators())
def test_interlock(simulator):
    run_unit("test_interlock", simulator, unit())
