# SPDX-License-Identifier: Apache-2.0
"""Computes the normalisation of a batch, forward and backward, with the bytes of the machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from systola.golden.gates import inverse_root
from systola.golden.training import held, magnitude_bits
from systola.training.fast.arithmetic import (
    Integers,
    Narrow,
    Sums,
    Wide,
    measured,
    narrow,
    quotient,
    scaled,
    wide,
)
from systola.training.normalization import (
    LESS,
    OFFSET_ENTRY,
    ROOT_BITS,
    UNIT_BITS,
    Measured,
    Resting,
    epsilon_code,
    mean_entry,
    most_spread_bits,
    slope_entry,
    variance_entry,
)
from systola.training.writer import ONE, Entry


def _total(values: Integers) -> Sums:
    """Return the sum of each channel over all rows, modulo 2^32; `values` are (rows, channels)."""
    return values.sum(axis=0, dtype=np.int32)


@dataclass
class Normalized:
    """The numbers of a normalised batch that the backward pass needs."""

    measured: Measured
    sums: Sums
    """Results before they are narrowed to int8, (rows, channels)."""
    sum_bits: int
    root: Wide
    """Reciprocal roots of the variances, (channels,)."""
    root_bits: int
    codes: Narrow
    """Results narrowed to int8, (rows, channels)."""
    bits: int
    """Number of fraction bits of the int8 results."""

    @staticmethod
    def of(x: Integers, bits: int, epsilon: float) -> Normalized:
        """Normalise inputs, (rows, channels), which have `bits` fraction bits.

        `codes` and `bits` of the result are not known yet. The caller sets `codes` and `bits`
        later.
        """
        x, count = x.astype(np.int32), len(x)
        mean = wide(scaled(_total(x), mean_entry(count)))
        less = (x << UNIT_BITS) + LESS * mean.astype(np.int32)
        floor = held(bits + UNIT_BITS - 1 - most_spread_bits(epsilon))
        shift = measured(less, floor)
        spread = narrow(scaled(less, Entry(), shift))
        spread_bits = held(bits + UNIT_BITS - 1 - shift)
        squares = np.multiply(spread, spread, dtype=np.int32)
        variance = wide(scaled(_total(squares), variance_entry(count)))
        code, code_bits = epsilon_code(epsilon)
        more = held(held(code_bits - 2 - spread_bits) - spread_bits)
        root, root_bits = _reciprocal_root(
            wide(variance + wide(scaled(np.array(code), Entry(), more)).astype(np.int32))
        )
        root_bits = held(root_bits - spread_bits)
        offset = wide(scaled(np.multiply(mean, root, dtype=np.int32), OFFSET_ENTRY))
        sums = x * root.astype(np.int32) + LESS * offset.astype(np.int32)
        found = Measured(mean, variance, bits, spread_bits)
        return Normalized(found, sums, held(root_bits + bits), root, root_bits, spread, 0)

    def back(self, gradient: Narrow, bits: int) -> tuple[Narrow, int]:
        """Compute the gradient of the inputs from the gradient of the results."""
        given, codes, count = gradient.astype(np.int32), self.codes.astype(np.int32), len(gradient)
        mean = wide(scaled(_total(given), mean_entry(count)))
        q, right = slope_entry(count)
        shift = held(held(2 * self.bits) + right)
        slope = wide(scaled(_total(given * codes), Entry(q), shift)).astype(np.int32)
        # A slope of -32768 has no negative in int16, so it becomes the largest code of int16.
        less = (given << UNIT_BITS) + LESS * mean.astype(np.int32) + wide(-slope) * codes
        shift = held(max(-8, magnitude_bits(less) - 16))
        rest, bits = wide(scaled(less, Entry(), shift)), held(bits + UNIT_BITS - 1 - shift)
        return times_roots(rest, bits, self.root, self.root_bits)


def times_roots(
    gradient: Narrow | Wide, bits: int, root: Wide, root_bits: int
) -> tuple[Narrow, int]:
    """Multiply a gradient with reciprocal roots; return the product and its fraction bits."""
    sums = gradient * root.astype(np.int32)
    shift = measured(sums, -8)
    return narrow(scaled(sums, Entry(), shift)), held(held(bits - 1 - shift) + root_bits)


def _reciprocal_root(variance: Wide) -> tuple[Wide, int]:
    """Compute 1 / root of variances, as codes; return the codes and their fraction bits.

    The fraction bits hold for variances with one fraction bit. For other variances the caller
    changes the fraction bits.
    """
    ones = np.ones_like(variance)
    power = wide(quotient(variance, ones, ONE))
    # power is 2^p. A variance lies between 1/4 and 1 after a multiplication with 2^(2 (p >> 1)).
    scale = (1 << ((np.frexp(power.astype(np.float64))[1] - 1) >> 1)).astype(np.int16)
    product = wide(variance.astype(np.int32) * (scale.astype(np.int32) ** 2))
    root = inverse_root(product)
    shift = max(-1, magnitude_bits(scale) - 2)
    found = wide(scaled(np.multiply(root, scale, dtype=np.int32), Entry(), shift))
    return found, ROOT_BITS - shift


def resting_sums(x: Integers, bits: int, codes: Resting) -> tuple[Sums, int]:
    """Normalise with moving means and variances; return the results and their fraction bits."""
    right = held(held(codes.offset_bits - codes.root_bits + 6) - bits)
    offset = wide(scaled(codes.offset, Entry(), right)).astype(np.int32)
    sums = x.astype(np.int32) * codes.root.astype(np.int32) + LESS * offset
    return sums, held(bits + codes.root_bits)
