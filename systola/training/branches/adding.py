# SPDX-License-Identifier: Apache-2.0
"""Adds int8 tensors with exponents of their own as int16 tensors, or puts them side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    """Write the sum of `count` tensors, int16; register LEAST has their least fraction bits.

    Exponent register `shift` is overwritten.
    """
    for number, (key, lines) in enumerate(parts):
        kept.negative([key], shift)
        writer.measure(shift, first=LEAST, third=shift, value=-sum_left(count) - 1)
        at = (lines.start, 0, total.start, len(lines), Entry(), WIDENING)
        writer.vector(Operation.COPY, *at, exponent=shift, accumulate=int(number > 0))
