# SPDX-License-Identifier: Apache-2.0
"""The tables that an instruction uses, and the curves that are made of several tables."""

from __future__ import annotations

from collections.abc import Mapping

from systola.arch.isa import CURVE_TABLES, LONG_TABLES, Function, Operation


def is_curve(operands: Mapping[str, int]) -> bool:
    """Return whether the function of Activate or Vector is a curve, made of tables for int16."""
    return operands["function"] == Function.TABLE and bool(operands["wide"])


def tables(operands: Mapping[str, int]) -> slice:
    """Return the numbers of the tables that an Activate or Vector reads."""
    first, number = operands["table"], 0
    if operands["function"] == Function.TABLE:
        number = CURVE_TABLES if operands["wide"] else 1
    elif gathers(operands):
        number = LONG_TABLES
    return slice(first, first + number)


def one_line(operands: Mapping[str, int]) -> bool:
    """Return whether operand b of a Vector is a single line, which is read before all vectors."""
    return operands["function"] == Function.QUOTIENT and operands["operation"] == Operation.ADD


def is_partition(operands: Mapping[str, int]) -> bool:
    """Return whether a Vector is a partition, which adds all vectors up for a parameter entry."""
    return bool(operands["accumulate"]) and not operands["wide"]


def gathers(operands: Mapping[str, int]) -> bool:
    """Return whether a Vector takes numbers from a table of int32."""
    return operands["function"] == Function.QUOTIENT and operands["operation"] != Operation.MULTIPLY
