# SPDX-License-Identifier: Apache-2.0
"""The test of the unit that gives several cores one memory port.

Each core must get its own beats, with the right bytes. Weights that all cores request must be read
once.
"""

from __future__ import annotations

from collections import deque

import cocotb
import pytest

from systola.arch.config import ConfigError
from systola.arch.shared_memory import SharedMemory
from systola.hdl.pod.memory_mux import MemoryMux
from systola.hdl.pod.weight_broadcast import PATIENCE
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

CONFIG = small_config(host_bus_bytes=4, weight_bus_bytes=8, max_burst_beats=8)
CORES = 3
MEMORIES = {
    "broadcast": SharedMemory(16),
    "apart": SharedMemory(32, broadcast=False),
    "as wide": SharedMemory(8),
}
SIZE = 1 << 13
BASE = 0x45_6789_A000
WRONG = range(512, 768)
"""The bytes of memory that answer with an error."""
OKAY, SLVERR = 0, 2


def unit():
    return MemoryMux(config=CONFIG, cores=CORES, shared=MEMORIES[chosen_variant()])


class Memory:
    """A model of the memory, with answers in order for one ID, and in any order between IDs."""

    def __init__(self, bench, random, width, pace):
        self._bench, self._random, self._width, self._pace = bench, random, width, pace
        self.data = bytearray(random.randbytes(SIZE))
        self.reads = []
        """The offset in the memory, the number of words and the ID of each burst that was read."""
        self._asked = {}
        self._r = None
        self._addresses, self._words, self._answers, self._b = deque(), [], {}, None
        self._ready = {}

    def drive(self):
        chance = self._random.random
        self._ready = {name: chance() < self._pace for name in ("ar", "aw", "w")}
        queues = [queue for queue in self._asked.values() if queue]
        if self._r is None and queues and chance() < self._pace:
            self._r = self._random.choice(queues).popleft()
        answers = [queue for queue in self._answers.values() if queue]
        if self._b is None and answers and chance() < self._pace:
            self._b = self._random.choice(answers).popleft()
        rid, at, last = self._r or (0, 0, 0)
        word = self.data[at : at + self._width]
        bid, response = self._b or (0, 0)
        self._bench.set(
            memory_read__arready=self._ready["ar"],
            memory_read__rvalid=self._r is not None,
            memory_read__rid=rid,
            memory_read__rdata=int.from_bytes(word, "little"),
            memory_read__rresp=SLVERR if at in WRONG else OKAY,
            memory_read__rlast=last,
            memory_write__awready=self._ready["aw"],
            memory_write__wready=self._ready["w"],
            memory_write__bvalid=self._b is not None,
            memory_write__bid=bid,
            memory_write__bresp=response,
        )

    def sample(self):
        get, width = self._bench.get, self._width
        if self._r and get("memory_read__rready"):
            self._r = None
        if self._b and get("memory_write__bready"):
            self._b = None
        if get("memory_read__arvalid") and self._ready["ar"]:
            at, beats = get("memory_read__araddr") - BASE, get("memory_read__arlen") + 1
            number = get("memory_read__arid")
            assert at % width == 0 and at % 4096 + beats * width <= 4096
            self.reads.append((at, beats, number))
            self._asked.setdefault(number, deque()).extend(
                (number, at + i * width, i == beats - 1) for i in range(beats)
            )
        if get("memory_write__awvalid") and self._ready["aw"]:
            at = get("memory_write__awaddr") - BASE
            assert at % width == 0
            self._addresses.append((at, get("memory_write__awlen") + 1, get("memory_write__awid")))
        if get("memory_write__wvalid") and self._ready["w"]:
            word = get("memory_write__wdata").to_bytes(width, "little")
            self._words.append((word, get("memory_write__wstrb"), get("memory_write__wlast")))
        while self._addresses and len(self._words) >= self._addresses[0][1]:
            at, count, number = self._addresses.popleft()
            words, self._words = self._words[:count], self._words[count:]
            assert [last for *_, last in words] == [0] * (count - 1) + [1]
            for i, (word, strobe, _) in enumerate(words):
                for k in range(width):
                    if strobe >> k & 1:
                        self.data[at + i * width + k] = word[k]
            answer = number, SLVERR if at in WRONG else OKAY
            self._answers.setdefault(number, deque()).append(answer)


