# SPDX-License-Identifier: Apache-2.0
"""What a network has learnt: masters, velocities, and their exponents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.training.errors import TrainingError
from systola.training.numbers import Floats, codes, master_bits
from systola.training.stages import Stage

Codes = NDArray[np.int16]


@dataclass(frozen=True)
class State:
    """Of each stage the masters and velocities, (inputs and bias, units), and fraction bits."""

    masters: tuple[Codes, ...]
    velocities: tuple[Codes, ...]
    """Empty where there is no momentum."""
    bits: tuple[int, ...]
    """Fraction bits of the masters."""
    unit_bits: tuple[int, ...] = ()
    """The same of the units of all stages but the last one, as the last epoch had them; none before
    there was one."""

    def weights(self) -> list[Floats]:
        """Kernels, (inputs, units), and biases in turn."""
        found: list[Floats] = []
        for values, bits in zip(self.masters, self.bits, strict=True):
            numbers = (values / 2.0**bits).astype(np.float32)
            found += [numbers[:-1], numbers[-1]]
        return found


def as_keras(stages: Sequence[Stage], weights: Sequence[Floats]) -> list[Floats]:
    """Kernels and biases in the shapes that they have in Keras."""
    shapes = [shape for s in stages for shape in (s.kernel_shape, (s.units,))]
    return [each.reshape(shape) for each, shape in zip(weights, shapes, strict=True)]


def from_weights(stages: Sequence[Stage], weights: Sequence[Floats]) -> State:
    """The state with the masters nearest to these kernels and biases."""
    shapes = [shape for s in stages for shape in (s.kernel_shape, (s.units,))]
    given = [tuple(np.shape(each)) for each in weights]
    if given != shapes:
        raise TrainingError(f"weights of shapes {given} do not fit, {shapes} do")
    joined = [
        np.concatenate((np.reshape(kernel, (-1, np.size(bias))), np.reshape(bias, (1, -1))))
        for kernel, bias in zip(weights[::2], weights[1::2], strict=True)
    ]
    if not all(np.isfinite(each).all() for each in joined):
        raise TrainingError("weights have NaN or infinite numbers")
    bits = tuple(map(master_bits, joined))
    masters = tuple(codes(each, b, np.int16) for each, b in zip(joined, bits, strict=True))
    return State(masters, (), bits)


def glorot(stages: Sequence[Stage], seed: int) -> State:
    """Fresh weights: Glorot's uniform kernels, biases of zero."""
    rng = np.random.default_rng(seed)
    weights: list[Floats] = []
    for stage in stages:
        limit = np.sqrt(6 / (stage.inputs + stage.outputs))
        weights.append(rng.uniform(-limit, limit, stage.kernel_shape))
        weights.append(np.zeros(stage.units))
    return from_weights(stages, weights)
