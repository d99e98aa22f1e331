# SPDX-License-Identifier: Apache-2.0
"""The seeds of random tests: one seed for each run and, made from it, one for each test case."""

from __future__ import annotations

import hashlib
import os

import cocotb

CONSTANT_SEED = 1
"""The default of SEED, a constant, so that a commit always gives the same tests."""
SEEDS = 1 << 31
"""The bound of the seeds of test cases, which are smaller."""

asked: set[str] = set()
"""The test cases of this process that have asked for a seed: their outcome may depend on SEED."""


def run_seed() -> int:
    """Return the number SEED, from which every seed of this run of pytest is made.

    conftest.py puts it into the environment, with CONSTANT_SEED by default.
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
    # cocotb's initial seed is the seed of the case, to which it adds the name of the test.
    mixed = getattr(cocotb, "RANDOM_SEED", None)
    return case_seed() if mixed is None else mixed % SEEDS
