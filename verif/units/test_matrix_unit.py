# SPDX-License-Identifier: Apache-2.0
"""MatrixMultiply through the ports of its unit, against numpy: sums, order, progress, cycles."""

import cocotb
import numpy as np
import pytest

from systola.hdl.matrix_unit import MatrixUnit
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

CONFIGS = {
    "4x6": small_config(cols=6, columns_per_stage=2),
    "5x3": small_config(rows=5, cols=3, columns_per_stage=3),
    "3x8": small_config(rows=3, cols=8, columns_per_stage=1),
}


def unit(variant=None):
    return MatrixUnit(config=CONFIGS[variant or chosen_variant()])


class Machine(Bench):
    """The unit between a buffer, a weight FIFO and accumulators."""

    def __init__(self, dut, name):
        super().__init__(dut, unit())
        self.config = config = CONFIGS[chosen_variant()]
        self.latency = 2 + config.rows + config.stages
        self.random = rng("matrix_unit", name, chosen_variant())
        data = np.random.default_rng(self.random.getrandbits(32))
        self.data = data
        self.lines = data.integers(-128, 128, (config.buffer_lines, config.rows))
        self.sums = np.zeros((config.accumulator_rows, config.cols), np.int64)
        self.expected = self.sums.copy()
        self.fifo = []
        self.tiles = []
        self.shown = 0
        self.read_row = None
        self.now = 0
        self.holds = 0
        self.takes = 0
        self.swaps = 0
        self.firsts = []
        self.active = []
        self.written = []
        self.events = {"read": [], "sum": [], "read_done": [], "sum_done": []}

    def expect(self, command):
        """Queues random tiles for a command and works out what it does to the accumulators."""
        first, rows = command["buffer"], command["rows"]
        for n in range(command["n_tiles"]):
            for k in range(command["k_tiles"]):
                tile = self.data.integers(-128, 128, (self.config.rows, self.config.cols))
                self.tiles.extend(tile)
                self.firsts += [True] + [False] * (rows - 1)
                x = self.lines[first + k * rows : first + (k + 1) * rows]
                place = slice(command["accumulator"] + n * rows, None)
                target = self.expected[place][:rows]
                if k == 0 and not command["accumulate"]:
                    target[:] = 0
                target += x @ tile

    async def step(self, arrive=1, blocked=(False, False), **inputs):
        """One cycle, in which up to `arrive` rows of weights come into the FIFO.

        `now` counts the cycles in which the array is not held: it must be where a tile has been
        swapped in before its last row came, and the next of its rows is missing.
        """
        held = bool(
            self.takes % self.config.rows
            and self.swaps > self.takes // self.config.rows
            and not self.fifo
        )
        weights = self.fifo[0] if self.fifo else np.zeros(self.config.cols, int)
        await self.cycle(
            **inputs,
            line_blocked=blocked[0],
            row_blocked=blocked[1],
            buffer__ready=1,
            buffer__data=self.shown,
            weight_row=int.from_bytes(weights.astype(np.int8).tobytes(), "little"),
            weight_arrived=bool(self.fifo),
        )
        if self.get("weight_take"):
            assert self.fifo, "takes weights from an empty FIFO"
            self.fifo.pop(0)
            self.takes += 1
        self.fill(arrive)

        active, enable = self.gets("active", "buffer__enable")
        assert active == enable
        if held:
            self.holds += 1
            assert not active and self.get("awaiting_weights")
            assert not any(self.gets("write_enable", "advance_sum", "sum_done"))
        if active:
            assert not any(blocked), "a blocked vector was issued"
            self.swaps += self.firsts.pop(0)
            line = self.lines[self.get("buffer__address")]
            assert self.get("buffer__address") == self.get("line")
            self.shown = int.from_bytes(line.astype(np.int8).tobytes(), "little")
            self.active.append(self.now)
        else:
            self.shown = self.random.getrandbits(8 * self.config.line_bytes)

        if self.get("write_enable"):
            row = self.get("write_address")
            raw = self.get("sums").to_bytes(4 * self.config.cols, "little")
            if self.get("accumulate"):
                assert self.read_row == row, "update_read one cycle before"
                self.sums[row] += np.frombuffer(raw, "<i4")
            else:
                assert self.read_row is None, "reads a row that it overwrites"
                self.sums[row] = np.frombuffer(raw, "<i4")
            self.written.append(self.now)
        self.read_row = self.get("update_address") if self.get("update_read") else None

        for name in ("read", "sum"):
            if self.get(f"advance_{name}"):
                self.events[name].append(self.get(f"advance_{name}_to"))
            if self.get(f"{name}_done"):
                self.events[f"{name}_done"].append(self.now)
        self.now += not held

    def fill(self, rows=1000):
        """Moves up to `rows` rows of weights into the FIFO, as far as there is room."""
        room = self.config.weight_fifo_tiles * self.config.rows - len(self.fifo)
        for _ in range(min(rows, room, len(self.tiles))):
            self.fifo.append(self.tiles.pop(0))

    def some(self):
        """A random command."""
        rows, k_tiles = self.random.choice((1, 2, 5, 9)), self.random.choice((1, 1, 2, 4))
        n_tiles = self.random.choice((1, 1, 2, 3))
        return {
            "buffer": self.random.randint(0, self.config.buffer_lines - rows * k_tiles),
            "accumulator": self.random.randint(0, self.config.accumulator_rows - rows * n_tiles),
            "rows": rows,
            "k_tiles": k_tiles,
            "n_tiles": n_tiles,
            "accumulate": self.random.getrandbits(1),
        }

    async def run(self, command, arrive=lambda: 1, blocked=lambda: (False, False)):
        """Offers a command until its last vector is read, then takes it away."""
        self.expect(command)
        self.set(command=command, command_valid=1)
        done = len(self.events["read_done"])
        for _ in range(3000):
            await self.step(arrive(), blocked())
            if len(self.events["read_done"]) > done:
                break
        else:
            raise AssertionError("the command does not end")
        self.set(command_valid=0)

    async def finish(self, commands):
        """Waits for the last sums and checks all that must hold for any commands."""
        end = self.now + self.latency
        while self.now < end:
            await self.step()
        assert (self.sums == self.expected).all()
        assert self.written == [cycle + self.latency for cycle in self.active]
        reads, sums = [], []
        for c in commands:
            first = c["buffer"] + 1
            reads += range(first, first + c["rows"] * c["k_tiles"])
            first = c["accumulator"] + 1
            sums += range(first, first + c["rows"] * c["n_tiles"])
        assert self.events["read"] == reads
        assert self.events["sum"] == sums
        done = [cycle + self.latency for cycle in self.events["read_done"]]
        assert self.events["sum_done"] == done and len(done) == len(commands)


