# SPDX-License-Identifier: Apache-2.0
"""The test of pods on the RTL against the golden pod: random programs, faults, soft reset."""

from __future__ import annotations

import random

import pytest

from systola.arch.config import preset
from systola.arch.isa import Fault
from systola.arch.registers import Status
from systola.golden.pod import Pod
from systola.sim.pod_library import PodSimulator
from systola.verif.kit.images import text_image
from systola.verif.kit.pod_ends import ENDS, check_done, check_end, check_named_end, images_of
from systola.verif.kit.pod_programs import damage, random_pod
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import exhaustive

# These tests are not quick: a pod's simulator takes as long to build as three others. The units of
# links and pods have quick tests of their own.
pytestmark = pytest.mark.thorough
CONFIG = preset("tiny-links")
TIMEOUT = 3_000
"""Value of BUS_TIMEOUT in cycles, larger than a right program needs with any of the memories."""
PROGRAMS = 12
MOST = 100
"""Largest number of programs in which the test looks for a failed link. A link fails in two of five
damaged programs.
"""
PODS = {
    "3 cores": (3, 0, 0.0, 2, False),
    "3 cores, credits late": (3, 3, 0.1, 2, True),
    "2 cores": (2, 30, 0.1, 1, False),
    "5 cores": (5, 9, 0.5, 7, False),
    "a core by itself": (1, 3, 0.1, 3, False),
}
"""Pods: cores, memory latency and stalls, registers between two cores, and if credits come late."""
NAMES = [
    "3 cores",
    "3 cores, credits late",
    *map(exhaustive, ("a core by itself", "2 cores", "5 cores")),
]
"""Names of the tested pods. Each pod has a simulator of its own, which takes minutes to build."""


def simulator(name: str) -> PodSimulator:
    cores, latency, stall, stages, uneven = PODS[name]
    seed = random_seed()
    return PodSimulator(
        CONFIG, cores, latency=latency, stall=stall, seed=seed, stages=stages, uneven=uneven
    )


@pytest.mark.parametrize("name", NAMES)
def test_random_programs(name: str) -> None:
    """Check random programs against the golden pod, one after the other without a reset."""
    with simulator(name) as pod:
        for number in range(PROGRAMS):
            rng = random.Random(f"{random_seed()} {name} {number}")
            writer = random_pod(rng, CONFIG, pod.cores, steps=rng.choice((3, 10, 25)) * pod.cores)
            images = writer.images()
            outcomes = Pod(CONFIG, pod.cores).run(images)
            check_done(pod.run(writer.images(), bus_timeout=TIMEOUT), outcomes, images)


@pytest.mark.parametrize("name", [*NAMES[:2], *NAMES[3:]])
def test_random_damage(name: str) -> None:
    """Check programs with a missing or a wrong instruction.

    Each core ends as in the golden pod, or is stopped. No core hangs, and later programs run right.
    """
    seen: set[Fault] = set()
    with simulator(name) as pod:
        for number in range(MOST):
            if number >= PROGRAMS and seen & {Fault.LINK_TIMEOUT, Fault.LINK_KIND}:
                break
            rng = random.Random(f"{random_seed()} {name} damage {number}")
            writer = random_pod(rng, CONFIG, pod.cores, steps=6 * pod.cores)
            if number % 3:
                damage(rng, writer)
            images = writer.images()
            outcomes = Pod(CONFIG, pod.cores).run(images)
            result = pod.run(writer.images(), bus_timeout=TIMEOUT)
            check_end(result, outcomes, images)
            seen |= {core.fault_cause for core in result.cores}
    assert seen & {Fault.LINK_TIMEOUT, Fault.LINK_KIND}


@pytest.mark.parametrize("name", list(PODS)[:2])
def test_soft_reset(name: str) -> None:
    """Check that programs run right after a soft reset in any state."""
    with simulator(name) as pod:
        for number in range(PROGRAMS):
            rng = random.Random(f"{random_seed()} soft reset {number}")
            writer = random_pod(rng, CONFIG, pod.cores, steps=20)
            abandoned = pod.run(writer.images(), abandon_after=rng.randint(1, 1500))
            assert abandoned.status in (Status(0), Status.DONE)
            images = writer.images()
            outcomes = Pod(CONFIG, pod.cores).run(images)
            check_done(pod.run(writer.images(), bus_timeout=TIMEOUT), outcomes, images)


@pytest.mark.parametrize("name", list(PODS)[:2])
def test_senders_wait_for_credits(name: str) -> None:
    """Check that lines sent around the ring take about a cycle a beat if credits come at once.

    The same lines take far longer if credits are late.
    """
    text = "receive side=left, buffer=500, rows=400\nsend side=right, buffer=0, rows=400"
    with simulator(name) as pod:
        cycles = pod.run([text_image(text) for _ in range(pod.cores)]).cycles
    assert (cycles > 800) == PODS[name][4], cycles
    assert cycles > 400


def test_ends() -> None:
    """Check that RTL and golden pod end the short programs in ENDS with the expected faults."""
    with simulator("3 cores") as pod:
        for name, end in ENDS.items():
            check_named_end(name, pod.run(images_of(end), bus_timeout=TIMEOUT), end, CONFIG)


def test_bus_error_stops_all() -> None:
    with simulator("3 cores") as pod:
        texts = ["read_host_memory host=512, buffer=0, rows=1, stride=16, blocks=1, tail=4"]
        images = [text_image("\n".join([*texts, "barrier"])) for _ in range(3)]
        result = pod.run(images, bus_timeout=TIMEOUT, host_errors=[(0, 0), (512, 600), (0, 0)])
        assert result.first_fault == (1, Fault.HOST_READ_ERROR)
        causes = [core.fault_cause for core in result.cores]
        assert causes == [Fault.POD_STOPPED, Fault.HOST_READ_ERROR, Fault.POD_STOPPED]
