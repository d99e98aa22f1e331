# SPDX-License-Identifier: Apache-2.0
"""Adam and RMSprop in integers: the scales, shifts and offsets of each step, for all back ends.

The optimiser keeps two moments of each weight: m <- b1 m + (1 - b1) g, and s, the root of v <- b2 v
+ (1 - b2) g^2, where g is its gradient. To the first order in 1 - b2, s <- sqrt(b2) s + (1 - b2) /
2 g^2 / s.

- Both are int16 codes with a scale for each tensor. Decays cost no pass over the codes: they stay,
  and a code stands for less. Codes are halved before an addition could leave int16.
- The divisor is a power of two, 2^b with the magnitude bits b of the code of s: the QUOTIENT of the
  instruction set. It is up to twice as large as s, so a factor of sqrt(2) is right on average. A
  step of a weight has the factor 1.475, or 1.45 if there is no first moment: the first order makes
  s some 2 % too large, and the rest is measured, see docs/training.md.
- |g| / s counts for at most 0.85 sqrt(2 / (1 - b2)). After zeros, a first gradient g makes s 0.85
  times Adam's sqrt(1 - b2) |g|. A second equal gradient makes it 1.02, a third 1.03 times Adam's.
- Additions of less than half a unit arrive on average: the van der Corput sequence of the steps
  gives an offset before the rounding, the same for all weights.
- All scales are known before a step: they follow the largest gradients of the steps before. A step
  reports LEAST_TOLD to MOST_TOLD bits for each of these, so exponents move by 15 bits at most.

The last places of the codes take the part of epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import frexp, ldexp, sqrt

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import QUOTIENT_BITS
from systola.golden.requantise import INT16_MAX
from systola.golden.training import held
from systola.training.checks import whole
from systola.training.errors import TrainingError
from systola.training.numbers import FULL_BITS, multiplier
from systola.training.writer import Entry

Codes = NDArray[np.int16]
RATIO_BITS = 2
"""Fraction bits of the ratio |g| / s of a gradient and the root of its second moment."""
GRADIENT_BITS = 11
"""Number of bits that the code of a tensor's largest gradient shall have. The fraction bits follow
from the largest gradient of the step before."""
KEPT_BITS = 13
"""Number of bits of the largest codes of a tensor before the first step, and after small codes have
been doubled.
"""
SURVEY_STEPS = 4
"""Number of steps from one survey to the next. A survey measures the largest code of each tensor.
"""
SURVEYED_BITS = 8
"""Least number of bits of a largest code that a survey reports."""
MOMENT_BITS = -64, 96
"""Least and largest number of fraction bits that gradients may have."""
LEAST_TOLD, MOST_TOLD = GRADIENT_BITS - 15, GRADIENT_BITS + 15
"""Least and largest number of bits that a step reports for a tensor's largest gradient."""
FIRST_GRADIENT = 18
"""Fraction bits of the gradients in the trial step that comes before a first step."""
FIRST_LOOKS = 3
"""Largest number of trial steps before a first step. There are fewer if all reported bits are
between LEAST_TOLD and MOST_TOLD."""
_DIVISOR, _DIVISOR_OF_GRADIENT = 1.475, 1.45
"""Factors of the change of a weight that make up for a division by 2^b in place of s. The first one
is for the quotient of a first moment, the second one for the quotient of a gradient."""
_FIRST_ROOT = 0.85
"""Root of the second moment after a first gradient, as a multiple of Adam's root."""
_END = 2.0**15
_LEAST_UNIT = 2.0**-256
_MOST_BIAS = 1 << 30
_MOST_MULTIPLIER = (1 << 31) - 1
_MOST_LEFT, _MOST_SHIFT, _MOST_DOUBLED = 7, 31, 6


@dataclass(frozen=True)
class Decays:
    """The decays of the moments of an optimiser, Adam or RMSprop."""

    first: float
    """Decay b1 of the first moment; 0 if there is no first moment."""
    second: float
    """Decay b2 of the second moment."""
    corrected: bool
    """Whether the learning rate is corrected for moments that began with zeros."""


@dataclass(frozen=True)
class Scale:
    """The scale of the int16 codes of a moment, for one tensor."""

    unit: float
    """The code for the number one. It need not be whole. A code c stands for c / unit."""
    bound: float
    """An upper bound of the magnitudes of all codes."""

    def decayed(self, decay: float) -> Scale:
        """Return the scale after a decay, for which the codes stay the same."""
        return replace(self, unit=self.unit / decay)

    def halved(self, times: int) -> Scale:
        """Return the scale after the codes were halved `times` times. If `times` is negative, the
        codes were doubled.
        """
        return Scale(self.unit * 2.0**-times, self.bound * 2.0**-times)

    def surveyed(self, bits: int) -> Scale:
        """Return the scale with a bound that is at most the result of a survey of the codes.

        `bits`: bits of the largest code; fewer than SURVEYED_BITS count as SURVEYED_BITS.
        """
        return replace(self, bound=min(self.bound, 2.0 ** max(bits, SURVEYED_BITS)))