@cocotb.test
async def random_waits(dut):
    """Weights arrive at random, lines and rows are blocked at random."""
    bench = Machine(dut, "waits")
    await bench.start()
    random = bench.random
    commands = [bench.some() for _ in range(25)]
    for command in commands:
        slow = random.choice((0.1, 0.5, 1.0))
        await bench.run(
            command,
            lambda slow=slow: random.random() < slow,
            lambda: (random.random() < 0.3, random.random() < 0.3),
        )
        if random.random() < 0.5:
            await bench.step()
    await bench.finish(commands)
    assert bench.holds


@cocotb.test
async def full_rate(dut):
    """Vectors without a bubble where a tile serves for as many as the next takes to load."""
    bench = Machine(dut, "rate")
    await bench.start()
    period = max(bench.config.rows, bench.config.stages)
    shape = {"rows": period, "k_tiles": 3, "n_tiles": 2, "accumulate": 0}
    commands = [{**shape, "buffer": b, "accumulator": a} for b, a in ((0, 0), (7, 3))]
    for command in commands:
        bench.expect(command)
    bench.fill()
    for command in commands:
        bench.set(command=command, command_valid=1)
        for _ in range(period * 6):
            await bench.step()
    bench.set(command_valid=0)
    start = bench.active[0]
    assert bench.active == list(range(start, start + 12 * period))
    assert start == 0, "weights are loaded and used in one cycle"
    await bench.finish(commands)


@cocotb.test
async def one_vector_a_tile(dut):
    """With one vector to a tile, loading sets the pace: a vector every max(rows, stages) cycles."""
    bench = Machine(dut, "one")
    await bench.start()
    period = max(bench.config.rows, bench.config.stages)
    command = {"buffer": 3, "accumulator": 9, "rows": 1, "k_tiles": 7, "n_tiles": 2}
    command["accumulate"] = 1
    bench.expect(command)
    bench.fill()
    bench.set(command=command, command_valid=1)
    moving = 0
    for _ in range(period * 13 + 1):
        await bench.step()
        moving += bench.get("weights_moving")
        assert not bench.get("awaiting_weights")
    bench.set(command_valid=0)
    assert bench.active == list(range(0, period * 14, period))
    assert moving == 13 * (period - 1)
    await bench.finish([command])


@cocotb.test
async def reasons(dut):
    """Why a vector waits: weights not arrived, or it is blocked."""
    bench = Machine(dut, "reasons")
    await bench.start()
    command = {"buffer": 0, "accumulator": 0, "rows": 2, "k_tiles": 1, "n_tiles": 1}
    command["accumulate"] = 0
    bench.expect(command)
    bench.set(command=command, command_valid=1)
    names = ("active", "awaiting_weights", "weights_moving")

    async def see(*expected, arrive=0, blocked=(False, False)):
        await bench.step(arrive, blocked)
        assert bench.gets(*names) == expected

    await see(0, 1, 0)
    await see(0, 1, 0, arrive=1)
    await see(0, 0, 0, blocked=(True, False))
    await see(0, 0, 0, blocked=(False, True))
    await see(1, 0, 0)
    await see(0, 1, 0)
    await see(0, 1, 0, arrive=1)
    await see(1, 0, 0, arrive=1)
    bench.set(command_valid=0)
    await bench.finish([command])
    assert bench.holds == 2


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_matrix_unit(simulator, variant):
    config = CONFIGS[variant]
    assert MatrixUnit.latency(config) == 2 + config.rows + config.stages
    run_unit("test_matrix_unit", simulator, unit(variant), variant=variant)
