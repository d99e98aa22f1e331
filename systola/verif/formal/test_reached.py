# SPDX-License-Identifier: Apache-2.0
"""Tests of the coverage of proofs: the cone of assertions, joined proofs, one proof measured."""

from pathlib import Path

import pytest

from systola.verif.formal.proofs import PROOFS
from systola.verif.formal.reached import Looked, cone_of, joined, measure, store, stored
from systola.verif.kit.checkout import PACKAGE

SOURCE = {"src": f"{PACKAGE / 'hdl' / 'unit.py'}:1"}


def flip_flop(output: int, data: int) -> dict[str, object]:
    return {"type": "$dff", "connections": {"CLK": [1], "D": [data], "Q": [output]}}


def test_cone() -> None:
    """Check that an assertion's cone has the registers on which the assertion depends.

    The cone has two registers here, one of which reaches the assertion only through the other. A
    register that only reads a bit of the cone is not in the cone.
    """
    cells = {
        "claim": {"type": "$assert", "connections": {"A": [10], "EN": ["1"]}},
        "gate": {"type": "$not", "connections": {"A": [2], "Y": [10]}},
        "near": flip_flop(2, 3),
        "far": flip_flop(3, 4),
        "beside": flip_flop(5, 2),
        "harness": flip_flop(4, 4),
    }
    names = {
        "near": {"bits": [2], "attributes": SOURCE},
        "far": {"bits": [3], "attributes": SOURCE},
        "beside": {"bits": [5], "attributes": SOURCE},
        "wire": {"bits": [10], "attributes": SOURCE},
        "harness": {"bits": [4], "attributes": {}},
    }
    assert cone_of({"cells": cells, "netnames": names}) == (3, 2)


def test_two_proofs_of_a_unit(tmp_path: Path) -> None:
    unit = PROOFS[0].unit
    one, other = Looked(unit, ["a:1", "a:2"], ["a:2"], 8, 4), Looked(unit, ["a:1", "b:3"], [], 9, 9)
    both = joined(one, other)
    assert both == Looked(unit, ["a:1", "a:2", "b:3"], ["a:2"], 9, 9)
    for each in (one, Looked("gone", [], [], 0, 0), both):
        store(each, tmp_path / "reached.json")
    assert stored(tmp_path / "reached.json") == {unit: both}


@pytest.mark.thorough
def test_a_proof(tmp_path: Path) -> None:
    """Check that the proof of the skid buffer looks at all of its branches and registers."""
    (proof,) = (proof for proof in PROOFS if proof.unit == "skid_buffer")
    looked = measure([proof], tmp_path)
    assert len(looked.branches) == 2 and not looked.unreached
    assert looked.cone == looked.registers > 0
