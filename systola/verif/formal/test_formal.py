# SPDX-License-Identifier: Apache-2.0
"""Tests that the quick proofs of `make formal` hold, and that each finds its planted faults."""

from pathlib import Path

import pytest

from systola.verif.formal.page import formal_page
from systola.verif.formal.proof import Fault, Proof, check
from systola.verif.formal.proofs import PROOFS
from systola.verif.kit.checkout import ROOT
from systola.verif.plan.selection import exhaustive, thorough

QUICK = [proof for proof in PROOFS if proof.quick]
FIRST = list({proof.harness.__module__: proof for proof in reversed(QUICK)}.values())
"""The first quick proof of each kind: queues, bursts, masters, waiting, arithmetic and so on.

These proofs are quick tests, each with one planted fault, which shows that faults are found.
"""
FAULTS = [(proof, fault) for proof in QUICK for fault in proof.faults]
SOME = [proof.faults[0] for proof in FIRST]
"""The faults that are planted in the quick tests; `make formal` plants all faults."""


def test_page_is_up_to_date() -> None:
    page = ROOT / "docs" / "formal.md"
    assert page.read_text(encoding="utf-8") == formal_page()


def test_every_proof_can_fail() -> None:
    assert [proof.claim for proof in PROOFS if not proof.faults] == []


@pytest.mark.parametrize(
    "proof",
    [proof if proof in FIRST else thorough(proof) for proof in QUICK],
    ids=lambda proof: f"{proof.unit}: {proof.claim}",
)
def test_holds(proof: Proof, tmp_path: Path) -> None:
    verdict = check(proof, tmp_path)
    assert verdict.holds, verdict.what


@pytest.mark.parametrize(
    ("proof", "fault"),
    [
        (proof, fault)
        if fault is SOME[0]
        else (thorough if any(fault is each for each in SOME) else exhaustive)(proof, fault)
        for proof, fault in FAULTS
    ],
)
def test_fault_is_found(proof: Proof, fault: Fault, tmp_path: Path) -> None:
    verdict = check(proof, tmp_path, fault)
    assert verdict.counterexample, verdict.what
