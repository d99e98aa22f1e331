# SPDX-License-Identifier: Apache-2.0
"""Computes the masks of Dropout, for all units of a batch, from the random bytes of the machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.golden.training import Generators
from systola.training.masks import block_seed, kept_codes


def dropout(
    rate: float,
    shape: tuple[int, int, int],
    *,
    columns: int,
    seed: int,
    counter: int,
    step: int = 0,
) -> NDArray[np.int8]:
    """Draw a mask of `shape`, (samples, lines, units), with 1 for the units that pass.

    Units of a map have a line for each pixel, other units have one line. The machine draws for
    `columns` samples and `columns` units at a time, where `columns` is the width of the array.
    `counter` is made of the numbers of the stage and of the training step. `step` is a step in
    time.
    """
    samples, lines, units = shape
    groups, blocks = -(-samples // columns), -(-units // columns)
    seeds = np.array([block_seed(seed, group, step) for group in range(groups)])
    counters = (counter + (np.arange(blocks) << 4)) % (1 << 32)
    drawn = Generators(columns).lines(columns * lines, seeds[:, np.newaxis], counters)
    # The axes (sample and line, group, block, column) become (group, sample, line, block, column).
    apart = drawn.reshape(columns, lines, groups, blocks, columns).transpose(2, 0, 1, 3, 4)
    codes = apart.reshape(groups * columns, lines, -1)[:samples, :, :units].view(np.uint8)
    return ((codes >= 1) & (codes <= kept_codes(rate))).astype(np.int8)
