# SPDX-License-Identifier: Apache-2.0
"""Computes joins (Add and Concatenate), and adds the gradients of results that several
layers take.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Rounding
from systola.golden.requantise import requantise
from systola.golden.training import held, shifts
from systola.training.branches.numbers import alone, kept, sum_left, width_of
from systola.training.fast.arithmetic import Integers, Narrow, Wide, measured, narrow, scaled, wide
from systola.training.numbers import MOST_INPUT_BITS
from systola.training.passes import gradient_scale
from systola.training.stages import Stage, branched
from systola.training.writer import Entry

Coded = tuple[Integers, int]
"""The codes of a tensor, and the number of their fraction bits."""


def added(codes: Sequence[Coded]) -> tuple[Wide, int]:
    """Add tensors as int16; return the sum and the number of its fraction bits."""
    least, left = min(bits for _, bits in codes), sum_left(len(codes))
    total = np.zeros(codes[0][0].shape, np.int16)
    for each, bits in codes:
        total = wide(scaled(each, Entry(), held(bits - least - left - 1)) + total)
    return total, least + left


def scaled_away(sums: Wide, q: int, exponent: int) -> NDArray[np.int64]:
    """Requantise sums of tensors, with halves rounded away from zero. The results are not clamped
    yet.
    """
    left, right = shifts(exponent)
    return requantise(sums, *map(np.asarray, (0, q, left, right)), rounding=Rounding.DOUBLE)


def side_by_side(
    codes: Sequence[Coded], q: int, lost: int, known: int | None
) -> tuple[Integers, int]:
    """Put tensors side by side, multiplied by q; return the codes and their fraction bits.

    `lost`: number of bits that the multiplier q takes from the codes. `known`: fraction bits of the
    result. If `known` is None, the result has the least fraction bits of the tensors, plus 1, less
    `lost`, and at most MOST_INPUT_BITS.
    """
    bits = known
    if bits is None:
        bits = min(min(bits for _, bits in codes) + 1 - lost, MOST_INPUT_BITS)
    parts = [scaled(each, Entry(q), held(own - bits - lost)) for each, own in codes]
    return np.concatenate(parts, axis=-1), bits


class Branches:
    """A store of the gradients of the results of all stages, during the backward pass."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.there = branched(stages)
        """Whether the network has branches."""
        self._stages = stages
        self._parts: dict[int, list[tuple[Narrow, int]]] = {}

    def alone(self, at: int) -> bool:
        """Return whether a single stage takes a result, and this stage is no join."""
        return alone(self._stages, at)

    def add(self, at: int, gradient: Narrow, bits: int) -> None:
        """Store a gradient of result number `at`, from one stage that has taken the result."""
        stage = self._stages[at - 1]
        rows = gradient.reshape(-1, stage.lstm.units if stage.lstm else stage.units)
        self._parts.setdefault(at, []).append((rows, kept(bits)))

    def gradient(self, number: int) -> tuple[Narrow, int]:
        """Return the gradient of a stage's result, the sum of all gradients stored for it.

        The second result is the number of its fraction bits.
        """
        parts = self._parts.pop(number + 1)
        if self.alone(number + 1):
            return parts[0]
        q, lost = gradient_scale(self._stages[number])
        total, bits = added(parts)
        shift = measured(total, -8)
        return narrow(scaled_away(total, q, shift)), held(bits - shift - lost)

    def back(self, number: int, gradient: Narrow, bits: int) -> None:
        """Store gradients of the inputs of an Add or Concatenate, from the gradient of the layer's
        units.
        """
        stage, first = self._stages[number], 0
        for at in stage.sources:
            part = gradient
            if stage.join == "concatenate":
                width = width_of(self._stages, at, flat=not stage.maps)
                part = gradient[:, first : first + width]
                first += width
            if at:
                self.add(at, np.ascontiguousarray(part), bits)
