# SPDX-License-Identifier: Apache-2.0
"""Pods on the RTL, in lockstep with the golden pod: random programs, faults, soft reset."""

from __future__ import annotations

import random

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.image import Image
from systola.arch.isa import LINK_OPCODES, Fault, LinkPart, Opcode, encode
from systola.arch.registers import Status
from systola.golden.outcome import Outcome
from systola.golden.pod import Pod
from systola.sim.pod_library import PodResult, PodSimulator
from systola.verif.kit.images import text_image
from systola.verif.kit.pod_programs import random_pod
from systola.verif.kit.seeds import random_seed
from systola.verif.plan.selection import thorough

CONFIG = preset("tiny-links")
TIMEOUT = 3_000
"""Cycles without a beat that no program here takes, whatever its memories do."""
PROGRAMS = 12
PODS = {
    "3 cores": (3, 0, 0.0, 2, False),
    "3 cores, credits late": (3, 3, 0.1, 2, True),
    "2 cores": (2, 30, 0.1, 1, False),
    "5 cores": (5, 9, 0.5, 7, False),
    "a core by itself": (1, 3, 0.1, 3, False),
}
"""Cores, latency and stalls of their memories, registers between two of them, uneven links."""


def simulator(name: str) -> PodSimulator:
    cores, latency, stall, stages, uneven = PODS[name]
    seed = random_seed()
    return PodSimulator(
        CONFIG, cores, latency=latency, stall=stall, seed=seed, stages=stages, uneven=uneven
    )


def check(result: PodResult, outcomes: list[Outcome], images: list[Image]) -> None:
    """Each core ended as in the golden model, which left `images` so."""
    for core, outcome, image in zip(result.cores, outcomes, images, strict=True):
        assert outcome.fault is None
        assert core.status == Status.DONE and core.fault_cause == Fault.NONE
        np.testing.assert_array_equal(core.host, image.host)
    assert result.status == Status.DONE and result.first_fault is None


@pytest.mark.parametrize("name", [next(iter(PODS)), *map(thorough, list(PODS)[1:])])
def test_random_programs(name: str) -> None:
    """What the golden pod computes, one after the other without a reset."""
    with simulator(name) as pod:
        for number in range(PROGRAMS):
            rng = random.Random(f"{random_seed()} {name} {number}")
            writer = random_pod(rng, CONFIG, pod.cores, steps=rng.choice((3, 10, 25)) * pod.cores)
            images = writer.images()
            outcomes = Pod(CONFIG, pod.cores).run(images)
            check(pod.run(writer.images(), bus_timeout=TIMEOUT), outcomes, images)


@pytest.mark.parametrize("name", [next(iter(PODS)), *map(thorough, list(PODS)[1:4])])
def test_random_damage(name: str) -> None:
    """With an instruction less, or a wrong one, each core ends as in the golden pod, or is stopped;
    none hangs, and the next programs are not disturbed."""
    seen: set[Fault] = set()
    with simulator(name) as pod:
        for number in range(PROGRAMS):
            rng = random.Random(f"{random_seed()} {name} damage {number}")
            writer = random_pod(rng, CONFIG, pod.cores, steps=6 * pod.cores)
            words = rng.choice(writer.words)
            links = [i for i, word in enumerate(words) if word[0] in LINK_OPCODES]
            if links and number % 3:
                new = (encode(Opcode.NOP), bytes(16), encode(Opcode.BARRIER), b"\xff" * 16)
                words[rng.choice(links)] = rng.choice(new)
            images = writer.images()
            outcomes = Pod(CONFIG, pod.cores).run(images)
            result = pod.run(writer.images(), bus_timeout=TIMEOUT)
            if all(outcome.fault is None for outcome in outcomes):
                check(result, outcomes, images)
                continue
            assert result.status == Status.FAULT and result.first_fault is not None
            first, cause = result.first_fault
            assert result.cores[first].fault_cause == cause != Fault.POD_STOPPED
            for core, outcome in zip(result.cores, outcomes, strict=True):
                seen.add(core.fault_cause)
                expected = outcome.fault.cause if outcome.fault else Fault.NONE
                allowed = {expected, Fault.POD_STOPPED}
                if expected == Fault.LINK_KIND:  # what took it may wait for what waits in vain
                    allowed.add(Fault.LINK_TIMEOUT)
                assert core.fault_cause in allowed
                assert core.status == (Status.FAULT if core.fault_cause else Status.DONE)
    assert seen & {Fault.LINK_TIMEOUT, Fault.LINK_KIND}


@pytest.mark.parametrize("name", [next(iter(PODS)), *map(thorough, list(PODS)[1:2])])
def test_soft_reset(name: str) -> None:
    """From any state; what runs then is not disturbed."""
    with simulator(name) as pod:
        for number in range(PROGRAMS):
            rng = random.Random(f"{random_seed()} soft reset {number}")
            writer = random_pod(rng, CONFIG, pod.cores, steps=20)
            abandoned = pod.run(writer.images(), abandon_after=rng.randint(1, 1500))
            assert abandoned.status in (Status(0), Status.DONE)
            images = writer.images()
            outcomes = Pod(CONFIG, pod.cores).run(images)
            check(pod.run(writer.images(), bus_timeout=TIMEOUT), outcomes, images)


