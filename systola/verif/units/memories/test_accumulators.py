# SPDX-License-Identifier: Apache-2.0
"""The test of the accumulators against an array of numbers: sums, shifts, reads, bank conflicts."""

from collections import deque

import cocotb
import numpy as np
import pytest

from systola.hdl.memories.accumulators import (
    READ_LATENCY,
    SUMS_LATENCY,
    UPDATE_LATENCY,
    Accumulators,
)
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

CONFIGS = {
    "wide": small_config(rows=8),
    "narrow": small_config(wide=False),
    "parity": small_config(rows=8, parity=True),
}
ROWS, COLS = 32, 4
CYCLES = 3000


def unit(variant=None):
    return Accumulators(config=CONFIGS[variant or chosen_variant()])


def packed(values):
    """Return a row of int32 numbers as one number, the first of them lowest."""
    return int.from_bytes(np.asarray(values, np.uint32).astype("<u4").tobytes(), "little")


class Model(Bench):
    """A bench of the accumulators, with their expected content."""

    def __init__(self, dut):
        super().__init__(dut, unit())
        self.config = CONFIGS[chosen_variant()]
        self.rows = np.zeros((ROWS, COLS), np.uint32)
        self.updating = deque([None] * UPDATE_LATENCY)
        self.reading = deque([None] * READ_LATENCY)
        self.sums = deque([None] * SUMS_LATENCY)

    async def step(self, update=None, read=None):
        """Run one cycle that begins `update` (row, accumulate, sums, shift) and reads row `read`.

        Sums are given SUMS_LATENCY cycles later. Returns whether the read was accepted.
        """
        row, accumulate, sums, shift = update or (0, False, None, 0)
        inputs = {
            "update__enable": update is not None,
            "update__address": row,
            "update__adds": accumulate,
        }
        inputs["update__reads"] = (update is not None and accumulate) << row % 2
        due = self.sums.popleft()
        inputs |= {"update__shift": shift, "update__sums": 0 if due is None else packed(due)}
        inputs |= {"read__enable": read is not None, "read__address": read or 0}
        await self.cycle(**inputs)
        assert not self.get("flawed")
        shown = self.reading.popleft()
        if shown is not None:
            source, values = shown
            self.expect(
                "read__data", packed(values), f"READ_LATENCY after the read of row {source}"
            )
        taken = False
        if read is not None:
            conflict = update is not None and accumulate and row % 2 == read % 2
            self.expect("read__ready", not conflict, f"read of row {read}, update {update}")
            taken = not conflict
        self.reading.append((read, self.rows[read].copy()) if taken else None)
        self.updating.append(update)
        written = self.updating.popleft()
        if written is not None:
            to, adds, values, places = written
            old = self.rows[to] if adds else 0
            self.rows[to] = old + values * np.uint32(1 << (8 * places))
        self.sums.append(sums)
        return taken

    def being_written(self):
        """Return the rows with an update that is not written yet. Such rows must not be read."""
        return {update[0] for update in self.updating if update is not None}

    async def fill(self, random):
        """Write random sums to every row."""
        for row in range(ROWS):
            await self.step((row, False, sums(random), 0))
        for _ in range(UPDATE_LATENCY):
            await self.step()


def sums(random):
    """Return random sums for a row, in which additions often wrap around."""
    return np.array(
        [random.choice((1, 0x7FFF_FFFF, 0x8000_0000, random.getrandbits(32))) for _ in range(COLS)],
        np.uint32,
    )


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.5])
async def random_use(dut, rate):
    """Check random updates and reads of few rows, so that updates of a row often meet."""
    bench = Model(dut)
    await bench.start()
    random = rng("accumulators", rate)
    await bench.fill(random)
    for _ in range(CYCLES):
        update = read = None
        if random.random() < rate:
            shift = random.randrange(3) if CONFIGS[chosen_variant()].wide else 0
            update = random.randrange(4), random.random() < 0.7, sums(random), shift
        if random.random() < rate:
            # A row may be read only in cycles after its write.
            read = random.choice([r for r in range(12) if r not in bench.being_written()])
        await bench.step(update, read)
    for _ in range(UPDATE_LATENCY):
        await bench.step()
    for row in range(ROWS):
        assert await bench.step(read=row)
    for _ in range(READ_LATENCY):
        await bench.step()


@cocotb.test
@cocotb.parametrize(distance=[1, 2, 3, 4, 5, 6])
async def one_row_again_and_again(dut, distance):
    """Check that no update is lost if one row is updated every `distance` cycles."""
    bench = Model(dut)
    await bench.start()
    random = rng("again", distance)
    await bench.fill(random)
    given = []
    for cycle in range(60):
        if cycle % distance == 0:
            given.append(sums(random))
            await bench.step((7, len(given) > 1, given[-1], 0))
        else:
            await bench.step()
    for _ in range(UPDATE_LATENCY):
        await bench.step()
    await bench.step(read=7)
    for _ in range(READ_LATENCY):
        await bench.step()
    bench.expect("read__data", packed(sum(given, np.zeros(COLS, np.uint32))))


@cocotb.test
@cocotb.parametrize(first=[16, 17])
async def two_streams(dut, first):
    """Check that a stream of updates and a stream of reads collide at most once.

    After a collision, the two streams are in different banks in each cycle.
    """
    bench = Model(dut)
    await bench.start()
    random = rng("streams")
    await bench.fill(random)
    wanted, lost = first, 0
    for row in range(12):
        if await bench.step((row, True, sums(random), 0), wanted):
            wanted += 1
        else:
            lost += 1
    assert lost == (first % 2 == 0)


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_accumulators(simulator, variant):
    assert (SUMS_LATENCY, UPDATE_LATENCY, READ_LATENCY) == (1, 2, 3)
    run_unit("test_accumulators", simulator, unit(variant), variant=variant)
