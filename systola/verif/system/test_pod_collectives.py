# SPDX-License-Identifier: Apache-2.0
"""The test of collectives on the RTL: the golden pod's bytes, and times near the ring's bound.

A collective is work of all cores together, such as the sum of an array of each core (all-reduce).
The ring's bound is the least time in which the links can move the data."""

from __future__ import annotations

import random

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Fault, Opcode, encode
from systola.compiler.collectives import all_reduce, broadcast
from systola.golden.pod import Pod
from systola.sim.pod_library import PodResult, PodSimulator
from systola.verif.kit.images import program_image
from systola.verif.kit.pod_programs import ROWS, PodWriter
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

SIZE = 64 * 1024
"""Number of bytes that a collective has in each core."""
BAR = 0.9


def measured(pod: PodSimulator, programs: list[list[bytes]]) -> PodResult:
    """Run `programs` on the pod, without a fault, and return the result."""
    result = pod.run([program_image(words) for words in programs])
    assert all(core.fault_cause == Fault.NONE for core in result.cores)
    return result


@pytest.mark.parametrize("cores", [thorough(3)])
def test_same_sums(cores: int) -> None:
    """Check all-reduce and broadcast between other instructions, byte by byte."""
    config = preset("tiny-links")
    with PodSimulator(config, cores, latency=3, stall=0.1, seed=random_seed()) as pod:
        for _ in range(4):
            writer = PodWriter(random.Random(random_seed()), config, cores)
            for core in range(cores):
                writer.words[core] += all_reduce(core, cores, 0, ROWS)
                writer.words[core] += broadcast(core, cores, 1, 3, 9)
                at = {"accumulator": 0, "buffer": 14, "rows": ROWS, "n_tiles": 1}
                writer.words[core].append(encode(Opcode.ACTIVATE, **at, parameter=0))
            writer.finish()
            images = writer.images()
            Pod(config, cores).run(images)
            result = pod.run(writer.images())
            for core, expected in zip(result.cores, images, strict=True):
                assert core.fault_cause == Fault.NONE
                np.testing.assert_array_equal(core.host, expected.host)


@pytest.mark.parametrize(
    ("name", "cores"),
    [
        thorough("tiny", 3),
        # The simulator of eight cores takes seven minutes to build.
        pytest.param("base", 8, marks=[pytest.mark.thorough, pytest.mark.exhaustive]),
    ],
)
def test_bounds(name: str, cores: int) -> None:
    """Check that collectives of 64 KiB take at most the ring's bound, divided by BAR.

    The bytes are sent in as many pieces as needed to fit the accumulators. The time is from the
    start to the last core's Halt.
    """
    config = preset(f"{name}-links")
    width, rows, lines = config.host_bus_bytes, config.accumulator_rows, config.buffer_lines
    rows = min(rows, SIZE // (4 * config.cols))
    times = SIZE // (4 * config.cols * rows)
    lines = min(lines, SIZE // config.line_bytes)
    with PodSimulator(config, cores) as pod:
        result = measured(pod, [all_reduce(i, cores, 0, rows) * times for i in range(cores)])
        bound = 2 * (cores - 1) / cores * SIZE / (2 * width)
        print(f"all-reduce, {times} times {rows} rows: {result.cycles} cycles, bound {bound:.0f}")
        assert bound / result.cycles > BAR
        result = measured(pod, [broadcast(i, cores, 0, 0, lines) for i in range(cores)])
        bound = lines * config.line_bytes / width
        print(f"broadcast of {lines} lines: {result.cycles} cycles, bound {bound:.0f}")
        assert bound / result.cycles > BAR
