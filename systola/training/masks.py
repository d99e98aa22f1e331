# SPDX-License-Identifier: Apache-2.0
"""Makes the tables and seeds of masks: a mask is 1 for numbers that pass, else 0."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B1
"""Distance between the seeds of successive blocks of samples: 2^32 over the golden ratio, odd, so
that seeds are far apart."""
_STEP_PLACE = 19
"""Number of low bits that hold the number of a block of samples. The step in time of a recurrent
layer stands in the bits above."""


def positive_table() -> NDArray[np.int8]:
    """Return a table of 256 results: 1 for numbers above zero, else 0."""
    return (np.arange(256) % 128 * (np.arange(256) < 128) > 0).astype(np.int8)


def block_seed(seed: int, block: int, step: int = 0) -> int:
    """Return the seed of instruction Random for a block of C samples.

    `block`: number of the block in the batch, from 0. It does not depend on the core of a pod that
    has the block, so neither do the masks. `step`: the step in time of a recurrent layer, from 0,
    below 2^12. Each step has a mask of its own.
    """
    return (seed + (block + (step << _STEP_PLACE)) * _GOLDEN) % 2**31


def kept_codes(rate: float) -> int:
    """Return how many of the 256 random bytes let a unit pass: 256 (1 - `rate`), rounded, at most
    255.
    """
    return min(255, round(256 * (1 - rate)))


def keep_table(rate: float) -> NDArray[np.int8]:
    """Return a table of 256 results: 1 for random bytes that let a unit pass, else 0.

    Bytes from 1 to `kept_codes` let a unit pass, read as unsigned; zero never does. So the table
    also serves for the product of a random byte and a mask: where the mask is 0 the result is 0.
    """
    codes = np.arange(256)
    return ((codes >= 1) & (codes <= kept_codes(rate))).astype(np.int8)


def zero_table() -> NDArray[np.int8]:
    """Return a table of 256 results: 1 for zero, else 0."""
    return (np.arange(256) == 0).astype(np.int8)
