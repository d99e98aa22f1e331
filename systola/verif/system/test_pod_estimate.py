# SPDX-License-Identifier: Apache-2.0
"""The test of the estimate of a pod's cycles: it is near to the RTL's.

The test has collectives, random programs, and applications with weights spread over the cores.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.image import Image
from systola.arch.isa import Fault, Side
from systola.bench.original.compiled import random_inputs
from systola.bench.original.shapes import Application
from systola.bench.original.spread import spread
from systola.compiler.collectives import all_gather, all_reduce, broadcast
from systola.golden.pod import Pod
from systola.sim.pod_library import PodSimulator
from systola.timing.memory_speed import MemorySpeed
from systola.timing.pod import estimate_pod
from systola.verif.kit.images import program_image, text_image
from systola.verif.kit.pod_programs import random_pod
from systola.verif.kit.seeds import random_seed
from systola.verif.kit.small_applications import operations_in_order, recurrent

pytestmark = pytest.mark.thorough
CONFIG = preset("tiny-links")
CORES = 3
NEAR_LINKS = 2
"""Largest error of the estimate for short programs of link instructions alone, in cycles."""
FETCHES = 20
"""Largest error of the estimate for programs of many instructions, in cycles.

A program may fetch once more than estimated, which takes 16 beats of the narrow bus.
"""
NEAR = 0.01
NEAR_APPLICATION = 0.09
"""Largest error of the estimate for an application, as a share. Instructions and data share a bus
of four bytes, which limits the smallest application."""
NEAR_RANDOM, FAR = 0.06, 1.5
"""Largest error of the median, as a share, and largest ratio of cycles for random programs.