@dataclass(frozen=True)
class Scales:
    """The scales of a tensor's gradients and of their moments."""

    gradient: int
    """Fraction bits of the gradients. With these, the largest gradient of the last step has
    GRADIENT_BITS bits."""
    first: Scale
    root: Scale

    @classmethod
    def at_first(cls, decays: Decays, gradient: int) -> Scales:
        """Return the scales before the first step, for gradients with `gradient` fraction bits."""
        unit = 2.0 ** (KEPT_BITS - GRADIENT_BITS + gradient)
        first, root = unit / (1 - decays.first), unit / sqrt(1 - decays.second)
        return cls(gradient, Scale(first, 0.0), Scale(root, 0.0))

    def check(self) -> None:
        """Raise TrainingError if the scales, which come from a file, are out of range."""
        whole("gradient of scales", self.gradient, *MOMENT_BITS)
        for scale in (self.first, self.root):
            if not (_LEAST_UNIT <= scale.unit <= 1 / _LEAST_UNIT and 0 <= scale.bound <= _END):
                raise TrainingError("a scale is out of range")


@dataclass(frozen=True)
class Moments:
    """The moments of all tensors, each in the shape of its masters, after some updates."""

    first: tuple[Codes, ...]
    """Codes of the first moments of each tensor; empty if there is no first moment."""
    roots: tuple[Codes, ...]
    scales: tuple[Scales, ...]
    """Scales of the moments of each tensor; empty before the first update."""
    updates: int
    decays: Decays


class MomentStep:
    """The numbers that one update of one tensor needs: scales, limits, parameter entries and a
    shift.

    `number`: number of the update, from 1. `before`: the scales before the update. `factor`: the
    gradient that a sum of 1 stands for. `rate`: the learning rate. `most`: the largest magnitude of
    a gradient; None for no limit.

    Sums become codes of gradients by `gradient_entry`, and additions to codes of first moments by
    `first_entry`. Both entries take the same shift from an exponent register: `right` plus the
    fraction bits of the sums.
    """

    def __init__(
        self,
        decays: Decays,
        number: int,
        before: Scales,
        factor: float,
        rate: float,
        most: float | None = None,
    ) -> None:
        self._decays, self._number, self._rate = decays, number, rate
        self._most = most
        largest = 2.0 ** (GRADIENT_BITS - before.gradient)
        first = before.first.decayed(decays.first) if decays.first else before.first
        first, self.first_halved = _with_room(first, self._first_grown(first, largest))
        root = before.root.decayed(sqrt(decays.second))
        root, self.root_halved = _with_room(root, self._root_grown(root, largest))
        self.scales = Scales(before.gradient, first, root)
        """Scales of the codes while the update adds to them. Before the additions, the codes of
        first moments are halved `first_halved` times, and the codes of roots `root_halved` times. A
        negative number of times means doubled."""
        self._gradient = factor * 2.0**before.gradient
        self._first = factor * (1 - decays.first) * first.unit if decays.first else 0.0
        _, self.right = multiplier(max(self._gradient, self._first))
        _, self._wanted_right = multiplier(factor)

    def after(self, told: int) -> Scales:
        """Return the scales after the step. `told`: reported bits of the largest gradient."""
        wanted = self.wanted(told)
        largest, scales = 2.0 ** (GRADIENT_BITS - wanted), self.scales
        first = self._first_grown(scales.first, largest)
        root = self._root_grown(scales.root, largest)
        return Scales(
            wanted,
            replace(scales.first, bound=min(first, _END)),
            replace(scales.root, bound=min(root, _END)),
        )

    def wanted(self, told: int) -> int:
        """Return the fraction bits with which the tensor's largest gradient would have
        GRADIENT_BITS bits.

        `told`: number of bits of this gradient in the report of the step.
        """
        least, most = MOMENT_BITS
        if self._most is not None:
            # Gradients beyond the limit need no codes. So the code of the limit has at least
            # GRADIENT_BITS bits, even if the gradients are larger.
            least = GRADIENT_BITS - frexp(self._most)[1]
        return min(max(GRADIENT_BITS - told - self.right + self._wanted_right, least), most)

    @property
    def gradient_entry(self) -> Entry:
        """The parameter entry that turns sums into codes of gradients. Its shift is in an exponent
        register.
        """
        return self._shared(self._gradient)

    @property
    def first_entry(self) -> Entry:
        """The parameter entry that turns sums into additions to the codes of first moments.

        The shift is in the exponent register that `gradient_entry` takes its shift from.
        """
        return self._shared(self._first)

    @property
    def gradient_limit(self) -> int:
        """The largest code of a gradient; 0 for no limit."""
        return self._limit(2.0**self.scales.gradient)

    @property
    def first_limit(self) -> int:
        """The largest addition to the code of a first moment; 0 for no limit."""
        return self._limit((1 - self._decays.first) * self.scales.first.unit)

    def _limit(self, unit: float) -> int:
        code = 0 if self._most is None else max(1, round(self._most * unit))
        return code if code <= INT16_MAX else 0

    @property
    def ratio_entry(self) -> Entry:
        """The parameter entry for the quotient |g| / s: the code of a gradient divided by 2^b, with
        RATIO_BITS fraction bits.
        """
        return _entry(self._ratio, RATIO_BITS - QUOTIENT_BITS)

    @property
    def root_entry(self) -> Entry:
        """The parameter entry for the addition to the code of s, made of |g| / s times |g|."""
        scale = (1 - self._decays.second) / sqrt(2) * self._ratio
        return _entry(scale, -RATIO_BITS, _offset(self._number))

    def update_entry(self, bits: int) -> Entry:
        """Return the parameter entry for the addition to masters with `bits` fraction bits.

        The addition is made from the code of a first moment, divided by 2^b. Without first moments
        it is made from the code of a gradient, divided by 2^b.
        """
        b1, b2, t = self._decays.first, self._decays.second, self._number
        ratio = self.scales.root.unit / self.scales.first.unit if b1 else self._ratio
        divisor = _DIVISOR if b1 else _DIVISOR_OF_GRADIENT
        scale = self._rate * divisor * (_FIRST_ROOT if t == 1 else 1.0) * ratio
        if self._decays.corrected:
            scale *= sqrt(1 - b2**t) / (1 - b1**t)
        return _entry(scale, bits - QUOTIENT_BITS, _offset(t))

    def _first_grown(self, scale: Scale, largest: float) -> float:
        """Return the bound of the codes of a first moment after a gradient of at most `largest` was
        added.
        """
        return scale.bound + (1 - self._decays.first) * scale.unit * largest

    def _root_grown(self, scale: Scale, largest: float) -> float:
        return sqrt(scale.bound**2 + (1 - self._decays.second) * (scale.unit * largest) ** 2)

    @property
    def _ratio(self) -> float:
        """The code that s has for a number, divided by the code that a gradient has for this
        number.
        """
        return self.scales.root.unit * 2.0**-self.scales.gradient

    def _shared(self, scale: float) -> Entry:
        return Entry(min(round(ldexp(scale, 31 + self.right)), _MOST_MULTIPLIER))


