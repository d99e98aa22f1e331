# SPDX-License-Identifier: Apache-2.0
"""The test of the queue in which the tags of Debug_Tag instructions wait to enter the trace.

The model keeps, for each tag, the set of instructions that the tag waits for.
"""

import itertools

import cocotb
import pytest

from systola.hdl.control.tag_queue import TagQueue
from systola.verif.kit.launch import simulators
from systola.verif.units.unit import Bench, rng, run_unit

DEPTH, UNITS, WAITING = 3, 4, 8
EVERY = (1 << UNITS) - 1


def unit():
    return TagQueue(depth=DEPTH)


class Model(Bench):
    """A bench of the queue, with models of the instructions under way in each unit and of waiting
    tags.
    """

    def __init__(self, dut):
        super().__init__(dut, unit())
        self.numbers = itertools.count()
        self.under_way = [[] for _ in range(UNITS)]
        self.waiting = []

    async def step(self, push=None, *, issue=0, retire=0, hold=0):
        """Run one cycle, and return the tag that entered the trace, or None.

        `push` is a new tag and the mask of units that the tag waits for. `issue` and `retire` are
        masks of units in which an instruction begins or completes. `hold` keeps tags from entering.
        """
        await self.cycle(
            push=push is not None,
            tag=push[0] if push else 0,
            units=push[1] if push else 0,
            under_way=[(1 << len(numbers)) - 1 for numbers in self.under_way],
            retire=retire,
            hold=hold,
        )
        self.expect("full", len(self.waiting) == WAITING)
        self.expect("one_at_most", len(self.waiting) <= 1)
        entered = None
        if self.waiting and not self.waiting[0][1] and not hold:
            entered = self.waiting.pop(0)[0]
            self.expect("entering", entered)
        self.expect("enters", entered is not None)
        if push:
            tag, units = push
            awaited = {n for u in range(UNITS) if units >> u & 1 for n in self.under_way[u]}
            self.waiting.append((tag, awaited))
        for u in range(UNITS):
            if retire >> u & 1:
                done = self.under_way[u].pop(0)
                for _, awaited in self.waiting:
                    awaited.discard(done)
            if issue >> u & 1:
                self.under_way[u].append(next(self.numbers))
        return entered

    def room(self):
        """Return the mask of the units that have room for another instruction."""
        return sum(1 << u for u in range(UNITS) if len(self.under_way[u]) < DEPTH)

    def busy(self):
        """Return the mask of the units that have instructions under way."""
        return sum(1 << u for u in range(UNITS) if self.under_way[u])


@cocotb.test
@cocotb.parametrize(often=[0.2, 0.9], progress=[0.1, 0.3, 0.9])
async def random_use(dut, often, progress):
    """Check tags that come often or seldom, with fast and slow units.

    Each unit in turn is much slower than the others for a while.
    """
    bench = Model(dut)
    await bench.start()
    random = rng("tag_queue", often, progress)
    most = 0
    for number in range(3000):
        slow = number // 100 % (UNITS + 1)
        push = None
        if len(bench.waiting) < WAITING and random.random() < often:
            push = random.getrandbits(16), random.choice((0, EVERY, random.getrandbits(UNITS)))
        retire = issue = 0
        for u in range(UNITS):
            retire |= (random.random() < progress * (0.1 if u == slow else 1)) << u
            issue |= (random.random() < progress) << u
        retire &= bench.busy()
        hold = random.random() < 0.1
        await bench.step(push, issue=issue & (bench.room() | retire), retire=retire, hold=hold)
        most = max(most, len(bench.waiting))
    assert most == WAITING or often < 0.5
    while bench.busy():
        await bench.step(retire=bench.busy())
    for _ in range(WAITING):
        await bench.step()
    assert not bench.waiting, "none is forgotten"


@cocotb.test
async def each_unit(dut):
    """Check that a tag waits only for the units in its mask.

    The tag enters the trace in the cycle after the last of these units has completed.
    """
    bench = Model(dut)
    await bench.start()
    for units in range(1 << UNITS):
        await bench.step(issue=EVERY)
        assert await bench.step((7, units)) is None
        others = EVERY & ~units
        assert await bench.step(retire=others) == (None if units else 7)
        for u in range(UNITS):
            if units >> u & 1:
                assert await bench.step() is None
                assert await bench.step(retire=1 << u) is None
        assert await bench.step() == (7 if units else None)


@cocotb.test
async def nothing_under_way(dut):
    """Check that a tag enters the trace in the next cycle if no instruction is under way.

    This also holds if the last instruction completes in the cycle of the tag's push.
    """
    bench = Model(dut)
    await bench.start()
    assert await bench.step((1, EVERY)) is None
    assert await bench.step(issue=2) == 1
    assert await bench.step((2, 2), retire=2) is None
    assert await bench.step((3, EVERY)) == 2
    assert await bench.step() == 3


@cocotb.test
async def younger_instructions_pass(dut):
    """Check that tags wait for a slow unit while other units complete many instructions."""
    bench = Model(dut)
    await bench.start()
    await bench.step(issue=EVERY)
    await bench.step((0, 1))
    for tag in range(1, WAITING):
        await bench.step((tag, EVERY))
    for _ in range(100):
        await bench.step(issue=0b1110)
        await bench.step(retire=0b1110)
    await bench.step(retire=0b1111)
    assert [await bench.step() for _ in range(WAITING)] == list(range(WAITING))


@cocotb.test
async def a_tag_for_each_instruction(dut):
    bench = Model(dut)
    await bench.start()
    for tag in range(DEPTH):
        await bench.step(issue=4)
        await bench.step((tag, 4))
        await bench.step((tag + 10, 4))
    for tag in range(DEPTH):
        await bench.step(retire=4)
        assert [await bench.step() for _ in range(3)] == [tag, tag + 10, None]


@cocotb.test
async def most_completions(dut):
    """Check that tags enter in order, if the first waits for a slow unit, and others do not.

    The later tags wait for a fast unit, which completes its instructions before the slow one.
    """
    bench = Model(dut)
    await bench.start()
    await bench.step(issue=0b0011)
    await bench.step((0, 0b0011))
    for tag in range(1, WAITING):
        await bench.step(issue=0b0010, retire=0b0010)
        await bench.step((tag, 0b0010))
    await bench.step(retire=0b0010)
    assert await bench.step(retire=0b0001) is None
    assert [await bench.step() for _ in range(WAITING)] == list(range(WAITING))


@pytest.mark.parametrize("simulator", simulators())
def test_tag_queue(simulator):
    run_unit("test_tag_queue", simulator, unit())