class Reader:
    """A model of a core's read port, which requests bursts, and checks their beats."""

    def __init__(self, bench, name, bus, bursts, random, pace):
        self._bench, self._name, self._bus, self._random, self._pace = (
            bench,
            name,
            bus,
            random,
            pace,
        )
        self._bursts, self._shown = deque(bursts), None
        self.pace_of_beats = pace
        self._expected = deque()
        self._ready = False

    @property
    def done(self):
        return not (self._bursts or self._shown or self._expected)

    def drive(self):
        if self._shown is None and self._bursts and self._random.random() < self._pace:
            self._shown = self._bursts.popleft()
        at, beats, number = self._shown or (0, 1, 0)
        self._ready = self._random.random() < self.pace_of_beats
        self._bench.set(
            **{
                f"{self._name}__arvalid": self._shown is not None,
                f"{self._name}__araddr": BASE + at,
                f"{self._name}__arlen": beats - 1,
                f"{self._name}__arid": number,
                f"{self._name}__rready": self._ready,
            }
        )

    def sample(self, memory):
        get, name = self._bench.get, self._name
        if self._shown and get(f"{name}__arready"):
            at, beats, number = self._shown
            for i in range(beats):
                self._expected.append((at + i * self._bus, number, i == beats - 1))
            self._shown = None
        if get(f"{name}__rvalid") and self._ready:
            at, number, last = self._expected.popleft()
            data = int.from_bytes(memory.data[at : at + self._bus], "little")
            assert get(f"{name}__rdata") == data
            assert (get(f"{name}__rid"), get(f"{name}__rlast")) == (number, last)
            assert get(f"{name}__rresp").value == (SLVERR if at in WRONG else OKAY)


class Writer:
    """A model of a core's write port that sends AW and W at any pace, in either order."""

    def __init__(self, bench, name, bus, bursts, random, pace):
        self._bench, self._name, self._random, self._pace = bench, name, random, pace
        self._addresses = deque((at, len(beats)) for at, beats in bursts)
        self._beats = deque(
            (*beat, i == len(beats) - 1) for _, beats in bursts for i, beat in enumerate(beats)
        )
        self._answers = deque(SLVERR if at in WRONG else OKAY for at, _ in bursts)
        self._shows = [False, False]

    @property
    def done(self):
        return not self._answers

    def drive(self):
        queues = self._addresses, self._beats
        for i, queue in enumerate(queues):
            self._shows[i] |= bool(queue) and self._random.random() < self._pace
        at, beats = self._addresses[0] if self._addresses else (0, 1)
        data, strobe, last = self._beats[0] if self._beats else (0, 0, 0)
        self._bench.set(
            **{
                f"{self._name}__awvalid": self._shows[0],
                f"{self._name}__awaddr": BASE + at,
                f"{self._name}__awlen": beats - 1,
                f"{self._name}__wvalid": self._shows[1],
                f"{self._name}__wdata": data,
                f"{self._name}__wstrb": strobe,
                f"{self._name}__wlast": last,
                f"{self._name}__bready": 1,
            }
        )

    def sample(self):
        get, name = self._bench.get, self._name
        if self._shows[0] and get(f"{name}__awready"):
            self._addresses.popleft()
            self._shows[0] = False
        if self._shows[1] and get(f"{name}__wready"):
            self._beats.popleft()
            self._shows[1] = False
        if get(f"{name}__bvalid"):
            assert get(f"{name}__bresp").value == self._answers.popleft()


