# SPDX-License-Identifier: Apache-2.0
"""Activate through the ports of its unit, against the golden model's arithmetic."""

import cocotb
import numpy as np
import pytest

from systola.arch.isa import Function, Rounding
from systola.golden.requantise import activate, requantise
from systola.hdl.activation_lane import ActivationLane
from systola.hdl.activation_unit import ActivationUnit, lanes_are_instances
from systola.hdl.commands import PARAMETER_SPACE, TABLE_SPACE
from systola.verif.units.unit import (
    Bench,
    chosen_variant,
    convert,
    rng,
    run_unit,
    small_config,
    variants,
)

CONFIGS = {
    "3": small_config(rows=5, cols=3, columns_per_stage=3),
    "33 lanes placed": small_config(
        rows=2, cols=33, columns_per_stage=3, host_bus_bytes=64, weight_bus_bytes=64
    ),
}
LATENCY = 9
"""Cycles from the issue of a vector to the write of its line: one to read, eight in the lane."""
ADDRESSES = ("row", "line", "parameter", "table")


def unit(variant=None):
    return ActivationUnit(config=CONFIGS[variant or chosen_variant()])


def packed(array, kind):
    """A numpy row as one number."""
    return int.from_bytes(np.asarray(array).astype(kind).tobytes(), "little")


