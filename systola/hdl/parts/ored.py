# SPDX-License-Identifier: Apache-2.0
"""A choice among values of which at most one is not zero."""

from collections.abc import Iterable
from itertools import zip_longest

from amaranth.hdl import Const, Mux, Value, ValueLike


def ored(values: Iterable[ValueLike]) -> Value:
    """Return the OR of one or more values as a tree, since synthesis keeps the order of gates."""
    left = [Value.cast(value) for value in values]
    while len(left) > 1:
        left = [a | b for a, b in zip_longest(left[::2], left[1::2], fillvalue=Const(0))]
    return left[0]


def one_of(chosen: Value, values: Iterable[ValueLike]) -> Value:
    """Return the value that has its bit set in `chosen`, else 0. At most one bit may be set."""
    return ored(Mux(bit, Value.cast(value), 0) for bit, value in zip(chosen, values, strict=True))
