# SPDX-License-Identifier: Apache-2.0
"""Checks the arguments of functions with Keras's names. An argument that training cannot honour
raises a TrainingError of one line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from systola.training.checks import shown
from systola.training.errors import TrainingError

_Kind = TypeVar("_Kind", bound=type[Any])
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_PLAIN = (type(None), bool, int, float, str, tuple)
"""Types of arguments that `Only` compares with the accepted values. A value of another type, such
as an array, is refused without a comparison."""


@dataclass(frozen=True)
class Only:
    """A rule for an argument of Keras without effect here: only some `values` are accepted.

    The first of the `values` is the default.
    """

    values: tuple[object, ...]
    instead: str = ""
    """Advice for the error message: another way to get the effect of the argument."""

    def allows(self, value: object) -> bool:
        """Return whether `value` is one of the accepted values."""
        return type(value) in _PLAIN and any(
            type(each) is type(value) and each == value for each in self.values
        )


def takes(
    **only: Only,
) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Decorate a function so that it raises TrainingError for arguments that it does not have.

    Arguments named in `only` are accepted with their allowed values, and are not passed on to the
    function.
    """

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        known, place = signature(function), "self" in signature(function).parameters

        @wraps(function)
        def checked(*args: _Parameters.args, **given: _Parameters.kwargs) -> _Result:
            name = function.__name__
            if name == "__init__" and place:
                name = type(args[0]).__name__
            for each in [each for each in given if each in only]:
                value, rule = given.pop(each), only[each]
                if not rule.allows(value):
                    more = f": {rule.instead}" if rule.instead else ""
                    raise TrainingError(f"{name}() does not take {each}={shown(value)}{more}")
            try:
                known.bind(*args, **given)
            except TypeError as error:
                raise TrainingError(f"{name}() {_reason(error)}") from None
            return function(*args, **given)

        return checked

    return decorate


def constructor(**only: Only) -> Callable[[_Kind], _Kind]:
    """Decorate a class so that its constructor raises TrainingError for unknown arguments. The
    rules in `only` are as for `takes`.
    """

    def decorate(kind: _Kind) -> _Kind:
        kind.__init__ = takes(**only)(kind.__init__)
        return kind

    return decorate


def _reason(error: TypeError) -> str:
    """Return the end of an error message that begins with the name of a function.

    The end is the reason why arguments do not fit the function.
    """
    return str(error).replace("got an unexpected keyword argument", "does not take")
