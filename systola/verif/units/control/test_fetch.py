# SPDX-License-Identifier: Apache-2.0
"""The test of instruction fetch on narrow and wide buses: order, window, errors, latency, jumps."""

from itertools import pairwise

import cocotb
import pytest
from cocotb.triggers import FallingEdge

from systola.hdl.control.fetch import Fetch, fetched_ahead
from systola.verif.units.control.fetch_bench import WORD, FetchBench
from systola.verif.units.unit import chosen_variant, rng, run_unit, small_config, variants

CONFIGS = {
    "4": small_config(instruction_buffer=32),
    "16": small_config(host_bus_bytes=16),
    "32": small_config(host_bus_bytes=32, instruction_buffer=32),
    "64": small_config(host_bus_bytes=64, instruction_buffer=32),
    "128": small_config(host_bus_bytes=128, instruction_buffer=32),
    "8, short bursts": small_config(host_bus_bytes=8, max_burst_beats=2, instruction_buffer=128),
}
CHUNKS = {"4": 4, "16": 4, "32": 4, "64": 4, "128": 8, "8, short bursts": 1}
"""The number of instructions in one request, by variant."""
CAPACITIES = {"4": 19, "16": 51, "32": 20, "64": 20, "128": 8, "8, short bursts": 118}
"""The largest number of instructions of a loop that is fetched only once, wherever it lies."""
LIMIT = 8192
PACES = [(0, 1, 1, 1), (7, 1, 1, 1), (0, 0.4, 0.5, 0.5), (3, 1, 1, 0.1), (2, 0.3, 1, 1)]


def unit(variant=None):
    return Fetch(config=CONFIGS[variant or chosen_variant()])


class Memory(FetchBench):
    """A bench of the instruction fetch alone, with jumps.

    `target` gets the number of an instruction and returns the goal of a jump, or None.
    """

    def __init__(self, dut, name, *, start=0, **settings):
        chance = rng("fetch", name, chosen_variant())
        memory = chance.randbytes(LIMIT)
        config = CONFIGS[chosen_variant()]
        super().__init__(dut, unit(), config, chance, memory, start=start, **settings)
        self.chunk = CHUNKS[chosen_variant()]
        self.target = lambda number: None
        self._goes = None

    async def cycle(self, **inputs):
        """Run one cycle; a jump comes only in a cycle in which an instruction is taken."""
        self.set(jump=0, **inputs)
        await FallingEdge(self.clock)
        self._goes = None
        if self.get("instruction__valid") and self._driven["instruction__ready"]:
            self._goes = self.target(self.get("instruction__payload").pc)
            if self._goes is not None:
                self.set(jump=1, jump_to=self._goes)
        await super().cycle()

    def took(self, instruction):
        assert (instruction.word, instruction.error) == self.word(instruction.pc)
        return instruction.pc + 1 if self._goes is None else self._goes

    async def run(self, count):
        """Run until `count` instructions have been taken, and fail if this takes too long."""
        since = self.now
        while len(self.taken) < count:
            await self.step()
            assert self.now < since + 200 * count + 1000, "too slow"


