# SPDX-License-Identifier: Apache-2.0
"""The test of the entries that partitions write, with loads that write in between."""

import cocotb
import pytest

from systola.arch.isa import PARAMETER_PLANES
from systola.hdl.activation.partition_entries import PartitionEntries, entry_latency
from systola.hdl.memories.accumulators import READ_LATENCY
from systola.verif.kit.partition import expected_channel
from systola.verif.units.unit import (
    Bench,
    chosen_variant,
    rng,
    run_unit,
    small_config,
    variants,
)

CONFIGS = {
    "two lanes": small_config(
        cols=2, columns_per_stage=2, attention=True, tables=7, parameter_entries=5
    ),
    "eight lanes": small_config(cols=8, attention=True, tables=7, parameter_entries=16),
    "eleven lanes": small_config(cols=11, attention=True, tables=7, parameter_entries=9),
}
WRITES = 6
"""Cycles with writes of one entry."""
COUNT = 40


def unit(variant=None):
    return PartitionEntries(config=CONFIGS[variant or chosen_variant()])


def planes_of(sums):
    """Return the bytes of each plane of the entry that is made of these sums."""
    planes = [[] for _ in range(PARAMETER_PLANES)]
    for total in sums:
        bias, multiplier, left, right = expected_channel(total)
        word = bias.to_bytes(4, "little") + multiplier.to_bytes(4, "little")
        for plane, byte in zip(planes, [*word, left << 5 | right], strict=True):
            plane.append(byte)
    return [int.from_bytes(plane, "little") for plane in planes]


@cocotb.test
async def entries(dut):
    """Check the writes of entries one after the other: all planes, their address and cycles.

    A write of a load passes in its own cycle. An entry is late by a cycle for each load that writes
    while the entry is written.
    """
    random = rng("partition_entries")
    config = CONFIGS[chosen_variant()]
    cols = config.cols
    bench = Bench(dut, unit())
    await bench.start()
    for number in range(COUNT):
        sums = [random.getrandbits(32) >> random.randrange(32) for _ in range(cols)]
        entry, loads = random.randrange(config.parameter_entries), random.choice((0, 0, 0.2, 0.9))
        packed = sum(total << 32 * lane for lane, total in enumerate(sums))
        written, cycle, delay, done = {}, 0, 0, None
        while done is None:
            load = {"planes": 0, "address": random.randrange(config.parameter_entries), "data": 0}
            if random.random() < loads:
                load["planes"] = random.randrange(1, 1 << PARAMETER_PLANES)
                load["data"] = random.getrandbits(8 * cols)
            noise = random.getrandbits(32 * cols)
            await bench.cycle(
                comes=int(cycle == 0),
                entry=entry if cycle == 0 else random.randrange(config.parameter_entries),
                sums=packed if cycle == READ_LATENCY else noise,
                **{f"loads__{name}": value for name, value in load.items()},
            )
            planes, address, data = bench.gets("write__planes", "write__address", "write__data")
            if load["planes"]:
                assert (planes, address, data) == tuple(load.values())
                last_result = entry_latency(cols) - 1 - WRITES
                delay += cycle > last_result and len(written) < PARAMETER_PLANES
            elif planes:
                assert address == entry
                numbers = [plane for plane in range(PARAMETER_PLANES) if planes >> plane & 1]
                assert not set(numbers) & set(written)
                written |= dict.fromkeys(numbers, data)
            if bench.get("done"):
                done = cycle
            cycle += 1
        assert [written[plane] for plane in range(PARAMETER_PLANES)] == planes_of(sums), number
        assert done == entry_latency(cols) + delay, number


@pytest.mark.parametrize(("simulator", "variant"), variants(*CONFIGS))
def test_partition_entries(simulator, variant):
    run_unit("test_partition_entries", simulator, unit(variant), variant=variant)
