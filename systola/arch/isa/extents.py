# SPDX-License-Identifier: Apache-2.0
"""Formulas for the number of addresses that an instruction uses, for tools and for people."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache


def extent(formula: str, names: Mapping[str, int]) -> int:
    """Return the value of a formula of sums, differences, products and comparisons of `names`.

    The hardware has no other operations. A comparison is 1 or 0. Raises KeyError for an unknown
    name.
    """
    return _value(_parsed(formula), names)


@cache
def _parsed(formula: str) -> ast.expr:
    return ast.parse(formula, mode="eval").body


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return names[name]
        case ast.BinOp(left, ast.Add(), right):
            return _value(left, names) + _value(right, names)
        case ast.BinOp(left, ast.Sub(), right):
            return _value(left, names) - _value(right, names)
        case ast.BinOp(left, ast.Mult(), right):
            return _value(left, names) * _value(right, names)
        case ast.Compare(left, [ast.Eq()], [right]):
            return int(_value(left, names) == _value(right, names))
        case ast.Compare(left, [ast.NotEq()], [right]):
            return int(_value(left, names) != _value(right, names))
        case _:
            raise ValueError(f"'{ast.unparse(node)}' is no part of a formula")
