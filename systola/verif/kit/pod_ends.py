# SPDX-License-Identifier: Apache-2.0
"""Checks that each core of a pod ends as in the golden model, or is stopped with the other cores.

Short programs come with the end that each core must have.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from systola.arch.config import Config
from systola.arch.image import Image
from systola.arch.isa import Fault, LinkPart
from systola.arch.registers import Status
from systola.golden.outcome import Outcome
from systola.golden.pod import Pod
from systola.sim.pod_library import PodResult
from systola.verif.kit.images import text_image

FaultFacts = tuple[Fault, int, int]
"""A fault: its cause, the number of the faulting instruction in the program, and the address."""
STOPPED = (Fault.POD_STOPPED, 0, 0)
End = tuple[tuple[str, ...], tuple[FaultFacts | None, ...]]
"""The programs of three cores in assembly text, and the fault of each; None at Halt."""
ENDS: dict[str, End] = {
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


def check_done(result: PodResult, outcomes: Sequence[Outcome], images: Sequence[Image]) -> None:
    """Fail unless all cores reach Halt without a fault, with memories as in the golden `images`."""
    for core, outcome, image in zip(result.cores, outcomes, images, strict=True):
        assert outcome.fault is None
        assert core.status == Status.DONE and core.fault_cause == Fault.NONE
        np.testing.assert_array_equal(core.host, image.host)
    assert result.status == Status.DONE and result.first_fault is None


def check_end(result: PodResult, outcomes: Sequence[Outcome], images: Sequence[Image]) -> None:
    """Fail unless each core ends as in the golden model, or is stopped because another core
    failed.
    """
    if all(outcome.fault is None for outcome in outcomes):
        check_done(result, outcomes, images)
        return
    assert result.status == Status.FAULT and result.first_fault is not None
    first, cause = result.first_fault
    assert first < len(result.cores)
    assert result.cores[first].fault_cause == cause != Fault.POD_STOPPED
    for core, outcome in zip(result.cores, outcomes, strict=True):
        expected = outcome.fault.cause if outcome.fault else Fault.NONE
        allowed = {expected, Fault.POD_STOPPED}
        # the core that took wrong data may wait for another core in vain
        if expected == Fault.LINK_KIND:
            allowed.add(Fault.LINK_TIMEOUT)
        assert core.fault_cause in allowed
        assert core.status == (Status.FAULT if core.fault_cause else Status.DONE)


def images_of(end: End) -> list[Image]:
    """Return the memory images of the programs of one of ENDS."""
    return [text_image(text) for text in end[0]]


def check_named_end(name: str, result: PodResult, end: End, config: Config) -> None:
    """Fail unless pod and golden pod report the faults that are listed in the named entry of
    ENDS.
    """
    expected = list(end[1])
    golden = [
        outcome.fault and (outcome.fault.cause, outcome.fault.pc, outcome.fault.address)
        for outcome in Pod(config, len(expected)).run(images_of(end))
    ]
    assert golden == expected, name
    # If a core fails, other cores may be stopped before they reach their own ends.
    stops = result.first_fault and result.first_fault[1] != Fault.LINK_TIMEOUT
    for core, facts in zip(result.cores, golden, strict=True):
        found = (core.fault_cause, core.fault_pc, core.fault_address) if core.fault_cause else None
        assert found == facts or (stops and found == STOPPED), name
