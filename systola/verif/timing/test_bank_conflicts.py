# SPDX-License-Identifier: Apache-2.0
"""Tests of the timing model for streams that need the same banks of the unified buffer."""

import numpy as np
import pytest

from systola.timing.bank_conflicts import (
    ComingReads,
    OtherReads,
    Reader,
    yielding_times,
    yielding_writes,
)
from systola.verif.kit.seeds import random_seed

BANKS = 4


def reader(lines, start=100, target=1000, latency=14, turns=1):
    lines = np.array(lines)
    return Reader(
        lines=lines,
        before=np.zeros(len(lines)),
        needed=np.zeros(len(lines)),
        start=start,
        target=target,
        target_lines=1,
        latency=latency,
        turns=turns,
    )


def other(lines=(), past=None, start=0.0, ready=0.0):
    lines = np.array(lines, int)
    coming = [ComingReads(lines, np.full(len(lines), float(ready)))] if len(lines) else []
    return OtherReads(past or {}, iter(coming), start)


def test_alone():
    times = yielding_times(reader([[0, 1], [2, 3], [4, 5]]), other(), BANKS)
    assert times.tolist() == [101, 103, 105]


def test_either_cycle_of_a_step():
    """Check that a step of two cycles waits only for a bank that is taken in both cycles."""
    lines = [[4 * line] for line in range(4)]
    every_other = {100.0 + 2 * time: 0 for time in range(20)}
    times = yielding_times(reader(lines, turns=2), other(past=every_other), BANKS)
    assert times.tolist() == [100, 102, 104, 106]
    both = {100.0: 0, 101.0: 0}
    assert yielding_times(reader(lines, turns=2), other(past=both), BANKS)[0] == 102


def test_equal_pace_meets_once():
    """Check that two sequential streams wait only once: afterwards they use different banks."""
    lines = [[line] for line in range(20)]
    past = {100.0 + line: 8 + line for line in range(40)}
    times = yielding_times(reader(lines), other(past=past), BANKS)
    assert times.tolist() == [101 + line for line in range(20)]


def test_another_bank_is_free():
    lines = [[line] for line in range(20)]
    past = {100.0 + line: 9 + line for line in range(40)}
    times = yielding_times(reader(lines), other(past=past), BANKS)
    assert times.tolist() == [100 + line for line in range(20)]


def test_coming_reads_start_when_they_are_ready():
    """Check a stream that waits for the reads of another stream, which are ready from cycle 103 on.

    These reads begin in cycle 104, because the interlock is checked in every other cycle only.
    """
    lines = [[0]] * 8
    slow = yielding_times(reader(lines), other([4] * 100, start=100, ready=103), BANKS)
    assert slow.tolist() == [100, 101, 102, 103, *range(204, 208)]


def test_follower_waits_for_its_lines():
    """Check reads of lines that the activation unit writes.

    Line 1000 is written 14 cycles after its vector, and may be read in the next cycle. The
    interlock is checked in every other cycle only.
    """
    lines = [[-1, -1, -1, -1, 0]] * 8
    times = yielding_times(reader(lines), other([1000 + n for n in range(8)], start=0), BANKS)
    issue = 104
    expected, reads = [], []
    looks = 0
    for _ in range(8):
        # The lines 1000 and 1004 are in bank 0.
        while issue in reads[::4]:
            issue += 1
        expected.append(issue)
        while looks < issue + 15:
            looks += 2
        reads.append(looks)
        looks += 1
        issue += 5
    assert times.tolist() == expected


def test_line_outside_the_map_is_not_read():
    past = {100.0: 0, 101.0: 0}
    assert yielding_times(reader([[-1, -1]]), other(past=past), BANKS).tolist() == [101]


def test_writes_give_way():
    """Check a stream of one line in each cycle that meets a stream of one line in two cycles.

    Each line of the first stream then meets the second stream. So the first stream, which yields,
    also takes two cycles for a line.
    """
    times = 10.0 + np.arange(8)
    taken = 10.0 + 2 * np.arange(100)
    assert yielding_writes(times, 0, taken, 0, BANKS).tolist() == [11 + 2 * n for n in range(8)]
    assert yielding_writes(times, 1, taken, 0, BANKS).tolist() != times.tolist()
    assert yielding_writes(times, 0, taken + 500, 0, BANKS).tolist() == times.tolist()
    assert yielding_writes(times + 500, 0, taken, 0, BANKS).tolist() == (times + 500).tolist()


@pytest.mark.parametrize("gap", [1, 2, 3])
def test_writes_that_give_way_are_those_found_one_by_one(gap: int) -> None:
    random = np.random.default_rng(random_seed())
    times = np.cumsum(random.integers(1, 1 + gap, 700)).astype(np.float64)
    taken = 150.0 + np.cumsum(random.integers(1, 3, 300))
    at = {time: number for number, time in enumerate(taken.tolist(), 5)}
    late, expected = 0.0, list[float]()
    for number, time in enumerate(times.tolist()):
        while (other := at.get(time + late)) is not None and (other - 3 - number) % BANKS == 0:
            late += 1
        expected.append(time + late)
    assert yielding_writes(times, 3, taken, 5, BANKS).tolist() == expected
