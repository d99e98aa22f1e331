# SPDX-License-Identifier: Apache-2.0
"""Keeps fraction bits of many tensors as lines of the buffer, as there are few exponent registers.

The stored number e is the negative of the fraction bits. The buffer holds e as KEPT_LINES int16
numbers. Number j, counted from 0, is -2^k, where k is e - LEAST_KEPT - KEPT_STEP * j, limited to 0
to 15. Instruction Measure finds k from -2^k, and the sum of all k is e - LEAST_KEPT. If Measure
reads the numbers of several tensors, the sum gives the largest e of the tensors.
`systola.training.exchange` does the same over several cores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from systola.arch.isa import Source
from systola.training.branches.numbers import KEPT_LINES, KEPT_STEP, LEAST_KEPT
from systola.training.layout import LEAST_LINES
from systola.training.task import SHIFT
from systola.training.update import WHOLE
from systola.training.writer import WIDE, Writer

SCRATCH = 7
"""Number of an exponent register that Kept overwrites, as well as register SHIFT."""


class Kept:
    """A store of the fraction bits of tensors, by keys that the caller chooses."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._places: dict[object, range] = {}
        least = np.zeros((LEAST_LINES, writer.layout.size), np.int8)
        least[1] = -128
        self._source = writer.constant(least)

    def keep(self, key: object, register: int) -> None:
        """Store the content of an exponent register as the fraction bits of tensor `key`."""
        writer = self._writer
        lines = self._places[key] = writer.allocate(2 * KEPT_LINES)
        for number, line in enumerate(lines[::2]):
            # The register holds the fraction bits, -e. Each pair of lines becomes -2^15 shifted
            # right by 15 - k bits, which is -2^k.
            value = LEAST_KEPT + KEPT_STEP * (number + 1)
            writer.measure(SHIFT, first=register, value=value)
            writer.copy(self._source.start, line, 1, WHOLE, WIDE, exponent=SHIFT)

    def negative(self, keys: Sequence[object], register: int) -> None:
        """Put the least fraction bits of some tensors, negated, into an exponent register."""
        writer = self._writer
        writer.measure(register, value=LEAST_KEPT)
        for number in range(KEPT_LINES):
            writer.measure(SCRATCH)
            for key in dict.fromkeys(keys):
                line = self._places[key].start + 2 * number
                how = {"buffer": line, "rows": 1, "bits": 0, "first": SCRATCH}
                writer.measure(SCRATCH, Source.LINES, **how)
            writer.measure(register, first=register, second=SCRATCH)

    def bring(self, key: object, register: int) -> None:
        """Put the kept fraction bits of a tensor into an exponent register."""
        self.negative([key], register)
        self._writer.measure(register, third=register)

    def write(self, key: object, host: int) -> None:
        """Write the lines that hold the fraction bits of a tensor to host memory."""
        self._writer.write(host, self._places[key])

    def read(self, key: object, host: int) -> None:
        """Read the lines that hold the fraction bits of a tensor from host memory."""
        lines = self._places[key] = self._writer.allocate(2 * KEPT_LINES)
        self._writer.read(host, lines)

    def free(self, key: object) -> None:
        """Give the lines that hold the fraction bits of a tensor back to the buffer."""
        self._writer.free(self._places.pop(key))
