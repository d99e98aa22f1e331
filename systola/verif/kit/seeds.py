# SPDX-License-Identifier: Apache-2.0
"""The seeds of random tests: one for each run, and from it one for each test case."""

from __future__ import annotations

import hashlib
import os

import cocotb

CONSTANT_SEED = 1
"""Default of SEED: the same commit always gives the same tests."""
SEEDS = 1 << 31
"""Bound of the seeds of test cases."""

asked: set[str] = set()
"""Test cases of this process that have asked for a seed: their outcomes can depend on SEED."""


def run_seed() -> int:
    """Return SEED, from which every seed of this run of pytest comes.

    conftest.py puts it into the environment, with CONSTANT_SEED by default.
    """
    return int(os.environ["SEED"])


def case_seed() -> int:
    """Return a seed for this case of a test: a mixture of SEED and the case's name.

    The name is pytest's, with the file and the parameters, so that every case has data of its own.
    The seed is the same in pytest's process and in processes that the test starts. Outside pytest,
    such as in `make chain`, the name is empty.
    """
    case = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    asked.add(case)
    digest = hashlib.sha256(f"{run_seed()} {case}".encode()).digest()
    return int.from_bytes(digest[:8], "little") % SEEDS


def random_seed() -> int:
    """Return the seed of this test case, in a simulator mixed with the name of the cocotb test."""
    # cocotb adds the name to its initial seed, the seed of the case.
    mixed = getattr(cocotb, "RANDOM_SEED", None)
    return case_seed() if mixed is None else mixed % SEEDS