class Cores(Bench):
    """A bench of the memory multiplexer between cores and a memory."""

    def __init__(self, dut, name, pace=1.0):
        super().__init__(dut, unit())
        self.random = rng("memory_mux", chosen_variant(), name)
        self.pace = pace
        self.width = MEMORIES[chosen_variant()].word_bytes
        self.memory = Memory(self, self.random, self.width, pace)
        self.readers, self.writers = {}, {}
        self.now = 0

    def burst(self, low, high, bus):
        """Return a random burst in bytes [low, high), as its address and its number of beats."""
        beats = self.random.choice((1, 1, 2, 3, 8))
        return bus * self.random.randint(low // bus, high // bus - beats), beats

    def reads(self, port, core, bursts):
        bus = {"host_read": 4, "weight_read": 8}[port]
        name = f"{port}__{core}"
        self.readers[name] = Reader(self, name, bus, bursts, self.random, self.pace)
        return self.readers[name]

    def writes(self, core, bursts):
        name = f"host_write__{core}"
        self.writers[name] = Writer(self, name, 4, bursts, self.random, self.pace)

    async def step(self):
        ends = [*self.readers.values(), *self.writers.values()]
        for each in (self.memory, *ends):
            each.drive()
        await self.cycle()
        for reader in self.readers.values():
            reader.sample(self.memory)
        for writer in self.writers.values():
            writer.sample()
        self.memory.sample()
        self.now += 1
        return all(each.done for each in ends)

    async def finish(self, limit=20_000):
        while not await self.step():
            assert self.now < limit


@cocotb.test
@cocotb.parametrize(pace=[1.0, 0.5, 0.1])
async def everybody_at_once(dut, pace):
    """Check reads and writes of all ports at once, at any pace; each core writes its own bytes."""
    bench = Cores(dut, f"all {pace}", pace)
    await bench.start()
    random = bench.random
    content = bytearray(bench.memory.data)
    for core in range(CORES):
        for port, bus in (("host_read", 4), ("weight_read", 8)):
            bursts = [(*bench.burst(0, 4096, bus), random.randint(0, 1)) for _ in range(60)]
            bench.reads(port, core, bursts).pace_of_beats = random.choice((1.0, 0.5, 0.1))
        low, writes = 4096 + 1024 * core, []
        for _ in range(30):
            at, beats = bench.burst(low, low + 1024, 4)
            writes.append(
                (at, [(random.getrandbits(32), random.getrandbits(4)) for _ in range(beats)])
            )
            for i, (data, strobe) in enumerate(writes[-1][1]):
                for k in range(4):
                    if strobe >> k & 1:
                        content[at + 4 * i + k] = data >> 8 * k & 255
        bench.writes(core, writes)
    await bench.finish()
    assert bench.memory.data == content


@cocotb.test
async def writes_may_fail(dut):
    """Check that each core gets the answers of its write bursts in order, some with an error."""
    bench = Cores(dut, "errors", 0.7)
    await bench.start()
    for core in range(CORES):
        places = [(256 + 256 * bench.random.randint(0, 2) + 4 * core, [(0, 0)]) for _ in range(40)]
        bench.writes(core, places)
    await bench.finish()


@cocotb.test
async def nobody_is_in_the_way(dut):
    """Check that a core without room for beats, and a core without data, stop no other core."""
    bench = Cores(dut, "stuck")
    await bench.start()
    stuck = [bench.reads(port, 0, [(0, 8, 0)] * 9) for port in ("host_read", "weight_read")]
    for reader in stuck:
        reader.pace_of_beats = 0
    bench.set(host_write__0__awvalid=1, host_write__0__awaddr=BASE, host_write__0__awlen=7)
    others = [
        bench.reads(port, core, [(1024 + 8 * i, 1, 0) for i in range(40)])
        for port in ("host_read", "weight_read")
        for core in (1, 2)
    ]
    for core in (1, 2):
        bench.writes(core, [(4096 + 1024 * core, [(7, 15)])] * 20)
    while not all(each.done for each in (*others, *bench.writers.values())):
        await bench.step()
        assert bench.now < 40 * PATIENCE
    for reader in stuck:
        reader.pace_of_beats = 1.0
    await bench.finish()


@cocotb.test
async def full_rate(dut):
    """Check the rates: one host port has a beat a cycle, and all ports together a word a cycle.

    The one host port sends bursts of eight beats, then bursts of one beat.
    """
    bench = Cores(dut, "rate")
    await bench.start()
    bench.reads("host_read", 0, [(32 * i, 8, 0) for i in range(20)])
    await bench.finish()
    assert bench.now <= 20 * 8 + 20
    bench.now = 0
    bench.reads("host_read", 0, [(4 * i, 1, 0) for i in range(40)])
    await bench.finish()
    assert bench.now <= 40 + 20
    bench.now = 0
    count = len(bench.memory.reads)
    for core in range(CORES):
        bench.reads("host_read", core, [(1024 * core + 32 * i, 8, 0) for i in range(32)])
    await bench.finish()
    words = sum(beats for _, beats, _ in bench.memory.reads[count:])
    assert words == CORES * 32 * -(-32 // bench.width)
    # 50 cycles are enough for the latency in both directions, and for the last beats
    assert bench.now <= max(words, 32 * 8) + 50


@cocotb.test
async def weights_are_read_once(dut):
    """Check that weights are read once while all cores request the same weights, each at its pace.

    If a core stays away, the others wait for it once. After a pulse of `together`, all cores share
    reads again.
    """
    bench = Cores(dut, "once")
    if not MEMORIES[chosen_variant()].broadcast:
        return
    await bench.start()
    bursts = [(64 * i, 8, 0) for i in range(30)]

    def bursts_read():
        return sum(number == CORES for *_, number in bench.memory.reads)

    for core, pace in enumerate((1.0, 0.4, 0.7)):
        bench.reads("weight_read", core, bursts).pace_of_beats = pace
    await bench.finish()
    assert bursts_read() == 30
    # Core 0 is away. The two other cores wait for it once, for PATIENCE cycles, and not again.
    bench.memory.reads.clear()
    bench.now = 0
    for core in (1, 2):
        bench.reads("weight_read", core, bursts)
    await bench.finish()
    assert bursts_read() == 30
    assert PATIENCE < bench.now < PATIENCE + 30 * 8 + 60
    # Core 0 alone wants these weights, and waits for no core after the first burst.
    bench.memory.reads.clear()
    bench.now = 0
    bench.reads("weight_read", 0, bursts)
    await bench.finish()
    assert bursts_read() == 30
    assert bench.now < PATIENCE + 30 * 8 + 60
    await bench.cycle(together=1)
    bench.set(together=0)
    bench.memory.reads.clear()
    for core in range(CORES):
        bench.reads("weight_read", core, bursts).pace_of_beats = 0.5
    await bench.finish()
    assert bursts_read() == 30


@pytest.mark.parametrize(("simulator", "variant"), variants(*MEMORIES))
def test_memory_mux(simulator, variant):
    component = MemoryMux(config=CONFIG, cores=CORES, shared=MEMORIES[variant])
    run_unit("test_memory_mux", simulator, component, variant=variant)


@pytest.mark.parametrize("width", [4, 12, 256])
def test_widths(width):
    with pytest.raises(ConfigError):
        SharedMemory(width).check(CONFIG)
