# SPDX-License-Identifier: Apache-2.0
"""The test of the host writer: every byte in host memory, bus rules, rates, errors, and `stop`."""

import types
from collections import deque

import cocotb
import numpy as np
import pytest

from systola.hdl.ports import BUFFER_LATENCY
from systola.hdl.transfers.host_writer import WATCHED, HostWriter
from systola.sim.memory import MemoryModel
from systola.verif.kit import scoreboard
from systola.verif.kit.axi_memory import AxiMemory
from systola.verif.kit.checker import AxiRules
from systola.verif.units.parts.list_model import Entries, Entry
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

CONFIGS = {
    "6 on 4": small_config(rows=4, cols=6, columns_per_stage=2, max_burst_beats=4),
    "5 on 8": small_config(
        rows=7, cols=5, columns_per_stage=1, host_bus_bytes=8, max_burst_beats=16
    ),
    "4 on 16": small_config(host_bus_bytes=16, max_burst_beats=1),
}
BASE = 0x12_3456_7000
SIZE = 16 * 1024


def unit(variant=None):
    return HostWriter(config=CONFIGS[variant or chosen_variant()])


class WriteOnly:
    """A wrapper of `dut` that adds silent read channels, which the memory model expects."""

    def __init__(self, dut):
        self._dut = dut

    def __getattr__(self, name):
        reads = name.startswith(("bus__ar", "bus__r"))
        return types.SimpleNamespace(value=0) if reads else getattr(self._dut, name)


