# SPDX-License-Identifier: Apache-2.0
"""Translates the operators of a model one by one, and reports all that cannot be at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Protocol, TypeVar

from systola.compiler.errors import CompileError, ModelError


class Operator(Protocol):
    """An operation of a model file; its text says which."""

    @property
    def kind(self) -> str: ...

    @property
    def inputs(self) -> tuple[Hashable, ...]: ...

    @property
    def outputs(self) -> tuple[Hashable, ...]: ...


_MOST_NAMED = 8
"""Operators that are named with what is wrong with them; of more their number says enough."""

_Scope = TypeVar("_Scope")
_Operator = TypeVar("_Operator", bound=Operator)


def translate_all(
    scope: _Scope,
    operators: Iterable[_Operator],
    translators: Mapping[str, Callable[[_Scope, _Operator], None]],
) -> None:
    """Calls the translator of each operator's kind; raises ModelError with all that is refused."""
    refused: dict[str, list[str]] = {}
    unknown: set[Hashable] = set()
    """Tensors that come of what is not supported: nobody can say more of who takes them."""
    for operator in operators:
        try:
            if operator.kind not in translators:
                raise ModelError("this kind of operator is not supported")
            if unknown.isdisjoint(operator.inputs):
                translators[operator.kind](scope, operator)
                continue
        except (CompileError, ModelError) as error:
            refused.setdefault(str(error), []).append(str(operator))
        # A result that is left out has no name in ONNX, like an input that is.
        unknown.update(each for each in operator.outputs if each != "")
    if refused:
        raise ModelError("; ".join(f"{_named(who)}: {why}" for why, who in refused.items()))


def _named(operators: list[str]) -> str:
    named, others = ", ".join(operators[:_MOST_NAMED]), len(operators) - _MOST_NAMED
    return f"{named} and {others} more" if others > 0 else named