@cocotb.test
@cocotb.parametrize((("latency", "ask", "answer", "take"), PACES))
async def programs(dut, latency, ask, answer, take):
    """Check that all instructions up to the end of the window are fetched, some with an error."""
    start = 128 * rng("fetch start", latency, ask).randrange(LIMIT // 256, LIMIT // 128)
    rates = {"ask": ask, "answer": answer, "take": take}
    bench = Memory(dut, f"{latency} {ask}", start=start, latency=latency, **rates)
    await bench.start()
    bench.bad = {bench.random.randrange(start, LIMIT, bench.bus) for _ in range(3)}
    for _ in range(5):
        await bench.step()
        assert not bench.requested, "not enabled"
    bench.set(enable=1)
    count = (LIMIT - start) // WORD
    await bench.run(count)
    for cycle in range(20):
        await bench.step()
        bench.expect("exhausted", cycle > 1)
    assert [number for _, number in bench.taken] == list(range(count))
    assert bench.requested == list(range(start, LIMIT, bench.chunk * WORD))


@cocotb.test
async def latency(dut):
    """Check that the first request comes at once, and then an instruction every two cycles.

    This needs a memory that is fast enough, as here.
    """
    bench = Memory(dut, "latency", start=256)
    await bench.start()
    await bench.step(enable=1)
    assert bench.requested == [256]
    await bench.run(40)
    beats = max(WORD // bench.bus, 1)
    cycles = [cycle for cycle, _ in bench.taken]
    assert cycles[0] == beats + 4, "request, beats, a register, the memory and its register"
    assert [b - a for a, b in pairwise(cycles)] == [max(beats, 2)] * 39


@cocotb.test
async def urgency(dut):
    """Check that requests are urgent only if no instruction is left, coming, or in the decoder."""
    bench = Memory(dut, "urgency", latency=10, ask=0.0)
    await bench.start()
    bench.set(enable=1)
    for starved in (1, 0, 1):
        await bench.step(starved=starved)
        bench.expect("urgent", starved)
    bench.rates = 1.0, 1.0, 1.0
    for _ in range(2):
        await bench.step()
    while not bench.taken:
        await bench.step()
        assert not bench.get("urgent")


@cocotb.test
@cocotb.parametrize(place=range(8), beyond=[0, 1])
async def loops(dut, place, beyond):
    """Check that a loop of the guaranteed size is fetched only once, wherever it lies, and never
    pauses.
    """
    variant = chosen_variant()
    capacity = Fetch.loop_capacity(CONFIGS[variant])
    assert capacity == CAPACITIES[variant]
    bench = Memory(dut, f"loops {place}", latency=5)
    # Here the jump comes in the cycle in which the last instruction is taken, earlier than in the
    # machine. So the body may have one instruction more.
    body = range(24 + place, 24 + place + capacity + 1 + beyond)
    bench.target = lambda number: body[0] if number == body[-1] else None
    await bench.start()
    bench.set(enable=1)
    await bench.run(body[-1] + 1)
    counts = [len(bench.requested)]
    for _ in range(4):
        await bench.run(len(bench.taken) + len(body))
        counts.append(len(bench.requested))
    if not beyond:
        assert len(set(bench.requested)) == len(bench.requested), "nothing is fetched again"
        cycles = [cycle for cycle, _ in bench.taken[body[-1] :]]
        assert {late - soon for soon, late in pairwise(cycles)} == {2}
    elif (body[-1] + fetched_ahead(CONFIGS[variant])) % bench.chunk == 0:
        assert counts[-1] > counts[0], "the worst place"
    bench.target = lambda number: None
    await bench.run(len(bench.taken) + len(body) + 40)
    assert bench.taken[-1][1] == body[-1] + 40


@cocotb.test
async def one_instruction(dut):
    """Check an instruction that jumps to itself as often as possible."""
    bench = Memory(dut, "itself", latency=5)
    left = 20

    def target(number):
        nonlocal left
        left -= number == 9 and left > 0
        return 9 if number == 9 and left else None

    bench.target = target
    await bench.start()
    bench.set(enable=1)
    await bench.run(40)
    numbers = [number for _, number in bench.taken]
    assert numbers == [*range(9), *([9] * 20), *range(10, 21)]
    cycles = [cycle for cycle, number in bench.taken if number == 9]
    assert cycles == list(range(cycles[0], cycles[0] + 40, 2))


@cocotb.test
async def unwanted_request(dut):
    """Check a request that is on offer while a jump leads elsewhere.

    The request stays on offer, and its beats are dropped.
    """
    bench = Memory(dut, "unwanted")
    config = CONFIGS[chosen_variant()]
    # Taking this instruction makes room for another request.
    end = config.instruction_buffer + -fetched_ahead(config) % bench.chunk
    bench.target = lambda number: 1 if number == end else None
    await bench.start()
    bench.set(enable=1)
    await bench.run(end)
    bench.rates = 0.0, 1.0, 1.0
    await bench.run(end + 1)
    for _ in range(5):
        await bench.step()
        assert bench.get("request__valid")
    bench.rates = 1.0, 1.0, 1.0
    before = len(bench.requested)
    await bench.run(end + 6)
    unwanted, *again = bench.requested[before : before + 3]
    assert unwanted > end * WORD
    first = 1 - 1 % bench.chunk
    assert again == [first * WORD, (first + bench.chunk) * WORD]
    assert [number for _, number in bench.taken[end:]] == [end, 1, 2, 3, 4, 5]


@cocotb.test
@cocotb.parametrize((("latency", "ask", "answer", "take"), PACES), far=[0.02, 0.5])
async def random_jumps(dut, latency, ask, answer, take, far):
    """Check random jumps, near and far, from any instruction, also at the end of the window."""
    name = f"jumps {latency} {ask} {far}"
    rates = {"ask": ask, "answer": answer, "take": take}
    bench = Memory(dut, name, start=LIMIT - 128 * WORD, latency=latency, **rates)
    bench.bad = {bench.random.randrange(bench.program, LIMIT, bench.bus) for _ in range(3)}
    depth = CONFIGS[chosen_variant()].instruction_buffer

    def target(number):
        if bench.random.random() > (0.5 if number == 127 else 0.05):
            return None
        reach = 128 if bench.random.random() < far else depth
        return bench.random.randint(max(number - reach, 0), number)

    bench.target = target
    await bench.start()
    for _ in range(2500):
        await bench.step(enable=1, starved=bench.random.getrandbits(1))
    assert len(bench.taken) > 40


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_fetch(simulator, variant):
    run_unit("test_fetch", simulator, unit(variant), variant=variant)
