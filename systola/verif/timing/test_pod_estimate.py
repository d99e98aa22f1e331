# SPDX-License-Identifier: Apache-2.0
"""Tests of the estimate of a pod's cycles, by properties of any hardware and measured cycles.

The estimate is compared with the RTL in verif/system/test_pod_estimate.py.
"""

from __future__ import annotations

import pytest

from systola.arch.config import preset
from systola.compiler.collectives import all_reduce, broadcast
from systola.timing.estimate import estimate
from systola.timing.memory_speed import MemorySpeed
from systola.timing.pod import estimate_pod
from systola.verif.kit.images import program_image, text_image
from systola.verif.plan.selection import thorough

CONFIG = preset("tiny-links")
COPY = "read_host_memory host=0, buffer=0, rows=40, stride=4, blocks=1, tail=4\n"
SEND = "send side=right, buffer=0, rows=40"
RECEIVE = "receive side=left, buffer=100, rows=40"


def cycles(*texts: str, stages: int = 2) -> list[int]:
    result = estimate_pod(CONFIG, [text_image(text) for text in texts], stages=stages)
    return [core.cycles for core in result.cores]


@pytest.mark.parametrize("latency", [0, 30])
def test_cores_without_links(latency: int) -> None:
    """Check that a core of a pod takes as many cycles as a single core if no link is used."""
    texts = (COPY, COPY * 3 + "synchronize\n" + COPY, "nop")
    images = [text_image(text) for text in texts]
    memory = MemorySpeed(latency)
    alone = [estimate(CONFIG, image, memory).cycles for image in images]
    assert [core.cycles for core in estimate_pod(CONFIG, images, memory).cores] == alone


def test_who_receives_waits() -> None:
    """Check that a receiver waits for the sender's lines.

    If the sender has other work before it sends, the receiver waits longer.
    """
    early, early_end = cycles(SEND, RECEIVE)
    late, late_end = cycles(COPY + SEND, RECEIVE)
    assert late > early
    assert late_end - early_end == pytest.approx(late - early, abs=3)
    assert early_end > early


def test_wires_take_time() -> None:
    _, near = cycles(SEND, RECEIVE, stages=2)
    _, far = cycles(SEND, RECEIVE, stages=5)
    assert far == near + 3


def test_the_last_to_come_holds_up_a_barrier() -> None:
    ends = cycles("barrier", COPY * 10 + "barrier", "barrier")
    assert max(ends) - min(ends) < 10
    assert min(ends) > cycles(COPY * 10, "nop", "nop")[0]


def test_a_pod_that_cannot_go_on() -> None:
    with pytest.raises(ValueError, match="nobody sends"):
        cycles("nop", RECEIVE)
    with pytest.raises(ValueError, match="nobody sends"):
        cycles("barrier", "nop")


@pytest.mark.parametrize(
    ("name", "cores", "rows", "times", "lines", "sums_took", "lines_took"),
    [
        thorough("tiny", 3, 256, 16, 1024, 11_034, 1_071),
        thorough("base", 8, 1024, 1, 4096, 3_624, 4_195),
    ],
)
def test_what_the_rtl_took(
    name: str, cores: int, rows: int, times: int, lines: int, sums_took: int, lines_took: int
) -> None:
    """Check the estimate of collectives against measured cycles, which are also in docs/pod.md.

    Programs and cycles are from verif/system/test_pod_collectives.py.
    """
    config = preset(f"{name}-links")
    sums = [program_image(all_reduce(i, cores, 0, rows) * times) for i in range(cores)]
    assert estimate_pod(config, sums).cycles == pytest.approx(sums_took, rel=0.01)
    copies = [program_image(broadcast(i, cores, 0, 0, lines)) for i in range(cores)]
    assert estimate_pod(config, copies).cycles == pytest.approx(lines_took, rel=0.01)
