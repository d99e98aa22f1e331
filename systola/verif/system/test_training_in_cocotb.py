# SPDX-License-Identifier: Apache-2.0
"""The test of training steps under cocotb: after each, every byte equals the golden model's."""

import os
from dataclasses import replace
from unittest.mock import patch

import cocotb
import numpy as np
import pytest

from systola.arch.image import Image
from systola.runtime.iss import GoldenBackend
from systola.training import SGD, Dense, Dropout, Input, Sequential
from systola.verif.kit.bench import TB
from systola.verif.kit.launch import quick_simulators, run_machine, simulators
from systola.verif.plan.selection import exhaustive, thorough

INPUTS, UNITS, CLASSES = 6, 8, 3
BATCH, STEPS_OF_EPOCH = 4, 4


def programs(preset: str, steps: int) -> list[Image]:
    """Return the programs of `steps` training steps, each with the host window before it.

    Programs that read the weights in between are included.
    """
    rng = np.random.default_rng(11)
    count = BATCH * STEPS_OF_EPOCH
    x = rng.uniform(0, 1, (count, INPUTS)).astype(np.float32)
    y = rng.integers(0, CLASSES, count)
    images: list[Image] = []
    run = GoldenBackend.run

    def kept(backend: GoldenBackend, image: Image):
        images.append(replace(image, host=image.host.copy()))
        return run(backend, image)

    layers = [Input((INPUTS,)), Dense(UNITS, "relu"), Dropout(0.25), Dense(CLASSES)]
    model = Sequential(layers)
    model.compile(SGD(0.1, 0.5), preset=preset, backend="iss", seed=5)
    with patch.object(GoldenBackend, "run", kept):
        model.fit(x, y, batch_size=BATCH, epochs=steps // STEPS_OF_EPOCH, verbose=0)
    return images


@cocotb.test
async def steps(dut):
    """Check the programs of several training steps, one after the other without a reset."""
    count = int(os.environ["TPU_STEPS"])
    images = programs(os.environ["TPU_PRESET"], count)
    assert len(images) >= count
    tb = TB(dut, latency=7, stall=0.1)
    await tb.start()
    cycles = 0
    for image in images:
        cycles += (await tb.check_program(image)).cycles
    dut._log.info("%d programs, %d cycles", len(images), cycles)


@pytest.mark.parametrize(
    ("simulator", "count"),
    [
        # Quick tests of training steps on the RTL are in test_training.py.
        *(thorough(simulator, 4) for simulator in quick_simulators()),
        *(exhaustive(simulator, 4) for simulator in simulators()[1:]),
        # Icarus takes a quarter of an hour for 200 steps.
        *(exhaustive(simulator, 200) for simulator in simulators()),
    ],
)
def test_steps_in_cocotb(simulator, count):
    environment = {"TPU_STEPS": str(count)}
    run_machine(
        "system.test_training_in_cocotb", simulator, config="4x4-training", extra_env=environment
    )
