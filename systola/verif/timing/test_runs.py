# SPDX-License-Identifier: Apache-2.0
"""Tests of the timing model's waits of a reader for instructions that write lines, by hand."""

import numpy as np
import pytest

from systola.timing.runs import NOTHING, WriterList, run_of


def writers(*entries):
    """Return a list of writers (first line, end of lines, end in cycles).

    The lines of a writer are announced one a cycle, up to the writer's end.
    """
    written = np.zeros(200)
    found = WriterList(8, written)
    for base, stop, end in entries:
        written[base:stop] = end - (stop - base) + 1 + np.arange(stop - base)
        found.push(base, stop, float(end))
    return found


@pytest.mark.parametrize(
    ("entries", "lines", "run"),
    [
        # No entry writes the reader's lines; one entry does; two of three rising entries do.
        ([(0, 10, 20)], (10, 20), range(0)),
        ([(0, 10, 20)], (9, 20), range(1)),
        ([(0, 10, 20), (10, 20, 30), (30, 40, 50)], (10, 40), range(1, 3)),
        # A gap between the lines of two entries does not end a run. An entry with lines below its
        # predecessor's begins another run.
        ([(0, 10, 20), (50, 60, 70), (60, 70, 80)], (0, 70), range(3)),
        ([(0, 10, 20), (100, 110, 25), (20, 30, 40)], (0, 30), range(2, 3)),
        # An entry after an empty entry begins a new run.
        ([(0, 10, 20), (0, 0, 25), (20, 30, 40)], (0, 30), range(2, 3)),
    ],
)
def test_run(entries, lines, run):
    assert run_of(writers(*entries).pending(0.0), *lines) == run


def test_lines_below_wait_for_the_first_of_the_run():
    """Check when a reader that waits for the younger entries may read older lines.

    Line 5 was written in cycle 16, but it may be read only when the first line of the run has been
    announced. Lines in the gap between two entries wait for the line after the gap.
    """
    found = writers((0, 10, 20), (100, 110, 25), (20, 30, 40), (40, 50, 60))
    entries = found.pending(0.0)
    run = run_of(entries, 0, 50)
    times = found.announced(entries[run.start : run.stop], np.array([5, 20, 25, 35, 49, 60]))
    assert times.tolist() == [31, 31, 36, 51, 60, 60]


def test_complete_entries_are_not_awaited():
    found = writers((0, 10, 20), (20, 30, 40))
    assert len(found.pending(19.0)) == 2
    assert len(found.pending(20.0)) == 1
    assert [entry.rises for entry in found.following(40.0, (30, 5))] == [True]
    assert not NOTHING.followed_by(0, 10).rises


def test_state():
    """Check a list of writers that resumes from a stored state.

    The last entry, however old, decides whether the next entry continues a run (rises).
    """
    found = writers((0, 10, 20), (10, 20, 30))
    again = WriterList(8, np.zeros(200))
    again.resume(found.state(25.0), 1025.0)
    assert [entry.end for entry in again.pending(1000.0)] == [1030.0]
    again.resume(found.state(500.0), 1500.0)
    assert again.pending(1500.0) == []
    assert again.following(1500.0, (20, 1))[0].rises
