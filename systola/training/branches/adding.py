# SPDX-License-Identifier: Apache-2.0
"""Adds int8 tensors, each with an exponent of its own, to one int16 tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from systola.arch.isa import Operation
from systola.training.branches.kept import Kept
from systola.training.branches.numbers import sum_left
from systola.training.task import SHIFT
from systola.training.writer import WIDENING, Entry, Writer

LEAST = 6
"""Number of the exponent register with the least fraction bits of all tensors that are added,
negated."""


def add_all(writer: Writer, kept: Kept, parts: Sequence[tuple[object, range]], bits: int) -> range:
    """Return the lines of an int16 sum of tensors; exponent register `bits` gets the fraction bits
    of the sum.

    `parts`: the key in `kept` of each tensor's fraction bits, and the tensor's lines.
    """
    total = writer.allocate(2 * len(parts[0][1]))
    kept.negative([key for key, _ in parts], LEAST)
    add_some(writer, kept, parts, len(parts), total, SHIFT)
    writer.measure(bits, third=LEAST, value=sum_left(len(parts)))
    return total


def add_some(
    writer: Writer,
    kept: Kept,
    parts: Iterable[tuple[object, range]],
    count: int,
    total: range,
    shift: int,
) -> None:
    """Write the int16 sum of `count` tensors, of which register LEAST has the least fraction bits.

    Exponent register `shift` is overwritten.
    """
    for number, (key, lines) in enumerate(parts):
        kept.negative([key], shift)
        writer.measure(shift, first=LEAST, third=shift, value=-sum_left(count) - 1)
        at = (lines.start, 0, total.start, len(lines), Entry(), WIDENING)
        writer.vector(Operation.COPY, *at, exponent=shift, accumulate=int(number > 0))
