# SPDX-License-Identifier: Apache-2.0
"""The test of the generators of random bytes of instruction Random, against the golden model."""

import cocotb
import pytest

from systola.golden.training import Generators
from systola.hdl.activation.random_bytes import READY, RandomBytes
from systola.verif.units.unit import Bench, chosen_variant, rng, run_unit, variants

COLS = {"8": 8, "5": 5, "20": 20}


def unit(variant=None):
    return RandomBytes(cols=COLS[variant or chosen_variant()])


@cocotb.test
async def lines(dut):
    """Check lines and dither for several seeds, with and without gaps between lines.

    The first line is taken READY cycles after its seed, the least allowed, or later.
    """
    bench = Bench(dut, unit())
    await bench.start()
    await bench.cycle(draw=1)
    bench.expect("dither", 0)
    await bench.cycle(draw=0)
    random, cols = rng("random_bytes"), COLS[chosen_variant()]
    seeds = [(0, 0), ((1 << 31) - 1, (1 << 32) - 1)]
    seeds += [(random.getrandbits(31), random.getrandbits(32)) for _ in range(10)]
    for seed, counter in seeds:
        await bench.cycle(load=1, seed=seed << 32 | counter, take=0)
        bench.set(load=0, seed=random.getrandbits(63))
        for _ in range(READY - 1 + random.choice((0, 0, 5))):
            await bench.cycle()
        previous = None
        generators = Generators(cols)
        for line in generators.lines(8, seed, counter):
            gap = random.choice((0, 0, 1, 3))
            for number in range(gap):
                await bench.cycle(take=0)
                assert number == 0 or bench.get("result") == 0
                if number == 0 and previous is not None:
                    bench.expect("result", previous)
            await bench.cycle(take=1)
            if gap == 0 and previous is not None:
                bench.expect("result", previous)
            previous = int.from_bytes(line.tobytes(), "little")
        await bench.cycle(take=0)
        bench.expect("result", previous)
        for vector in generators.dither(8):
            for _ in range(random.choice((0, 0, 1, 3))):
                await bench.cycle(draw=0)
            await bench.cycle(draw=1)
            numbers = bench.get("dither")
            assert [numbers >> 4 * c & 15 for c in range(cols)] == vector.tolist()
        await bench.cycle(draw=0)


@pytest.mark.parametrize(("simulator", "variant"), variants(*COLS))
def test_random_bytes(simulator, variant):
    run_unit("test_random_bytes", simulator, unit(variant), variant=variant)
