# SPDX-License-Identifier: Apache-2.0
"""The update of Adam and RMSprop in numpy, with the same numbers as `systola.training.moments`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from systola.golden.training import held, magnitude_bits
from systola.training.engine import square_sum
from systola.training.fast.arithmetic import Sums, Wide, quotient, scaled, wide
from systola.training.moment_steps import Looked, moment_steps
from systola.training.moments import (
    LEAST_TOLD,
    MOST_TOLD,
    Moments,
    MomentStep,
    halving,
    limit,
    raised,
)
from systola.training.state import State
from systola.training.task import Task, begin_told


@dataclass(frozen=True)
class _Part:
    """The sums of the negative gradient for some rows of one weight tensor."""

    tensor: int
    rows: slice
    sums: Sums
    bits: int
    """Fraction bits of the masters of these rows."""
    sum_bits: int


class AdaptiveUpdate:
    """The update of masters and moments in one step, for an optimiser with moments."""

    def __init__(self, task: Task, state: State) -> None:
        assert task.decays and state.moments
        self._task = task
        self._state = state
        self._moments = state.moments
        self._parts: list[_Part] = []

    def add(
        self, tensor: int, sums: Sums, bits: int, sum_bits: int, rows: slice = slice(None)
    ) -> None:
        """Store the sums of a gradient, as the update needs the sums of all tensors.

        The exponents of a first step depend on all sums.
        """
        self._parts.append(_Part(tensor, rows, sums, bits, sum_bits))

    def state(self) -> State:
        """Return the state after the update, when the sums of all tensors have been added."""
        before, number = self._moments, self._moments.updates + 1
        steps = moment_steps(self._task, before, self._look)
        masters = [each.copy() for each in self._state.masters]
        first = [
            _halved(x, step.first_halved, number)
            for x, step in zip(before.first, steps, strict=False)
        ]
        roots = [
            _halved(x, step.root_halved, number)
            for x, step in zip(before.roots, steps, strict=True)
        ]
        most = limit(before.decays)
        for part in self._parts:
            n, rows, step = part.tensor, part.rows, steps[part.tensor]
            shift = held(part.sum_bits + step.right)
            gradient = wide(scaled(part.sums, step.gradient_entry, shift))
            gradient = moved = _cut(gradient, step.gradient_limit)
            if first:
                more = scaled(part.sums, step.first_entry, shift)
                if self._task.clip_value is not None:
                    more = _cut(wide(more), step.first_limit).astype(np.int32)
                moved = first[n][rows] = wide(more + first[n][rows])
            root = roots[n][rows]
            ratio = wide(quotient(root, gradient, step.ratio_entry)).clip(-most, most)
            product = np.multiply(ratio, gradient, dtype=np.int32)
            root = roots[n][rows] = wide(scaled(product, step.root_entry) + root)
            step_of_all = quotient(root, moved, step.update_entry(part.bits))
            masters[n][rows] = wide(step_of_all + masters[n][rows])
        told = self._told(steps)
        later = tuple(step.after(bits) for step, bits in zip(steps, told, strict=True))
        after = Moments(tuple(first), tuple(roots), later, number, before.decays)
        return replace(self._state, masters=tuple(masters), moments=after)

    def _look(self, steps: Sequence[MomentStep]) -> Looked:
        """Return the numbers that a step with the scales `steps` would report, without an update.

        The numbers are the bits of the largest gradients and, for a limit of norms, sums of
        squares.
        """
        squares = [0] * len(steps) if self._task.clip else []
        for part in self._parts if squares else ():
            step = steps[part.tensor]
            shift = held(part.sum_bits + step.right)
            squares[part.tensor] += square_sum(wide(scaled(part.sums, step.first_entry, shift)))
        return Looked(self._told(steps), squares)

    def _told(self, steps: Sequence[MomentStep]) -> list[int]:
        """Return the bits of the largest gradient of each tensor, as a step reports them."""
        told = [begin_told(self._task, tensor) for tensor in range(len(steps))]
        for part in self._parts:
            shift = held(part.sum_bits + steps[part.tensor].right)
            told[part.tensor] = raised(told[part.tensor], magnitude_bits(part.sums), shift)
        return [min(max(each, LEAST_TOLD), MOST_TOLD) for each in told]


def _cut(codes: Wide, most: int) -> Wide:
    """Limit the magnitude of int16 codes; a limit of 0 leaves them as they are."""
    return codes.clip(-most, most) if most else codes


def surveyed(moments: Moments) -> Moments:
    """Measure the codes of the moments, and return the moments with new bounds of the largest
    codes.
    """
    later = list(moments.scales)
    for n, scales in enumerate(moments.scales):
        root = scales.root.surveyed(magnitude_bits(moments.roots[n]))
        first = scales.first
        if moments.first:
            first = first.surveyed(magnitude_bits(moments.first[n]))
        later[n] = replace(scales, first=first, root=root)
    return replace(moments, scales=tuple(later))


def _halved(codes: Wide, times: int, number: int) -> Wide:
    return wide(scaled(codes, halving(times, number))) if times else codes.copy()