The ratio is between estimate and RTL, in either direction. The programs are short, and fetches
between data are not modelled. A fetch takes 16 beats of the narrow bus, so the estimates are 1.5 to
4 % too low.
"""
PROGRAMS = 150
"""Number of random programs, enough for a steady median. The median of 24 programs has a standard
deviation of 1 % from seed to seed."""
MEMORIES = ((0, 0.0), (30, 0.0), (3, 0.1))


LINKS = {
    "a way": (
        "send side=right, buffer=0, rows=100",
        "receive side=left, buffer=0, rows=100",
        "nop",
    ),
    "sums": (
        "send side=right, sums=1, accumulator=0, rows=100",
        "reduce side=left, accumulator=0, rows=100",
        "nop",
    ),
    "passed on": (
        "send side=right, buffer=0, rows=100",
        "receive side=left, buffer=0, rows=100\nsend side=right, buffer=0, rows=100",
        "receive side=left, buffer=0, rows=100",
    ),
    "both ways": (
        "send side=right, buffer=0, rows=100\nsend side=left, buffer=100, rows=100",
        "receive side=left, buffer=0, rows=100",
        "receive side=right, buffer=0, rows=100",
    ),
    "around": ("receive side=left, buffer=500, rows=400\nsend side=right, buffer=0, rows=400",) * 3,
    "sums and lines": (
        "send side=right, sums=1, accumulator=0, rows=5\nsend side=right, buffer=0, rows=5\n"
        "send side=right, sums=1, accumulator=0, rows=5",
        "reduce side=left, accumulator=0, rows=5\nreceive side=left, buffer=0, rows=5\n"
        "reduce side=left, accumulator=0, rows=5",
        "nop",
    ),
    "one by one": (
        "send side=right, buffer=0, rows=1\n" * 10,
        "receive side=left, buffer=0, rows=1\n" * 10,
        "nop",
    ),
    "barriers": ("barrier\n" * 5,) * 3,
    "beside": (
        "send side=right, buffer=0, rows=50\n"
        "write_host_memory host=2048, buffer=100, rows=1, stride=4, blocks=1, tail=4",
        "receive side=left, buffer=0, rows=50\n"
        "write_host_memory host=2048, buffer=100, rows=1, stride=4, blocks=1, tail=4",
        "nop",
    ),
    "behind": (
        "send side=right, buffer=0, rows=50\n"
        "read_host_memory host=2048, buffer=0, rows=30, stride=4, blocks=1, tail=4",
        "receive side=left, buffer=0, rows=50\n"
        "write_host_memory host=2048, buffer=0, rows=50, stride=4, blocks=1, tail=4",
        "nop",
    ),
}


def test_links() -> None:
    """Check the estimated cycles of every core in programs of link instructions alone."""
    with PodSimulator(CONFIG, CORES) as pod:
        for name, texts in LINKS.items():
            images = [text_image(text) for text in texts]
            result = pod.run(images)
            assert all(core.fault_cause == Fault.NONE for core in result.cores)
            estimated = estimate_pod(CONFIG, images)
            for core, expected in zip(result.cores, estimated.cores, strict=True):
                assert expected.cycles == pytest.approx(core.cycles, abs=NEAR_LINKS), name


def test_collectives() -> None:
    programs = {
        "all-reduce": [all_reduce(core, CORES, 0, 256) for core in range(CORES)],
        "small all-reduce": [all_reduce(core, CORES, 0, 10) for core in range(CORES)],
        "all-gather": [all_gather(CORES, 0, 200, Side.RIGHT) for _ in range(CORES)],
        "broadcast": [broadcast(core, CORES, 1, 0, 700) for core in range(CORES)],
    }
    with PodSimulator(CONFIG, CORES) as pod:
        for name, words in programs.items():
            images: list[Image] = [program_image(core) for core in words]
            cycles, estimated = pod.run(images).cycles, estimate_pod(CONFIG, images).cycles
            print(f"{name}: {cycles} cycles, estimated {estimated}")
            assert estimated == pytest.approx(cycles, rel=NEAR, abs=FETCHES), name


@pytest.mark.parametrize(("latency", "stall"), MEMORIES)
def test_random_programs(latency: int, stall: float) -> None:
    """Check the estimate of random programs, full of waits, against the RTL's cycles.

    Most estimates are near, and none is far off.
    """
    ratios: list[float] = []
    memory = MemorySpeed(latency, stall)
    seed = random_seed()
    with PodSimulator(CONFIG, CORES, latency=latency, stall=stall, seed=seed) as pod:
        for number in range(PROGRAMS):
            rng = random.Random(f"{seed} estimate {number}")
            writer = random_pod(rng, CONFIG, CORES, steps=rng.choice((3, 10, 25)) * CORES)
            cycles = pod.run(writer.images()).cycles
            ratios.append(estimate_pod(CONFIG, writer.images(), memory).cycles / cycles)
    assert float(np.median(ratios)) == pytest.approx(1, abs=NEAR_RANDOM)
    assert min(ratios) > 1 / FAR and max(ratios) < FAR


@pytest.mark.parametrize(("latency", "stall"), MEMORIES)
@pytest.mark.parametrize(
    "application",
    [recurrent(batch=3, inputs=10, size=12), recurrent(batch=8, inputs=24, size=24)],
    ids=["small", "larger"],
)
def test_spread_weights(application: Application, latency: int, stall: float) -> None:
    """Check LSTM cells spread over a pod: the golden pod's bytes, and cycles near the estimate."""
    operations = operations_in_order(application)
    inputs = random_inputs(application, operations.inputs)
    program = spread(CONFIG, operations, inputs, CORES)
    with PodSimulator(CONFIG, CORES, latency=latency, stall=stall, seed=random_seed()) as pod:
        result = pod.run(program.images)
    estimated = estimate_pod(CONFIG, program.images, MemorySpeed(latency, stall))
    print(f"{result.cycles} cycles, estimated {estimated.cycles}")
    images = [replace(image, host=image.host.copy()) for image in program.images]
    assert all(outcome.fault is None for outcome in Pod(CONFIG, CORES).run(images))
    for core, image in zip(result.cores, images, strict=True):
        assert core.fault_cause == Fault.NONE
        np.testing.assert_array_equal(core.host, image.host)
    assert estimated.cycles == pytest.approx(result.cycles, rel=NEAR_APPLICATION)
