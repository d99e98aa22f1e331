# SPDX-License-Identifier: Apache-2.0
"""A loop that translates a model's operators one by one, and reports all refused ones at once.

Both front ends use it. A scope is the state of a translation, to which a translator, a function for
one kind of operator, adds operations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Protocol, TypeVar

from systola.compiler.errors import CompileError, ModelError


class Operator(Protocol):
    """An operator of a model file; as a string it is such as "operator 3 (SOFTMAX)"."""

    @property
    def kind(self) -> str: ...

    @property
    def inputs(self) -> tuple[Hashable, ...]: ...

    @property
    def outputs(self) -> tuple[Hashable, ...]: ...


_MOST_NAMED = 8
"""Largest number of operators that a message names for one reason; more operators are only counted.
"""

_Scope = TypeVar("_Scope")
_Operator = TypeVar("_Operator", bound=Operator)


def translate_all(
    scope: _Scope,
    operators: Iterable[_Operator],
    translators: Mapping[str, Callable[[_Scope, _Operator], None]],
) -> None:
    """Translate all operators, each by the translator of its kind.

    All operators are tried. If any were refused, one ModelError then names all of them, with the
    reasons.
    """
    found = refusals(scope, operators, translators)
    if not found:
        return
    reasons: dict[str, list[str]] = {}
    for operator, reason in found.items():
        reasons.setdefault(reason, []).append(operator)
    message = "; ".join(f"{_named(those)}: {reason}" for reason, those in reasons.items())
    raise ModelError(message, found)


def refusals(
    scope: _Scope,
    operators: Iterable[_Operator],
    translators: Mapping[str, Callable[[_Scope, _Operator], None]],
    unknown: Iterable[Hashable] = (),
    given: Callable[[Hashable], bool] = lambda _: False,
) -> dict[str, str]:
    """Translate all operators, and return a map from each refused operator to the reason.

    The keys are the operators as strings. Each operator is translated by the translator of its
    kind, but operators that take an `unknown` tensor are passed over. The results of refused and
    passed-over operators become unknown, too, unless `given` returns True. For this, `given` must
    define the tensor in the scope.
    """
    refused: dict[str, str] = {}
    unknown = set(unknown)
    for operator in operators:
        try:
            if operator.kind not in translators:
                raise ModelError("this kind of operator is not supported")
            if unknown.isdisjoint(operator.inputs):
                translators[operator.kind](scope, operator)
                continue
        except (CompileError, ModelError) as error:
            refused[str(operator)] = str(error)
        # An empty name is no tensor: ONNX gives it to an optional result that is left out.
        unknown.update(each for each in operator.outputs if each != "" and not given(each))
    return refused


def _named(operators: list[str]) -> str:
    named, others = ", ".join(operators[:_MOST_NAMED]), len(operators) - _MOST_NAMED
    return f"{named} and {others} more" if others > 0 else named