@pytest.mark.parametrize("name", [*map(thorough, list(PODS)[:2])])
def test_senders_wait_for_credits(name: str) -> None:
    """Lines around the ring take their beats where credits come back at once, and far longer where
    they are late; they are the same lines."""
    text = "receive side=left, buffer=500, rows=400\nsend side=right, buffer=0, rows=400"
    with simulator(name) as pod:
        cycles = pod.run([text_image(text) for _ in range(pod.cores)]).cycles
    assert (cycles > 800) == PODS[name][4], cycles
    assert cycles > 400


STOPPED = (Fault.POD_STOPPED, 0, 0)
ENDS = {
    "more than a link holds": (
        ("send side=right, buffer=0, rows=17", "nop", "nop"),
        ((Fault.LINK_TIMEOUT, 0, int(LinkPart.SEND_RIGHT)), None, None),
    ),
    "as much as a link holds": (("send side=right, buffer=0, rows=16", "nop", "nop"), (None,) * 3),
    "nobody sends": (
        (
            "nop",
            "receive side=left, buffer=0, rows=1\nreduce side=right, accumulator=0, rows=1\n"
            "send side=left, buffer=100, rows=17\nsend side=right, buffer=100, rows=17",
            "barrier",
        ),
        (None, (Fault.LINK_TIMEOUT, 0, 15), (Fault.LINK_TIMEOUT, 0, int(LinkPart.BARRIER))),
    ),
    "a barrier too many": (
        ("barrier\nbarrier", "barrier", "barrier\nbarrier"),
        (
            (Fault.LINK_TIMEOUT, 0, int(LinkPart.BARRIER)),
            None,
            (Fault.LINK_TIMEOUT, 0, int(LinkPart.BARRIER)),
        ),
    ),
    "sums for lines": (
        (
            "barrier",
            "send side=right, sums=1, accumulator=0, rows=1",
            "receive side=left, buffer=0, rows=3",
        ),
        (STOPPED, None, (Fault.LINK_KIND, 0, int(LinkPart.RECEIVE_LEFT))),
    ),
    "an illegal word": (
        ("nop\n.word 0xFF", "receive side=left, buffer=0, rows=1", "barrier"),
        ((Fault.ILLEGAL_OPCODE, 1, 0xFF), STOPPED, STOPPED),
    ),
    "what comes before a fault": (
        (
            "send side=left, buffer=0, rows=40\n.word 0xFF",
            "nop",
            "receive side=right, buffer=50, rows=40",
        ),
        ((Fault.ILLEGAL_OPCODE, 1, 0xFF), None, None),
    ),
    "beyond a memory": (
        ("send side=left, buffer=1020, rows=5", "barrier", "barrier"),
        ((Fault.BUFFER_RANGE, 0, 1020), STOPPED, STOPPED),
    ),
    "an instruction that meets a transfer": (
        (
            "send side=right, buffer=0, rows=200\n"
            "activate accumulator=0, buffer=199, rows=1, n_tiles=1, parameter=0\n"
            "receive side=left, buffer=300, rows=200",
        )
        * 3,
        ((Fault.LINK_TIMEOUT, 0, int(LinkPart.SEND_RIGHT)),) * 3,
    ),
    "an instruction beside a transfer": (
        (
            "send side=right, buffer=0, rows=200\n"
            "activate accumulator=0, buffer=200, rows=1, n_tiles=1, parameter=0\n"
            "receive side=left, buffer=300, rows=200",
        )
        * 3,
        (None,) * 3,
    ),
}


def test_ends() -> None:
    """Causes and addresses by hand; those of the golden pod, too."""
    with simulator("3 cores") as pod:
        for name, (texts, expected) in ENDS.items():
            outcomes = Pod(CONFIG, 3).run([text_image(text) for text in texts])
            result = pod.run([text_image(text) for text in texts], bus_timeout=TIMEOUT)
            found = [
                (core.fault_cause and (core.fault_cause, core.fault_pc, core.fault_address)) or None
                for core in result.cores
            ]
            golden = [
                outcome.fault and (outcome.fault.cause, outcome.fault.pc, outcome.fault.address)
                for outcome in outcomes
            ]
            assert golden == list(expected), name
            # Who is stopped may have been about to end.
            stops = result.first_fault and result.first_fault[1] != Fault.LINK_TIMEOUT
            for core in range(pod.cores):
                assert found[core] == golden[core] or (stops and found[core] == STOPPED), name


def test_bus_error_stops_all() -> None:
    with simulator("3 cores") as pod:
        texts = ["read_host_memory host=512, buffer=0, rows=1, stride=16, blocks=1, tail=4"]
        images = [text_image("\n".join([*texts, "barrier"])) for _ in range(3)]
        result = pod.run(images, bus_timeout=TIMEOUT, host_errors=[(0, 0), (512, 600), (0, 0)])
        assert result.first_fault == (1, Fault.HOST_READ_ERROR)
        causes = [core.fault_cause for core in result.cores]
        assert causes == [Fault.POD_STOPPED, Fault.HOST_READ_ERROR, Fault.POD_STOPPED]
