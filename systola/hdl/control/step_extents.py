# SPDX-License-Identifier: Apache-2.0
"""Sizes of the regions that instructions use, as sums of products.

A step of the sequenced decoder adds one product to a sum."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Term:
    """A term of the formula for a region's size: a product of `factors`, names or numbers.

    A `negative` term is subtracted. If one of the `conditions` does not hold, the term is 0. Each
    condition is a piece of the formula's text: a comparison, a flag, or 1 - flag.
    """

    factors: tuple[str, ...] = ()
    negative: bool = False
    conditions: frozenset[str] = frozenset()

    def without(self, conditions: frozenset[str]) -> Term:
        """Return the same term without some conditions, which always hold."""
        return replace(self, conditions=self.conditions - conditions)


def terms(formula: str, flags: Sequence[str] = ()) -> tuple[Term, ...]:
    """Return the terms of a formula of `systola.arch.isa.extents`.

    Terms without conditions come first, and terms with equal conditions stand together. A factor
    named in `flags` becomes a condition of its term.
    """
    found = _terms(ast.parse(formula, mode="eval").body, frozenset(flags))
    groups: dict[frozenset[str], list[Term]] = {frozenset(): []}
    for term in found:
        groups.setdefault(term.conditions, []).append(term)
    return tuple(term for group in groups.values() for term in group)


def _terms(node: ast.expr, flags: frozenset[str]) -> list[Term]:
    match node:
        case ast.Constant(value=1):
            return [Term()]
        case ast.Constant(value=int(number)):
            return [Term((str(number),))]
        case ast.Name(id=name) if name in flags:
            return [Term(conditions=frozenset({name}))]
        case ast.Name(id=name):
            return [Term((name,))]
        case ast.BinOp(left, ast.Add(), right):
            return _terms(left, flags) + _terms(right, flags)
        case ast.BinOp(ast.Constant(value=1), ast.Sub(), ast.Name(id=name)) if name in flags:
            return [Term(conditions=frozenset({ast.unparse(node)}))]
        case ast.BinOp(left, ast.Sub(), right):
            subtracted = [replace(t, negative=not t.negative) for t in _terms(right, flags)]
            return _terms(left, flags) + subtracted
        case ast.BinOp(left, ast.Mult(), right):
            return [
                Term(
                    one.factors + other.factors,
                    one.negative != other.negative,
                    one.conditions | other.conditions,
                )
                for one in _terms(left, flags)
                for other in _terms(right, flags)
            ]
        case ast.Compare():
            return [Term(conditions=frozenset({ast.unparse(node)}))]
        case _:
            raise ValueError(f"'{ast.unparse(node)}' is no part of a formula")
