# SPDX-License-Identifier: Apache-2.0
"""Checks of the arguments of users: each returns a value of the right type and range, or raises
TrainingError.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Collection
from operator import index
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from systola.training.errors import TrainingError

_MOST_NAME = 100
"""Largest number of characters that a name may have."""


def shown(value: object) -> str:
    """Return a value as one short line, for a message."""
    return " ".join(reprlib.repr(value).split())


def whole(name: str, value: object, least: int, most: int | None = None) -> int:
    """Return an integer of Python or numpy as an int.

    Raises TrainingError for other types, for bool, and for integers outside `least` to `most`.
    """
    try:
        number = least - 1 if _is(value, bool, np.bool_) else index(cast("int", value))
    except TypeError:
        number = least - 1
    if number < least or (most is not None and number > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise TrainingError(f"{name} must be a whole number {limits}, not {shown(value)}")
    return number


def real(name: str, value: object) -> float:
    """Return a finite number of Python or numpy as a float.

    Raises TrainingError for everything else.
    """
    if _is(value, int, float, np.integer, np.floating) and not _is(value, bool):
        try:
            number = float(cast("float", value))
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    raise TrainingError(f"{name} must be a finite number, not {shown(value)}")


def choice(name: str, value: object, known: Collection[str], more: str = "") -> str:
    """Return a name that is one of `known`; raise TrainingError for everything else.

    `more`: the end of the list of known values in the message.
    """
    if not is_name(value, known):
        raise TrainingError(f"{name} {shown(value)} is not there (known: {', '.join(known)}{more})")
    return str(value)


def is_name(value: object, known: Collection[str]) -> bool:
    """Return whether a value is a text, and one of `known`."""
    return isinstance(value, str) and value in known


def check_name(what: str, value: object) -> None:
    """Raise TrainingError for a value that is no text of 1 to _MOST_NAME printable characters."""
    if not (isinstance(value, str) and 0 < len(value) <= _MOST_NAME and value.isprintable()):
        raise TrainingError(f"{what} must be a text of 1 to {_MOST_NAME} characters")


def flag(name: str, value: object) -> bool:
    """Return a value that is True or False; raise TrainingError for everything else."""
    if not _is(value, bool, np.bool_):
        raise TrainingError(f"{name} must be True or False, not {shown(value)}")
    return bool(value)


def items(name: str, value: object, what: str) -> list[Any]:
    """Return the items of a list or tuple; raise TrainingError for everything else."""
    if not _is(value, list, tuple):
        raise TrainingError(f"{name} must be a list of {what}, not {shown(value)}")
    return list(cast("list[Any]", value))


def only_item(value: object) -> Any:
    """Return the item of a tuple with one item, and any other value as it is."""
    if _is(value, tuple):
        found = cast("tuple[object, ...]", value)
        return found[0] if len(found) == 1 else found
    return value


def _is(value: object, *kinds: type[Any]) -> bool:
    return isinstance(value, kinds)


def numbers(values: Any, name: str) -> NDArray[np.float64]:
    """Return an array of float64.

    Raises TrainingError if `values` are no array of real numbers, or if some of them are not
    finite.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf" or not array.ndim:
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise TrainingError(f"{name} is no array of numbers") from None
    if not np.isfinite(array).all():
        raise TrainingError(f"{name} has NaN or infinite numbers")
    return array
