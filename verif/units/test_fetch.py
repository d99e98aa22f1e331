# SPDX-License-Identifier: Apache-2.0
"""Instruction fetch on narrow and wide buses: order, look-ahead, window, errors, latency."""

import cocotb
import pytest

from systola.hdl.fetch import Fetch
from systola.verif.kit.checker import StreamRules
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

CONFIGS = {
    "4": small_config(),
    "16": small_config(host_bus_bytes=16),
    "32": small_config(host_bus_bytes=32),
    "128": small_config(host_bus_bytes=128),
    "8, short bursts": small_config(host_bus_bytes=8, max_burst_beats=2),
}
CHUNKS = {"4": 64, "16": 64, "32": 64, "128": 128, "8, short bursts": 16}
"""Bytes of one request."""
WORD = 16
LIMIT = 8192


def unit(variant=None):
    return Fetch(config=CONFIGS[variant or chosen_variant()])


class Memory(Bench):
    """The unit with a memory that answers in order after `latency` cycles."""

    def __init__(self, dut, name, *, latency=0, ask=1.0, answer=1.0, take=1.0):
        super().__init__(dut, unit())
        self.bus = CONFIGS[chosen_variant()].host_bus_bytes
        self.chunk = CHUNKS[chosen_variant()]
        self.random = rng("fetch", name, chosen_variant())
        self.memory = self.random.randbytes(LIMIT)
        self.latency = latency
        self.rates = ask, answer, take
        self.bad = set()
        self.beats = []
        self.requested = []
        self.words = []
        self.arrived = []
        self.now = 0
        self._rules = StreamRules("instruction"), StreamRules("request")

    async def step(self, **inputs):
        """One cycle of memory and decoder."""
        ask, answer, take = (self.random.random() < rate for rate in self.rates)
        beat = None
        if self.beats and self.beats[0][0] <= self.now and answer:
            beat = self.beats.pop(0)[1]
        inputs |= {"request__ready": ask, "instruction__ready": take}
        inputs["beat__valid"] = beat is not None
        if beat is not None:
            data = int.from_bytes(self.memory[beat : beat + self.bus], "little")
            inputs["beat__payload"] = {"data": data, "error": beat in self.bad}
        await self.cycle(**inputs)
        assert self.get("beat__ready"), "there is always room for what was asked for"
        if beat is not None:
            ends = range(beat - beat % WORD + WORD, beat + self.bus + 1, WORD)
            self.arrived += [self.now] * len(ends)
        valid = self.get("request__valid")
        request = self.get("request__payload") if valid else None
        shown = (request.offset, request.length) if valid else None
        self._rules[1].observe(shown, ask)
        if valid and ask:
            start, beats = request.offset, request.length + 1
            self.requested.append(start)
            due = self.now + 1 + self.latency
            self.beats += [(due, start + i * self.bus) for i in range(beats)]
            assert beats * self.bus == self.chunk
        valid = self.get("instruction__valid")
        instruction = self.get("instruction__payload") if valid else None
        shown = (instruction.word, instruction.error) if valid else None
        self._rules[0].observe(shown, take)
        if valid and take:
            self.words.append((self.now, *shown))
        ahead = len(self.requested) * self.chunk // WORD - len(self.words)
        assert ahead <= max(8, 2 * self.chunk // WORD)
        self.now += 1

    def expected(self, start, count):
        """Words and errors of `count` instructions from byte `start` on."""
        found = []
        for place in range(start, start + count * WORD, WORD):
            size = max(self.bus, WORD)
            unit_start = place - place % size
            bad = any(unit_start <= beat < unit_start + size for beat in self.bad)
            found.append((int.from_bytes(self.memory[place : place + WORD], "little"), bad))
        return found


@cocotb.test
@cocotb.parametrize(
    (
        ("latency", "ask", "answer", "take"),
        [(0, 1, 1, 1), (7, 1, 1, 1), (0, 0.4, 0.5, 0.5), (3, 1, 1, 0.1), (2, 0.3, 1, 1)],
    )
)
async def programs(dut, latency, ask, answer, take):
    """All instructions up to the end of the window, some answered with an error."""
    bench = Memory(dut, f"{latency} {ask}", latency=latency, ask=ask, answer=answer, take=take)
    await bench.start()
    start = bench.random.randrange(LIMIT // 2, LIMIT, 128)
    bench.bad = {bench.random.randrange(start, LIMIT, bench.bus) for _ in range(3)}
    bench.set(program=start, limit=LIMIT)
    for _ in range(5):
        await bench.step()
        assert not bench.requested and not bench.get("exhausted"), "not enabled"
    bench.set(enable=1)
    count = (LIMIT - start) // WORD
    for _ in range(40000):
        await bench.step()
        assert not bench.get("exhausted") or len(bench.words) == count
        if bench.get("exhausted"):
            break
    else:
        raise AssertionError("never exhausted")
    assert bench.now == bench.words[-1][0] + 2, "in the cycle after the last instruction"
    assert [word[1:] for word in bench.words] == bench.expected(start, count)
    assert bench.requested == list(range(start, LIMIT, bench.chunk))
    for _ in range(20):
        await bench.step()
    assert len(bench.words) == count and bench.get("exhausted")


@cocotb.test
async def latency(dut):
    """An instruction is there one cycle after its last beat; the first request at once."""
    bench = Memory(dut, "latency", latency=3)
    await bench.start()
    bench.set(program=256, limit=LIMIT)
    await bench.step(enable=1)
    assert bench.requested == [256]
    while len(bench.words) < 40:
        await bench.step()
    previous = -1
    for arrived, (taken, _, _) in zip(bench.arrived, bench.words, strict=False):
        assert taken == max(arrived + 1, previous + 1)
        previous = taken


@cocotb.test
async def urgency(dut):
    """Urgent: nothing left, nothing on its way, and nothing in the decoder."""
    bench = Memory(dut, "urgency", latency=10, ask=0.0)
    await bench.start()
    bench.set(program=0, limit=LIMIT, enable=1)
    for starved in (1, 0, 1):
        await bench.step(starved=starved)
        assert bench.get("urgent") == starved
    bench.rates = 1.0, 1.0, 1.0
    await bench.step()
    while not bench.words:
        await bench.step()
        assert not bench.get("urgent")


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_fetch(simulator, variant):
    run_unit("test_fetch", simulator, unit(variant), variant=variant)
