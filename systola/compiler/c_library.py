# SPDX-License-Identifier: Apache-2.0
"""Functions of float32 from the computer's C library, with which lookup tables are filled.

LiteRT fills its tables with functions from the same library. C libraries differ in the last bits of
their results, and so do the tables.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float32]


@cache
def of_single(name: str, otherwise: Callable[[float], float]) -> Callable[[Numbers], Numbers]:
    """Return the C function `name`, such as `erfcf`, as a function of one array of float32.

    `otherwise` is the same function in float64. It is used, with its results rounded to float32, if
    the C library lacks `name`.
    """
    function = _found(name, 1) or otherwise

    def each(x: Numbers) -> Numbers:
        return np.array([function(float(one)) for one in x], np.float32)

    return each


@cache
def of_two(
    name: str, otherwise: Callable[[float, float], float]
) -> Callable[[Numbers | np.float32, Numbers | np.float32], Numbers]:
    """Return the C function `name` as a function of two arrays or numbers of float32.

    `otherwise` is the same function in float64. It is used, with its results rounded to float32, if
    the C library lacks `name`.
    """
    function = _found(name, 2) or otherwise

    def each(x: Numbers | np.float32, y: Numbers | np.float32) -> Numbers:
        pairs = np.broadcast(x, y)
        return np.array([function(float(a), float(b)) for a, b in pairs], np.float32)

    return each


def _found(name: str, arguments: int) -> Callable[..., float] | None:
    """Return the C library's function `name`, which takes `arguments` numbers of float32.

    Returns None if the library lacks the function.
    """
    library = ctypes.util.find_library("m")
    found = getattr(ctypes.CDLL(library), name, None) if library else None
    if found is not None:
        found.restype = ctypes.c_float
        found.argtypes = (ctypes.c_float,) * arguments
    return found
