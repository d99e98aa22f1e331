# SPDX-License-Identifier: Apache-2.0
"""Tests of the reservation table of the lanes, and of the pauses that follow from it."""

from __future__ import annotations

import itertools

import pytest

from systola.hdl.activation import spacings
from systola.hdl.activation.reservations import TABLE, Kind, Part, cycles_left_out
from systola.sim.runner import TestFailure
from systola.verif.formal.proof import Fault, planted
from systola.verif.kit.launch import quick_simulators
from systola.verif.plan.selection import exhaustive, thorough
from systola.verif.units.activation import test_activation_unit
from systola.verif.units.unit import run_unit

LONGEST = 40
"""A distance in cycles at which no two steps need the same part of a lane in the same cycle."""


def meet(before: Kind, after: Kind, distance: int) -> bool:
    """Return whether a step `distance` cycles after another one is too early for a part of a lane.

    A step is too early if it needs the part while, or before, the other step uses it.
    """
    for part in Part:
        if part not in TABLE[before] or part not in TABLE[after]:
            continue
        earlier, later = TABLE[before][part], TABLE[after][part]
        taken = range(earlier.first, earlier.last + 1)
        wanted = range(later.first + distance, later.last + distance + 1)
        if not set(taken).isdisjoint(wanted) or wanted[0] < taken[0]:
            return True
    return False


@pytest.mark.parametrize("before", Kind)
def test_no_two_steps_meet(before: Kind) -> None:
    """Check the pauses against a search for the least distance at which two steps never meet."""
    for after in Kind:
        free = LONGEST
        while free > 1 and not meet(before, after, free - 1):
            free -= 1
        assert cycles_left_out(before, after) == free - 1, after


def test_pauses() -> None:
    """Compare the pauses with numbers that were worked out by hand from drawings of the lanes."""
    assert spacings.SUM_LATENCY == 4
    assert spacings.SCALED_LATENCY == 10
    assert spacings.SLOT_DISTANCE == 9
    assert spacings.WIDE_SPACING == 1
    assert spacings.TAP_SPACING == 2
    assert spacings.ADDEND_SPACING == 2
    assert spacings.DRAIN_SPACING == 5
    assert spacings.LONG_SPACING == 11
    assert spacings.GATHER_SPACING == 20
    assert [spacings.gate_pause(turns) for turns in (1, 2)] == [28, 29]


def test_long_pause_suffices() -> None:
    """Check which pairs of steps need a pause that is longer than LONG_SPACING.

    These pairs end with an int32 look-up or begin with a scaled curve, and the planner has longer
    pauses for them, GATHER_SPACING and `gate_pause`.
    """
    longer = {
        (before, after)
        for before, after in itertools.product(Kind, Kind)
        if cycles_left_out(before, after) > spacings.LONG_SPACING
    }
    gathers = {before for before, after in longer if after is Kind.GATHERS}
    assert {Part.TABLE in TABLE[before] for before in gathers} == {True}
    assert {before for before, after in longer if after is not Kind.GATHERS} == {Kind.SCALED_CURVE}


@pytest.mark.parametrize(
    ("unit", "old", "new"),
    [
        thorough("steps", "Pause.DRAIN: DRAIN_SPACING", "Pause.DRAIN: DRAIN_SPACING - 2"),
        exhaustive("steps", "Pause.LONG: LONG_SPACING", "Pause.LONG: LONG_SPACING - 1"),
        exhaustive("activation_unit", "meeting.any()", "meeting[1:].any()"),
        exhaustive("gate_queue", "(gate_spacing(turns) - 1) %", "(gate_spacing(turns) - 2) %"),
    ],
)
def test_a_pause_that_is_too_short_is_noticed(unit: str, old: str, new: str) -> None:
    """Check that the test of the activation unit fails if a fault makes a pause too short.

    Steps then come too early, and break a promise of the lanes or a result.
    """
    with planted(Fault(unit=unit, old=old, new=new)):
        faulty = test_activation_unit.unit("3")
        with pytest.raises((TestFailure, RuntimeError)):
            run_unit("test_activation_unit", quick_simulators()[-1], faulty, variant="3")
