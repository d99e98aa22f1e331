# SPDX-License-Identifier: Apache-2.0
"""Comparisons for tests that fail with the name and both values of the compared thing."""

from __future__ import annotations

from typing import Any

LONGEST_NUMBER = 64
"""The largest number of bits of a number that is shown in decimal."""


def expect(what: str, value: Any, wanted: Any, about: object = "") -> None:
    """Raise AssertionError unless `value` equals `wanted`, with the name and both values.

    `about` describes the place further, such as the cycle or the instruction.
    """
    if value != wanted:
        where = f" ({about})" if about != "" else ""
        raise AssertionError(f"{what} is {shown(value)}, expected {shown(wanted)}{where}")


def shown(value: Any) -> str:
    """Format a value: a bool as 0 or 1, a long number as bytes in hexadecimal, the lowest byte
    first.
    """
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int) and value.bit_length() > LONGEST_NUMBER:
        return value.to_bytes(-(-value.bit_length() // 8), "little").hex(" ")
    return str(value)
