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
"""Number of an exponent register. The register gets the least fraction bits of all tensors that are
added, negated."""


def add_all(writer: Writer, kept: Kept, parts: Sequence[tuple[object, range]], bits: int) -> range:
    """Write the int16 sum of tensors, and return the lines of the sum.

    `parts`: for each tensor a key and lines; store `kept` has the tensor's fraction bits under this
    key. Exponent register number `bits` gets the fraction bits of the sum.
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
    """Write the int16 sum of `count` tensors into the lines `total`.

    Exponent register LEAST has the least fraction bits of all tensors, negated. Exponent register
    number `shift` is overwritten.
    """
    for number, (key, lines) in enumerate(parts):
        kept.negative([key], shift)
        writer.measure(shift, first=LEAST, third=shift, value=-sum_left(count) - 1)
        at = (lines.start, 0, total.start, len(lines), Entry(), WIDENING)
        writer.vector(Operation.COPY, *at, exponent=shift, accumulate=int(number > 0))
