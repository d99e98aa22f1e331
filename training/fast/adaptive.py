# SPDX-License-Identifier: Apache-2.0
"""The update of Adam and RMSprop: the numbers of `systola.training.moments`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from systola.golden.training import held, magnitude_bits
from systola.training.fast.arithmetic import Sums, Wide, quotient, scaled, wide
from systola.training.loss import gradient_factor
from systola.training.moments import Moments, MomentStep, Scales, halving, wanted_bits
from systola.training.numbers import multiplier
from systola.training.state import State
from systola.training.task import Task
from systola.training.writer import Entry


@dataclass(frozen=True)
class _Part:
    """The sums of the negative gradient for some rows of a tensor."""

    tensor: int
    rows: slice
    sums: Sums
    bits: int
    """Fraction bits of the masters of these rows."""
    sum_bits: int


class AdaptiveUpdate:
    """Masters and moments on their way to the next step."""

    def __init__(self, task: Task, state: State) -> None:
        assert task.decays and state.moments
        self._task = task
        self._state = state
        self._moments = state.moments
        self._factor = gradient_factor(task) / task.count
        self._parts: list[_Part] = []

    def add(
        self, tensor: int, sums: Sums, bits: int, sum_bits: int, rows: slice = slice(None)
    ) -> None:
        """Keep the sums: the exponents of a first step depend on all of them."""
        self._parts.append(_Part(tensor, rows, sums, bits, sum_bits))

    def state(self) -> State:
        """Return the state after all additions."""
        before, number = self._moments, self._moments.updates + 1
        wanted = self._wanted_bits()
        scales = before.scales or [Scales.at_first(before.decays, bits) for bits in wanted]
        steps = [MomentStep(before.decays, number, each) for each in scales]
        masters = [each.copy() for each in self._state.masters]
        first = [
            _halved(x, step.first_halved, number)
            for x, step in zip(before.first, steps, strict=False)
        ]
        roots = [
            _halved(x, step.root_halved, number)
            for x, step in zip(before.roots, steps, strict=True)
        ]
        for part in self._parts:
            n, rows, step = part.tensor, part.rows, steps[part.tensor]
            gradient = moved = wide(self._gradient(part, 2.0**step.scales.gradient))
            if first:
                more = self._gradient(part, step.first_factor)
                moved = first[n][rows] = wide(more + first[n][rows])
            limit, root = step.limit, roots[n][rows]
            ratio = quotient(gradient, root, step.quotient_exponent).clip(-limit, limit)
            product = (ratio * gradient).astype(np.int32)
            root = roots[n][rows] = wide(scaled(product, *step.root_entry) + root)
            ratio = wide(quotient(moved, root, step.step_exponent))
            entry, shift = step.update_entry(self._task.learning_rate, part.bits)
            masters[n][rows] = wide(scaled(ratio, entry, shift) + masters[n][rows])
        later = tuple(step.after(bits) for step, bits in zip(steps, wanted, strict=True))
        after = Moments(tuple(first), tuple(roots), later, number, before.decays)
        return replace(self._state, masters=tuple(masters), moments=after)

    def _gradient(self, part: _Part, factor: float) -> NDArray[np.int64]:
        """Scale sums to the codes of gradients, `factor` being the code of one."""
        q, right = multiplier(self._factor * factor)
        return scaled(part.sums, Entry(q), held(part.sum_bits + right))

    def _wanted_bits(self) -> tuple[int, ...]:
        """Return the fraction bits with which the gradients of this step have GRADIENT_BITS."""
        _, right = multiplier(self._factor)
        found = [
            (part.tensor, wanted_bits(magnitude_bits(part.sums), part.sum_bits, right))
            for part in self._parts
        ]
        tensors = range(len(self._state.masters))
        return tuple(min(bits for tensor, bits in found if tensor == n) for n in tensors)


def surveyed(moments: Moments) -> Moments:
    """Measure the codes of moments, and lower their bounds to the largest ones."""
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
