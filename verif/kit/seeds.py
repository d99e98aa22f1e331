# SPDX-License-Identifier: Apache-2.0
"""The seed of a random test."""

from __future__ import annotations

import os


def random_seed() -> int:
    """The seed of this run of pytest: conftest.py chooses it unless SEED is given."""
    return int(os.environ["SEED"])
