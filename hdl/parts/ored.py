# SPDX-License-Identifier: Apache-2.0
"""A choice among values of which at most one is not zero."""

from collections.abc import Iterable
from functools import reduce

from amaranth.hdl import Value, ValueLike


def ored(values: Iterable[ValueLike]) -> Value:
    """The OR of one or more values."""
    return reduce(Value.__or__, map(Value.cast, values))