class Writer(Bench):
    """A bench of the host writer with a buffer of random lines before it and a memory after it."""

    def __init__(self, dut, *, latency=0, stall=0.0, refuse=0.0, name=""):
        super().__init__(dut, unit())
        self.config = CONFIGS[chosen_variant()]
        self.pitch = -(-self.config.cols // self.config.host_bus_bytes) * self.config.host_bus_bytes
        self.random = rng("host_writer", name, chosen_variant())
        self.refuse = refuse
        self.lines = [
            self.random.randbytes(self.config.line_bytes) for _ in range(self.config.buffer_lines)
        ]
        model = MemoryModel(
            data=np.frombuffer(self.random.randbytes(SIZE), np.uint8).copy(),
            bus_bytes=self.config.host_bus_bytes,
            port=0,
            base=BASE,
            latency=latency,
            stall=stall,
            seed=self.random.getrandbits(8),
        )
        rules = AxiRules("host", self.config.host_bus_bytes, (BASE, BASE + SIZE))
        self.memory = AxiMemory(WriteOnly(dut), "bus_", model, rules)
        self.expected = model.data.copy()
        self.data = deque([0] * BUFFER_LATENCY)
        self.lists = {name: Entries(self.config.queue_depth) for name in WATCHED}
        self.awaits = set()  # numbers of the entries that the masks name
        self.beats = []
        self.strobed = 0
        self.bursts = 0
        self.errors = 0
        self.read = None  # line that was read in the cycle before
        self.now = 0

    def interlock(self, command):
        """Fill the lists with older instructions, some of which block `command`."""
        base, end = command["buffer"]["base"], command["buffer"]["end"]
        for entries in self.lists.values():
            for _ in range(self.random.randint(0, self.config.queue_depth - len(entries))):
                first = self.random.randint(base, end - 1)
                number = self.random.getrandbits(32)
                entries.take(Entry(number, first, self.random.randint(first, end)))
                if self.random.random() < 0.7:
                    self.awaits.add(number)

    def older(self):
        """Return masks and progress for this cycle, and let the oldest entries advance after it."""
        inputs = {"queue__masks": {}, "queue__progress": {}}
        for name, entries in self.lists.items():
            proceeds = bool(entries) and self.random.random() >= self.refuse
            reached = max(entries[0].base, entries[0].reached) if entries else 0
            retires = proceeds and reached == entries[0].end
            inputs["queue__masks"][name] = entries.mask(self.awaits)
            inputs["queue__progress"][name] = entries.progress(retires=retires)
            if retires:
                entries.retire()
            elif proceeds:
                entries.advance(reached + 1)
        return inputs

    def is_blocked(self, line):
        """Return whether an awaited older instruction still needs a line."""
        return any(
            entry.number in self.awaits and entry.needs(line)
            for entries in self.lists.values()
            for entry in entries
        )

    async def step(self, **inputs):
        """Run one cycle of buffer and memory, and check the unit's reads; some are refused."""
        ready = self.random.random() >= self.refuse
        inputs |= {"buffer__ready": ready, "base": BASE} | self.older()
        await self.cycle(**inputs, buffer__data=self.data.popleft())
        line = self.random.getrandbits(8 * self.config.line_bytes)
        self.expect("host_writing__advance", self.read is not None)
        if self.read is not None:
            self.expect("host_writing__advance_to", self.read + 1)
        self.read = None
        if self.get("buffer__enable"):
            address = self.get("buffer__address")
            assert not self.is_blocked(address), "reads a blocked line"
            if ready:
                line = int.from_bytes(self.lines[address], "little")
                self.read = address
        self.data.append(line)
        if self.dut.bus__wvalid.value and self.dut.bus__wready.value:
            self.beats.append(self.now)
            self.strobed += self.get("bus__wstrb") != 0
        if self.dut.bus__awvalid.value and self.dut.bus__awready.value:
            self.bursts += 1
        self.errors += self.get("error")
        self.memory.step()
        self.now += 1

    def command(self, *, host, buffer, rows, blocks, stride, tail, alternate=False):
        """Return the command for a matrix, and write the matrix into the expected memory."""
        bus, cols, pitch = self.config.host_bus_bytes, self.config.cols, self.pitch
        places = [(block, row) for block in range(blocks) for row in range(rows)]
        if alternate:
            places.sort(key=lambda place: place[1])
        # Rows may overlap in memory, so they are copied in the order in which the unit writes.
        for number, (block, row) in enumerate(places):
            start = host + row * stride + block * pitch
            line = self.lines[buffer + number][: tail if block == blocks - 1 else cols]
            self.expected[start : start + len(line)] = np.frombuffer(line, np.uint8)
        # Rows that are contiguous in memory are one run.
        lines = run = rows * blocks
        if rows > 1 and not (stride == blocks * pitch and (alternate or blocks == 1)):
            run = blocks if alternate else 1
        transfer = {
            "address": host,
            "beats": run * pitch // bus,
            "rows": 1 if run == lines else rows,
            "stride": stride,
            "blocks": 1 if run >= blocks else blocks,
        }
        # If the field `every` of a tail is set, the field `line` has no meaning.
        end = buffer + lines
        place = self.random.randint(buffer, end) if alternate else end - rows
        return {
            "transfer": transfer,
            "buffer": {"base": buffer, "end": end},
            "tail": {"line": place, "every": blocks if alternate else 0, "bytes": tail},
        }

    def some(self):
        """Return the command for a random matrix, and write it into the expected memory."""
        random, bus, pitch = self.random, self.config.host_bus_bytes, self.pitch
        rows, blocks = random.choice((1, 2, 5, 9)), random.choice((1, 1, 2, 4))
        stride = random.choice((bus, pitch, blocks * pitch, blocks * pitch + bus, 50 * pitch))
        size = (rows - 1) * stride + blocks * pitch
        host = random.randint(0, (SIZE - size) // bus) * bus
        if random.random() < 0.3 and size < 4096:
            host = 4096 - min(size // 2 // bus * bus, 4096 - bus)
        return self.command(
            host=host,
            buffer=random.randint(0, self.config.buffer_lines - rows * blocks),
            rows=rows,
            blocks=blocks,
            stride=stride,
            tail=random.randint(1, self.config.cols),
            alternate=random.random() < 0.5,
        )

    async def run(self, command, limit=5000):
        """Offer a command until the unit pops it, at its end, and withdraw it in the next cycle."""
        if self.refuse:
            self.interlock(command)
        await self.step(queue__command=command, queue__valid=1)
        for _ in range(limit):
            if self.get("queue__pop"):
                break
            await self.step()
        else:
            raise AssertionError("the command does not end")
        self.set(queue__valid=0)


@cocotb.test
@cocotb.parametrize(
    (
        ("latency", "stall", "refuse"),
        [(0, 0.0, 0.0), (30, 0.0, 0.0), (2, 0.3, 0.4), (0, 0.6, 0.0)],
    )
)
async def random_matrices(dut, latency, stall, refuse):
    bench = Writer(dut, latency=latency, stall=stall, refuse=refuse, name=f"{latency} {stall}")
    await bench.start()
    for _ in range(25):
        await bench.run(bench.some())
        if bench.random.random() < 0.5:
            await bench.step()
            assert not bench.get("queue__pop") and bench.get("quiet")
        scoreboard.check(bench.expected, bench.memory.model.data)
    assert bench.errors == 0


@cocotb.test
async def full_rate(dut):
    """Check that a beat goes out in every cycle from the eighth after the command.

    AW and W do not wait for each other.
    """
    bench = Writer(dut, latency=20)
    await bench.start()
    pitch, beats = bench.pitch, 24 * bench.pitch // bench.config.host_bus_bytes
    command = bench.command(host=0, buffer=3, rows=24, blocks=1, stride=pitch, tail=1)
    start = bench.now
    await bench.run(command)
    longest = bench.config.max_burst_beats
    if longest > 1 or bench.config.host_bus_bytes == pitch:
        assert bench.beats == list(range(bench.beats[0], bench.beats[0] + beats))
    assert bench.beats[0] - start == 8
    assert bench.bursts == -(-beats // longest)


@cocotb.test
async def blocked(dut):
    """Check that the unit announces no burst while the whole command is held back."""
    bench = Writer(dut)
    await bench.start()
    command = bench.some()
    for _ in range(30):
        await bench.step(queue__command=command, queue__valid=1, queue__blocked={"host_memory": 1})
        assert not bench.get("bus__awvalid") and not bench.get("bus__wvalid")
    bench.set(queue__blocked={})
    await bench.run(command)
    scoreboard.check(bench.expected, bench.memory.model.data)


@cocotb.test
async def error_answers(dut):
    bench = Writer(dut)
    await bench.start()
    pitch = bench.pitch
    bench.memory.model.error_range = BASE + pitch, BASE + 2 * pitch
    command = bench.command(host=0, buffer=0, rows=3, blocks=1, stride=2 * pitch, tail=1)
    await bench.run(command)
    assert bench.errors == 0
    command = bench.command(host=0, buffer=0, rows=1, blocks=2, stride=0, tail=1)
    await bench.run(command)
    assert bench.errors > 0


@cocotb.test
@cocotb.parametrize(stall=[0.0, 0.5])
async def stop(dut, stall):
    """Check that after `stop` announced bursts end without enabled bytes, and no new bursts begin.

    Offered beats do not change. The memory model checks the rules of the bus in each cycle.
    """
    for attempt in range(25):
        bench = Writer(dut, latency=12, stall=stall, name=f"stop {attempt}")
        await bench.start() if not attempt else None
        pitch, rows = bench.pitch, 12
        old = bench.memory.model.data.copy()
        stride = bench.random.choice((pitch, 2 * pitch))
        command = bench.command(host=64, buffer=0, rows=rows, blocks=1, stride=stride, tail=1)
        await bench.step(queue__command=command, queue__valid=1, stop=0)
        for _ in range(bench.random.randint(0, 30)):
            if bench.get("queue__pop"):
                break
            await bench.step()
        await bench.step(stop=1)
        await bench.step()
        # The beat and the burst on offer may still go out unchanged, and one more of each.
        strobed = bench.strobed + 2 * bool(bench.get("bus__wvalid"))
        announced = bench.bursts + 2 * bool(bench.get("bus__awvalid"))
        for _ in range(300):
            await bench.step()
            if bench.get("quiet"):
                break
        assert bench.get("quiet") and not bench.memory.rules.writing
        assert bench.bursts <= announced
        assert bench.strobed <= strobed
        wrong = bench.memory.model.data != old
        assert (bench.memory.model.data[wrong] == bench.expected[wrong]).all()
        dut.rst.value = 1
        await bench.cycle(queue__valid=0, stop=0)
        dut.rst.value = 0
        await bench.cycle()


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_host_writer(simulator, variant):
    run_unit("test_host_writer", simulator, unit(variant), variant=variant)