def limit(decays: Decays) -> int:
    """Return the largest |g| / s that counts, as a code with RATIO_BITS fraction bits."""
    return round(_FIRST_ROOT * sqrt(2 / (1 - decays.second)) * 2**RATIO_BITS)


def raised(told: int, bits: int, shift: int) -> int:
    """Return the reported bits of a gradient, raised if the sums of more weights have more bits.

    `told`: the report so far. `bits`: bits of the largest of the sums, from which `shift` is
    subtracted. All numbers are limited to the range of an exponent register, as on the machine.
    """
    return held(max(held(told + shift), bits) - shift)


def halving(times: int, number: int) -> Entry:
    """Return the parameter entry that halves codes `times` times in update `number`.

    A negative `times` doubles them. Halves are rounded up and down in turn: otherwise a code of one
    would be halved to one for ever.
    """
    if times < 0:
        return Entry(left=1 - times)
    return Entry(right=min(times - 1, _MOST_SHIFT), bias=-(number & 1) if times == 1 else 0)


def _with_room(scale: Scale, bound: float) -> tuple[Scale, int]:
    """Return a scale with room for codes up to `bound`, and the number of times that codes are
    halved.

    The number is negative if codes are doubled because they are small.
    """
    times = frexp(bound / _END)[1]
    small = KEPT_BITS - FULL_BITS
    times = times if times >= 0 else max(min(times - small, 0), -_MOST_DOUBLED) if bound else 0
    return scale.halved(times), times


def _entry(scale: float, bits: int, offset: float = 0.0) -> Entry:
    """Return the parameter entry that multiplies with `scale` * 2^`bits`.

    `offset` is added before the rounding, in units of the result.
    """
    # Float32 is used so that results do not depend on the last places of a computer's functions.
    fraction, exponent = frexp(scale)
    q, right = multiplier(float(np.float32(fraction)))
    right -= exponent + bits
    if right > _MOST_SHIFT:
        q, right = q >> min(right - _MOST_SHIFT, _MOST_SHIFT), _MOST_SHIFT
    left, right = min(max(-right, 0), _MOST_LEFT), max(right, 0)
    # The offset is rounded towards zero, so that zeros stay zeros with every offset.
    bias = int(offset * 2.0 ** (31 + right - left) / q) if q else 0
    return Entry(q, right, left, min(max(bias, -_MOST_BIAS), _MOST_BIAS))


def _offset(number: int) -> float:
    """Return the van der Corput number of a step, less one half: an offset for rounding."""
    found, place = 0.0, 0.5
    while number:
        found += place * (number & 1)
        number, place = number >> 1, place / 2
    return found - 0.5
