# SPDX-License-Identifier: Apache-2.0
"""The accumulators against an array of numbers: sums, shifts, reads, conflicts of banks."""

import cocotb
import numpy as np
import pytest

from systola.hdl.accumulators import Accumulators
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, small_config, variants

CONFIGS = {"wide": small_config(), "narrow": small_config(wide=False)}
ROWS, COLS = 32, 4
CYCLES = 3000


def unit(variant=None):
    return Accumulators(config=CONFIGS[variant or chosen_variant()])


def packed(values):
    """A row of int32 as one number."""
    return int.from_bytes(np.asarray(values, np.uint32).astype("<u4").tobytes(), "little")


class Model(Bench):
    """The unit and what it should hold."""

    def __init__(self, dut):
        super().__init__(dut, unit())
        self.rows = np.zeros((ROWS, COLS), np.uint32)
        self._pending = None
        self._reading = None

    async def step(self, update=None, read=None):
        """One cycle that begins `update` (row, accumulate, sums, shift) and asks for row `read`.

        Sums and shift of an update are given in the following cycle. Returns whether the read was
        taken.
        """
        row, accumulate, *_ = update or (0, False)
        inputs = {"update_read": update is not None and accumulate, "update_address": row}
        inputs |= {"enable": read is not None, "address": read or 0}
        inputs["write_enable"] = self._pending is not None
        if self._pending is not None:
            written, adds, sums, shift = self._pending
            inputs |= {"write_address": written, "accumulate": adds}
            inputs |= {"sums": packed(sums), "shift": shift}
        await self.cycle(**inputs)
        if self._reading is not None:
            assert self.get("data") == packed(self._reading), "data one cycle after the read"
        taken = False
        if read is not None:
            conflict = inputs["update_read"] and row % 2 == read % 2
            assert self.get("ready") == (not conflict)
            taken = not conflict
        self._reading = self.rows[read].copy() if taken else None
        if self._pending is not None:
            self.rows[written] = (self.rows[written] if adds else 0) + sums * np.uint32(
                1 << (8 * shift)
            )
        self._pending = update
        return taken

    def being_written(self):
        """The row that is written in the next cycle; nobody may read it then."""
        return self._pending and self._pending[0]

    async def fill(self, random):
        """Gives every row a value."""
        for row in range(ROWS):
            await self.step((row, False, sums(random), 0))
        await self.step()


def sums(random):
    """Random sums that often wrap."""
    return np.array(
        [random.choice((1, 0x7FFF_FFFF, 0x8000_0000, random.getrandbits(32))) for _ in range(COLS)],
        np.uint32,
    )


@cocotb.test
@cocotb.parametrize(rate=[1.0, 0.5])
async def random_use(dut, rate):
    """Few rows, so that updates of one row often follow one another."""
    bench = Model(dut)
    await bench.start()
    random = rng("accumulators", rate)
    await bench.fill(random)
    for _ in range(CYCLES):
        update = read = None
        if random.random() < rate:
            shift = random.randrange(3) if chosen_variant() == "wide" else 0
            update = random.randrange(4), random.random() < 0.7, sums(random), shift
        if random.random() < rate:
            read = random.choice([r for r in range(8) if r != bench.being_written()])
        await bench.step(update, read)
    await bench.step()
    for row in range(ROWS):
        assert await bench.step(read=row)
    await bench.step()


@cocotb.test
async def one_row_back_to_back(dut):
    """An update of the same row in every cycle loses nothing."""
    bench = Model(dut)
    await bench.start()
    random = rng("back to back")
    await bench.fill(random)
    given = [sums(random) for _ in range(50)]
    for index, values in enumerate(given):
        await bench.step((7, index > 0, values, 0))
    await bench.step()
    await bench.step(read=7)
    await bench.step()
    assert bench.get("data") == packed(sum(given, np.zeros(COLS, np.uint32)))


@cocotb.test
@cocotb.parametrize(first=[16, 17])
async def two_streams(dut, first):
    """A stream of updates and one of reads collide once at most, then use both banks."""
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
    run_unit("test_accumulators", simulator, unit(variant), variant=variant)
