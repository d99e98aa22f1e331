# SPDX-License-Identifier: Apache-2.0
"""The test of pods with cores that share a memory: the golden pod's results, a model's speed."""

from __future__ import annotations

import random
from importlib.resources import files

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.image import Image
from systola.arch.registers import Status
from systola.arch.shared_memory import SharedMemory
from systola.compiler.host_stage import HostStage
from systola.golden.machine import Machine
from systola.golden.pod import Pod
from systola.runtime.api import compile
from systola.runtime.compiled_model import CompiledModel
from systola.runtime.rtl import RtlBackend
from systola.sim.pod_library import PodSimulator
from systola.verif.kit.pod_programs import random_pod
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import exhaustive, thorough

CONFIG = preset("tiny-links")
TIMEOUT = 5_000
"""Value of BUS_TIMEOUT in cycles, larger than a right program needs with any of the memories."""
PROGRAMS = 12
PODS = {
    "3 cores, wide": (3, SharedMemory(16), 0, 0.0),
    "3 cores, wide, slow": (3, SharedMemory(16), 30, 0.2),
    "2 cores, narrow": (2, SharedMemory(4, broadcast=False), 9, 0.1),
    "a core by itself": (1, SharedMemory(64), 3, 0.1),
}
"""Pods: number of cores, the memory that they share, its latency and stall probability."""
MODELS = {"std_resnet8_cifar": 7.0, "mobilenet_v1_025_96": 7.0}
"""Least speed of a model on eight cores, compared with one core with memories of its own."""
SAMPLES = 64


@pytest.mark.parametrize(
    "name",
    # Only one pod is in the thorough tests: each has a simulator that takes minutes to build.
    [(thorough if name.startswith("3") else exhaustive)(name) for name in PODS],
)
def test_random_programs(name: str) -> None:
    """Check random programs against the golden pod, one after the other without a reset.

    Before every fourth program, another program runs until a soft reset.
    """
    cores, shared, latency, stall = PODS[name]
    with PodSimulator(
        CONFIG, cores, latency=latency, stall=stall, seed=random_seed(), shared=shared
    ) as pod:
        for number in range(PROGRAMS):
            rng = random.Random(f"{random_seed()} {name} {number}")
            writer = random_pod(rng, CONFIG, cores, steps=rng.choice((3, 10, 25)) * cores)
            if number % 4 == 3:
                pod.run(writer.images(), abandon_after=rng.randint(1, 1500))
            images = writer.images()
            outcomes = Pod(CONFIG, cores).run(images)
            result = pod.run(writer.images(), bus_timeout=TIMEOUT)
            assert all(outcome.fault is None for outcome in outcomes)
            assert result.status == Status.DONE
            for core, expected in zip(result.cores, images, strict=True):
                np.testing.assert_array_equal(core.host, expected.host)


def program_of(model: CompiledModel, x: np.ndarray) -> Image:
    """Return an image of a model's only program, with the samples `x` as its input."""
    (stage,) = (stage for stage in model.compiled.stages if not isinstance(stage, HostStage))
    return stage.program.bind(x)


@pytest.mark.parametrize(
    "name",
    # The simulator of eight cores takes minutes to build.
    [exhaustive(name) for name in MODELS],
)
@pytest.mark.parametrize("broadcast", [True, False])
def test_shared_samples(name: str, broadcast: bool) -> None:
    """Check bytes and speed of samples shared out to eight cores, with a port of 64 bytes."""
    cores, config = 8, preset("base")
    content = files("systola.models").joinpath(f"{name}.tflite").read_bytes()
    with np.load(str(files("systola.models").joinpath(f"{name}.npz"))) as stored:
        x = np.resize(stored["x"], (SAMPLES, *stored["x"].shape[1:]))
    whole = compile(content, preset=config, batch=SAMPLES)
    share = compile(content, preset=config, batch=SAMPLES // cores)
    assert isinstance(whole, CompiledModel) and isinstance(share, CompiledModel)
    single = RtlBackend(config).run(program_of(whole, x))
    assert single.cycles is not None
    images = [program_of(share, part) for part in np.split(x, cores)]
    expected = [program_of(share, part) for part in np.split(x, cores)]
    for image in expected:
        outcome = Machine(config).run(image.host, image.weights, image.program_offset)
        assert outcome.fault is None
    with PodSimulator(config, cores, shared=SharedMemory(broadcast=broadcast)) as pod:
        result = pod.run(images)
    for core, image in zip(result.cores, expected, strict=True):
        np.testing.assert_array_equal(core.host, image.host)
    times = single.cycles / result.cycles
    print(
        f"{name}: {single.cycles} cycles on one core, {result.cycles} on eight, {times:.3f} times"
    )
    assert times > MODELS[name] or not broadcast
