# SPDX-License-Identifier: Apache-2.0
"""Computes the forward and backward pass of a Dense or Conv2D.

The sums of such a layer are products of weights with the inputs and with a one for the bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from systola.golden.training import held
from systola.training.fast.arithmetic import (
    Integers,
    Narrow,
    Sums,
    Wide,
    narrow,
    product,
    scaled,
)
from systola.training.fast.windows import gathered, spread
from systola.training.numbers import MASTER_SHIFT
from systola.training.stages import Stage
from systola.training.writer import Entry, shifted

_ONE_BITS = 14
"""Fraction bits of a constant 1, which is shifted to make the input for the bias of a stage."""


def weights(masters: Wide) -> Narrow:
    """Return masters rounded to the int8 weights that the array multiplies with."""
    return narrow(scaled(masters, shifted(MASTER_SHIFT - 1)))


def one(bits: int, *, wide: bool) -> int:
    """Return the code of the number 1 with `bits` fraction bits, as int8, or as int16 if `wide`."""
    code = scaled(np.array(1 << _ONE_BITS), Entry(), held(_ONE_BITS - 1 - bits))
    return min(int(code), (1 << (15 if wide else 7)) - 1)


@dataclass
class Products:
    """The inputs and weights of a stage, and their products in the forward and the backward pass.

    A row is a sample of a Dense, or a window of a Conv2D.
    """

    stage: Stage
    inputs: Integers
    """Inputs, (samples, pixels, channels); a Dense has one pixel."""
    bias: int
    """Code of the number 1 that each row of inputs has for the bias; 0 without biases."""
    kernel: Narrow
    """Weights of the kernel, (inputs, units); for a DepthwiseConv2D (taps, units)."""
    biases: Narrow
    """Weights of the biases, (units,)."""

    def sums(self) -> Sums:
        """Compute the sums of all units, (rows, units)."""
        # int32 sums wrap, as the sums in the machine's accumulators do.
        if self.stage.depthwise:
            found = (self._taps() * self.kernel).sum(axis=2, dtype=np.int32)
            return found.reshape(-1, self.stage.units) + self.bias * self.biases.astype(np.int32)
        return product(self._rows(), self.kernel) + self.bias * self.biases.astype(np.int32)

    def below(self, gradient: Narrow) -> Sums:
        """Compute the gradient of the inputs, in the shape of the inputs, from the gradient of the
        sums.
        """
        window = self.stage.window
        if window and self.stage.depthwise:
            shape = len(self.inputs), prod(window.out), 1, self.stage.units
            return spread(gradient.astype(np.int32).reshape(shape) * self.kernel, window)
        found = product(gradient, self.kernel.T)
        if window is None:
            return found.reshape(self.inputs.shape)
        samples = len(self.inputs)
        return spread(found.reshape(samples, prod(window.out), window.taps, -1), window)

    def update(self, gradient: Narrow) -> Sums:
        """Compute the gradient of kernel and biases, (inputs + 1, units); the last row is for the
        biases.
        """
        if self.stage.depthwise:
            taps = self._taps()
            given = gradient.reshape(taps.shape[0], taps.shape[1], 1, -1)
            kernel = (taps * given).sum(axis=(0, 1), dtype=np.int32)
        else:
            kernel = product(self._rows().T, gradient)
        biases = self.bias * gradient.sum(axis=0, keepdims=True, dtype=np.int32)
        return np.concatenate((kernel, biases))

    def _taps(self) -> Sums:
        """Return the pixels under the taps of all windows, (samples, windows, taps, channels)."""
        assert self.stage.window
        return gathered(self.inputs, self.stage.window).astype(np.int32)

    def _rows(self) -> Integers:
        if self.stage.window is None:
            return self.inputs.reshape(len(self.inputs), -1)
        taps = gathered(self.inputs, self.stage.window)
        return taps.reshape(taps.shape[0] * taps.shape[1], -1)
