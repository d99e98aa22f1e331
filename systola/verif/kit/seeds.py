# SPDX-License-Identifier: Apache-2.0
"""The seeds of random tests: one seed for each run and, made from it, one for each test case."""

from __future__ import annotations

import hashlib
import os

import cocotb

CONSTANT_SEED = 1
"""The default of SEED, a constant, so that a commit always gives the same tests."""
SEEDS = 1 << 31
"""The number of possible seeds of a test case: 0 to SEEDS - 1."""

asked: set[str] = set()
"""The test cases that have asked for a seed, so that SEED may change their outcome."""


def run_seed() -> int:
    """Return the number SEED, from which every seed of this run of pytest is made.

    conftest.py puts SEED into the environment, by default CONSTANT_SEED.
    """
    return int(os.environ["SEED"])


def case_seed() -> int:
    """Return the seed of the present test case: a mixture of SEED and the case's name.

    The name is pytest's, with the file and the parameters, so that every case has data of its own.
    The seed is the same in pytest's process and in processes that the test starts. Outside pytest,
    such as in `make chain`, the name is empty.
    """
    case = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    asked.add(case)
    digest = hashlib.sha256(f"{run_seed()} {case}".encode()).digest()
    return int.from_bytes(digest[:8], "little") % SEEDS


def random_seed() -> int:
    """Return the seed of this test case; in a simulator, mixed with the cocotb test's name."""
    # cocotb begins with the seed of the test case, and adds the name of the cocotb test.
    mixed = getattr(cocotb, "RANDOM_SEED", None)
    return case_seed() if mixed is None else mixed % SEEDS
