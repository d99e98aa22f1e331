# SPDX-License-Identifier: Apache-2.0
"""Tests of all-reduce, all-gather and broadcast on the golden pod, for any number of cores."""

from __future__ import annotations

import random

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.image import Image
from systola.arch.isa import Opcode, Side, encode
from systola.compiler.collectives import all_gather, all_reduce, broadcast
from systola.golden.pod import Pod
from systola.verif.kit.seeds import random_seed

CONFIG = preset("tiny-links")
SIZES = (1, 2, 3, 4, 5, 8)


def run(pod: Pod, programs: list[list[bytes]]) -> None:
    """Run a program on each core of the pod, and check that none ends in a fault."""
    images: list[Image] = []
    for words in programs:
        program = b"".join([*words, encode(Opcode.HALT)])
        host = np.zeros(8192, np.uint8)
        host[: len(program)] = np.frombuffer(program, np.uint8)
        images.append(Image(program, host, 0, np.zeros(0, np.uint8)))
    assert all(outcome.fault is None for outcome in pod.run(images))


@pytest.mark.parametrize("cores", SIZES)
@pytest.mark.parametrize("rows", [1, 2, 7, 100])
def test_all_reduce(cores: int, rows: int) -> None:
    rng = np.random.default_rng(random_seed())
    pod, first = Pod(CONFIG, cores), 3
    for machine in pod.machines:
        machine.accumulators[:] = rng.integers(-(2**31), 2**31, machine.accumulators.shape)
    before = [machine.accumulators.copy() for machine in pod.machines]
    total = np.sum([sums.astype(np.int64) for sums in before], axis=0)
    expected = total.astype(np.uint64).astype(np.uint32).astype(np.int32)
    run(pod, [all_reduce(core, cores, first, rows) for core in range(cores)])
    used = slice(first, first + rows)
    for machine, sums in zip(pod.machines, before, strict=True):
        np.testing.assert_array_equal(machine.accumulators[used], expected[used])
        sums[used] = machine.accumulators[used]
        np.testing.assert_array_equal(machine.accumulators, sums)


@pytest.mark.parametrize("cores", SIZES)
def test_broadcast(cores: int) -> None:
    rng = random.Random(random_seed())
    for root in range(cores):
        pod, first, rows = Pod(CONFIG, cores), 5, rng.randint(1, 60)
        for core, machine in enumerate(pod.machines):
            machine.buffer[:] = core + 1
        run(pod, [broadcast(core, cores, root, first, rows) for core in range(cores)])
        for core, machine in enumerate(pod.machines):
            assert (machine.buffer[first : first + rows] == root + 1).all()
            assert (machine.buffer[first + rows :] == core + 1).all()


@pytest.mark.parametrize("cores", SIZES[1:])
@pytest.mark.parametrize("to", Side)
def test_all_gather(cores: int, to: Side) -> None:
    rng = random.Random(random_seed())
    pod, first, rows = Pod(CONFIG, cores), 5, rng.randint(1, 40)
    for core, machine in enumerate(pod.machines):
        machine.buffer[:] = core + 1
    run(pod, [all_gather(cores, first, rows, to) for _ in range(cores)])
    step = -1 if to == Side.RIGHT else 1
    for core, machine in enumerate(pod.machines):
        owners = [(core + step * n) % cores for n in range(cores)]
        came = np.repeat(owners, rows) + 1
        assert (came == machine.buffer[first : first + rows * cores].T).all()
        assert (machine.buffer[first + rows * cores :] == core + 1).all()
