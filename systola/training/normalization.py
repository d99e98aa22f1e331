# SPDX-License-Identifier: Apache-2.0
"""Computes the numbers of BatchNormalization: codes of means, variances and their roots.

A network has two stages for a BatchNormalization. The first stage, without weights, makes (x -
mean) / root(variance + epsilon) of its inputs x. The second stage is a DepthwiseConv2D of size 1:
gamma is its kernel, beta its biases.

The mean is int16 with MEAN_BITS more fraction bits than x. For the variance x - mean is measured,
and narrowed to 8 bits. The variance is the mean of the squares of x - mean, int16 with one fraction
bit more than these squares have. Epsilon is added. The reciprocal root has as many bits as fit the
largest root of all channels. The results are x times the root, less the product of mean and root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log2, prod

import numpy as np
from numpy.typing import NDArray

from systola.training.errors import TrainingError
from systola.training.numbers import codes, fraction_bits, multiplier
from systola.training.stages import Stage
from systola.training.writer import Entry, shifted

MEAN_BITS = 6
"""Number of fraction bits that a mean has beyond the fraction bits of its inputs."""
UNIT_BITS = 13
"""Number of fraction bits of the int16 code of 1. The array multiplies inputs with this code, so
that a mean with more fraction bits can be subtracted."""
LESS = -(1 << (UNIT_BITS - MEAN_BITS))
"""The int8 factor of a mean that is subtracted. The factor is negative. Its size makes up for the
fraction bits that a mean has too few, UNIT_BITS - MEAN_BITS."""
ROOT_BITS = 20
"""Fraction bits of reciprocal roots, before the shift with which the largest root fits int16."""
FLOOR = -64
"""Bias of a parameter entry that shifts right by seven bits. It cancels the half of the rounding,
so that the result is rounded down."""
OFFSET_ENTRY = shifted(UNIT_BITS - 1)
"""Parameter entry that turns the product of mean and root into the offset of a channel. To subtract
the offset, the array multiplies it by LESS."""
MOST_ROWS = (1 << 17) - 1
"""Largest number of rows of a batch. With more rows, a sum of squares of int8 could overflow 32
bits."""
_ROOM = 10
"""Largest number of bits that the code of epsilon may have. With more bits, the sum with the
largest variance could overflow int16."""
_EPSILON_BITS = 13
_CODE = (1 << 15) - 1

Floats = NDArray[np.float32]
Wide = NDArray[np.int16]


def mean_entry(count: int) -> Entry:
    """Return the parameter entry that turns the sum of `count` codes into their mean."""
    return _divided(count, MEAN_BITS)


def variance_entry(count: int) -> Entry:
    """Return the parameter entry that turns the sum of `count` squares into a variance."""
    return _divided(count, 1)


def slope_entry(count: int) -> tuple[int, int]:
    """Return the multiplier and the shift that turn a sum of products into the mean of the
    products.

    `count`: number of products, each of a gradient and a result. The caller adds twice the fraction
    bits of the results to the shift.
    """
    q, right = multiplier(1 / count)
    return q, right - UNIT_BITS


def _divided(count: int, bits: int) -> Entry:
    q, right = multiplier(2.0**bits / count)
    return shifted(right, multiplier=q)


def most_spread_bits(epsilon: float) -> int:
    """Return the largest number of fraction bits that x - mean may have.

    The variance has twice as many, and epsilon has as many as the variance. With more bits, the sum
    of both could overflow int16.
    """
    return floor((_ROOM - log2(epsilon)) / 2)


def epsilon_code(epsilon: float) -> tuple[int, int]:
    """Return an int16 code of epsilon, and the number of its fraction bits."""
    bits = fraction_bits(epsilon, (1 << _EPSILON_BITS) - 1)
    return int(codes(np.array(epsilon), bits, np.int16)), bits


def root_tables() -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Return two tables that give 2^(p >> 1) for a power of two 2^p, p from 0 to 14.

    The first table takes 2^p / 128, rounded down and limited to 127, and gives an eighth of the
    result. The second table takes 2^p, limited to 127. Each table gives zero for the powers that
    the other table is for.
    """
    high, low = (np.zeros(256, np.int8) for _ in range(2))
    for power in range(15):
        place, table, value = (
            (1 << power, low, 1 << (power >> 1))
            if power < 7
            else (min(1 << (power - 7), 127), high, 1 << (power >> 1) >> 3)
        )
        table[place] = value
    return high, low


@dataclass(frozen=True)
class Measured:
    """The means and variances of a batch, as codes that a step has measured."""

    mean: Wide
    variance: Wide
    bits: int
    """Number of fraction bits of the inputs x."""
    spread_bits: int
    """Number of fraction bits of x - mean."""

    def numbers(self) -> Floats:
        """Return means and variances as float32 numbers, (2, channels)."""
        means = self.mean / 2.0 ** (self.bits + MEAN_BITS)
        return np.stack((means, self.variance / 2.0 ** (2 * self.spread_bits + 1))).astype(
            np.float32
        )


def moved(
    stages: Sequence[Stage], before: Sequence[Floats], found: Sequence[Measured]
) -> tuple[Floats, ...]:
    """Return the moving means and variances after a step, (2, channels) for each
    BatchNormalization.

    `before`: the same before the step. `found`: means and variances that the step has measured,
    only for layers that are `trainable`.
    """
    rules = [stage.normalized for stage in stages if stage.normalized]
    measured = iter(found)
    after: list[Floats] = []
    for rule, one in zip(rules, before, strict=True):
        if rule.frozen:
            after.append(one)
        else:
            share = np.float32(1 - rule.momentum)
            sum_of_both = one * np.float32(rule.momentum) + next(measured).numbers() * share
            after.append(sum_of_both.astype(np.float32))
    return tuple(after)


@dataclass(frozen=True)
class Resting:
    """The codes of the factor and the offset of a BatchNormalization in a network that learns
    nothing.

    The result of inputs x is x times `root`, less `offset`.
    """

    root: Wide
    root_bits: int
    offset: Wide
    offset_bits: int


def resting(stage: Stage, statistics: Floats) -> Resting:
    """Return the codes of root and offset for given moving means and variances."""
    assert stage.normalized
    mean, variance = statistics.astype(np.float64)
    root = 1 / np.sqrt(np.maximum(variance, 0) + stage.normalized.epsilon)
    numbers = root, mean * root
    bits = [min(_MOST_BITS, fraction_bits(float(abs(each).max()), _CODE)) for each in numbers]
    kept = [codes(each, b, np.int16) for each, b in zip(numbers, bits, strict=True)]
    return Resting(kept[0], bits[0], kept[1], bits[1])


_MOST_BITS = 30
"""Largest number of fraction bits of the codes of root and offset."""


def check_rows(stages: Sequence[Stage], count: int) -> None:
    """Raise TrainingError if a batch of `count` samples has too many rows to normalise."""
    for stage in stages:
        if stage.normalized and (rows := count * prod(stage.map)) > MOST_ROWS:
            raise TrainingError(
                f"BatchNormalization takes {MOST_ROWS:,} pixels of a batch, not {rows:,}: take a "
                "smaller batch"
            )
