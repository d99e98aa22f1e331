# SPDX-License-Identifier: Apache-2.0
"""Adds int8 tensors with exponents of their own as int16 tensors, or puts them side by side."""

from __future__ import annotations

from collections.abc import Sequence

from systola.arch.isa import Operation
from systola.training.branches.kept import Kept
from systola.training.branches.numbers import sum_left
from systola.training.task import SHIFT
from systola.training.writer import WIDENING, Entry, Writer

LEAST = 6
"""Exponent register with the negative of the least fraction bits of all tensors that are added."""


def add_all(writer: Writer, kept: Kept, parts: Sequence[tuple[object, range]], bits: int) -> range:
    """Return the sum of tensors, int16; its fraction bits go to the exponent register `bits`.

    `parts`: the key of each tensor in `kept`, and its lines.
    """
    rows, left = len(parts[0][1]), sum_left(len(parts))
    total = writer.allocate(2 * rows)
    kept.negative([key for key, _ in parts], LEAST)
    for number, (key, lines) in enumerate(parts):
        kept.negative([key], SHIFT)
        writer.measure(SHIFT, first=LEAST, third=SHIFT, value=-left - 1)
        at = (lines.start, 0, total.start, rows, Entry(), WIDENING)
        more = int(number > 0)
        writer.vector(Operation.COPY, *at, exponent=SHIFT, accumulate=more)
    writer.measure(bits, third=LEAST, value=left)
    return total
