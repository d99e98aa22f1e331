# SPDX-License-Identifier: Apache-2.0
"""A choice among values of which at most one is not zero."""

from collections.abc import Iterable
from functools import reduce

from amaranth.hdl import Mux, Value, ValueLike


def ored(values: Iterable[ValueLike]) -> Value:
    """The OR of one or more values."""
    return reduce(Value.__or__, map(Value.cast, values))


def one_of(chosen: Value, values: Iterable[ValueLike]) -> Value:
    """That of the values whose bit in `chosen` is set, 0 where none is: one at most."""
    return ored(Mux(bit, Value.cast(value), 0) for bit, value in zip(chosen, values, strict=True))