class Lanes(Bench):
    """The unit between accumulators and buffer, its parameters and tables loaded."""

    def __init__(self, dut, name, *, blocked=0.0, busy=0.0):
        super().__init__(dut, unit())
        self.config = config = CONFIGS[chosen_variant()]
        self.random = rng("activation_unit", name)
        self.rates = blocked, busy
        data = np.random.default_rng(self.random.getrandbits(32))
        self.data = data
        shape = config.accumulator_rows, config.cols
        self.accumulators = data.integers(-(1 << 17), 1 << 17, shape)
        self.accumulators[data.random(shape) < 0.05] = -(1 << 31)
        shape = config.parameter_entries, config.cols
        self.bias = data.integers(-(1 << 14), 1 << 14, shape)
        self.multiplier = data.integers(1 << 30, 1 << 31, shape)
        self.left = data.integers(0, 3, shape)
        self.right = data.integers(5, 14, shape)
        self.tables = data.integers(-128, 128, (config.tables, 256)).astype(np.int8)
        self.shown = 0
        self.now = 0
        self.issued = []
        self.expected = []
        self.written = []
        self.events = {"read": [], "write": [], "read_done": [], "write_done": []}

    async def load(self):
        """Fills parameters and tables through their ports."""
        for entry in range(self.config.parameter_entries):
            planes = [self.bias[entry] >> 8 * i for i in range(4)]
            # Bit 31 of the multiplier counts for nothing.
            planes += [(self.multiplier[entry] | 1 << 31) >> 8 * i for i in range(4)]
            planes.append(self.left[entry] << 5 | self.right[entry])
            for number, plane in enumerate(planes):
                await self.cycle(
                    parameters__planes=1 << number,
                    parameters__address=entry,
                    parameters__data=packed(plane, np.uint8),
                )
        self.set(parameters__planes=0)
        for address, value in enumerate(self.tables.ravel()):
            await self.cycle(
                tables__enable=1, tables__address=address, tables__data=int(value) & 0xFF
            )
        self.set(tables__enable=0)

    def vectors(self, command):
        """Addresses (row, line, parameter) of each vector of a command, and its result."""
        for n in range(command["n_tiles"]):
            entry = command["parameter"] + n
            for m in range(command["rows"]):
                offset = n * command["rows"] + m
                row, line = command["accumulator"] + offset, command["buffer"] + offset
                y = requantise(
                    self.accumulators[row],
                    self.bias[entry],
                    self.multiplier[entry],
                    self.left[entry],
                    self.right[entry],
                    Rounding(command["rounding"]),
                )
                table = self.tables[command["table"]]
                function = Function(command["function"])
                result = activate(y, function, command["zero_point"], command["ceiling"], table)
                yield (row, line, entry), (line, packed(result, np.int8))

    async def step(self):
        """One cycle of everything around the unit."""
        blocked = {f"{name}_blocked": self.random.random() < self.rates[0] for name in ADDRESSES}
        ready = self.random.random() >= self.rates[1]
        await self.cycle(**blocked, ready=ready, accumulators=self.shown)
        self.shown = self.random.getrandbits(32 * self.config.cols)
        if self.get("enable"):
            assert not any(blocked.values()), "a blocked vector was issued"
            if ready:
                row = self.get("address")
                self.shown = packed(self.accumulators[row], "<i4")
                entry = self.get("parameter") - PARAMETER_SPACE
                self.issued.append((self.now, (row, self.get("line"), entry)))
                assert self.get("row") == row
        if self.get("buffer__enable"):
            place = self.get("buffer__address"), self.get("buffer__data")
            self.written.append((self.now, place))
        for name in ("read", "write"):
            if self.get(f"advance_{name}"):
                self.events[name].append(self.get(f"advance_{name}_to"))
            if self.get(f"{name}_done"):
                self.events[f"{name}_done"].append(self.now)
        self.now += 1

    def some(self):
        """A random command."""
        random = self.random
        rows, n_tiles = random.choice((1, 2, 7)), random.choice((1, 1, 2, 4))
        return {
            "accumulator": random.randint(0, self.config.accumulator_rows - rows * n_tiles),
            "buffer": random.randint(0, self.config.buffer_lines - rows * n_tiles),
            "rows": rows,
            "n_tiles": n_tiles,
            "parameter": random.randint(0, self.config.parameter_entries - n_tiles),
            "function": random.choice(list(Function)),
            "rounding": random.getrandbits(1),
            "zero_point": random.randint(-128, 127),
            "ceiling": random.randint(-128, 127),
            "table": random.randrange(self.config.tables),
        }

    async def run(self, command):
        """Offers a command until its last vector is issued."""
        self.expected += self.vectors(command)
        self.set(command={**command, "function": int(command["function"])}, command_valid=1)
        done = len(self.events["read_done"])
        for _ in range(2000):
            await self.step()
            assert self.get("table") == TABLE_SPACE + command["table"]
            if len(self.events["read_done"]) > done:
                break
        else:
            raise AssertionError("the command does not end")
        self.set(command_valid=0)

    async def finish(self, commands):
        """Waits for the last line and checks all that must hold for any commands."""
        for _ in range(LATENCY):
            await self.step()
        assert [addresses for _, addresses in self.issued] == [a for a, _ in self.expected]
        assert [place for _, place in self.written] == [place for _, place in self.expected]
        assert [now for now, _ in self.written] == [now + LATENCY for now, _ in self.issued]
        assert self.events["read"] == [a[0] + 1 for a, _ in self.expected]
        assert self.events["write"] == [a[1] + 1 for a, _ in self.expected]
        done = [now + LATENCY for now in self.events["read_done"]]
        assert self.events["write_done"] == done and len(done) == len(commands)


@cocotb.test
async def full_rate(dut):
    """A vector in every cycle, from one command to the next."""
    bench = Lanes(dut, "rate")
    await bench.start()
    await bench.load()
    commands = [bench.some() for _ in range(40)]
    for command in commands:
        await bench.run(command)
    await bench.finish(commands)
    cycles = [now for now, _ in bench.issued]
    assert cycles == list(range(cycles[0], cycles[0] + len(cycles)))


@cocotb.test
async def random_waits(dut):
    """Any of the addresses is blocked at random, and the accumulators are busy at random."""
    bench = Lanes(dut, "waits", blocked=0.15, busy=0.3)
    await bench.start()
    await bench.load()
    commands = [bench.some() for _ in range(25)]
    for command in commands:
        await bench.run(command)
        if bench.random.random() < 0.5:
            await bench.step()
    await bench.finish(commands)


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_activation_unit(simulator, variant):
    assert ActivationUnit.latency() == LATENCY
    config = CONFIGS[variant]
    assert lanes_are_instances(config) == ("placed" in variant)
    text = ""
    if lanes_are_instances(config):
        text = convert(ActivationLane(tables=config.tables), "activation_lane")
    run_unit("test_activation_unit", simulator, unit(variant), variant=variant, modules=text)
