# SPDX-License-Identifier: Apache-2.0
"""Curves, and tables of int32: both take several successive activation tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import CURVE_ENTRIES, CURVE_SHIFT, CURVE_TABLES, LONG_TABLES


def curve_of(tables: NDArray[np.int8], table: int) -> NDArray[np.int64]:
    """Return the numbers L, (CURVE_ENTRIES,), of the curve from table number `table` on.

    `tables` has shape (tables, 256). Raises ValueError if the curve goes beyond the last
    of `tables`.
    """
    if table + CURVE_TABLES > len(tables):
        raise ValueError(f"a curve from table {table} on needs {CURVE_TABLES} tables")
    raw = tables[table : table + CURVE_TABLES].tobytes()[: 2 * CURVE_ENTRIES]
    return np.frombuffer(raw, "<i2").astype(np.int64)


def looked_up(
    a: NDArray[np.integer[Any]],
    zero: int | NDArray[np.int64],
    tables: NDArray[np.int8],
    table: int,
) -> NDArray[np.int32]:
    """Look up each element of `a` in a table of int32, as Vector does with COPY or ADD and function
    QUOTIENT.

    The results are the sums that the text of Vector calls s. `a` has any shape, `zero` a number for
    each of its columns or one for all, and `tables` has shape (tables, 256). Raises ValueError if
    the table of int32 goes beyond the last of `tables`.
    """
    if table + LONG_TABLES > len(tables):
        raise ValueError(f"a table of int32 from table {table} on needs {LONG_TABLES} tables")
    numbers = np.frombuffer(tables[table : table + LONG_TABLES].tobytes(), "<i4")
    return numbers[(a.astype(np.int64) - zero) % 256].astype(np.int32)


def on_curve(v: NDArray[np.integer[Any]], curve: NDArray[np.int64]) -> NDArray[np.int16]:
    """Return the values of a curve for int16 arguments `v` of any shape.

    Straight lines join the numbers of the curve.
    """
    v = v.astype(np.int64)
    i = (CURVE_ENTRIES >> 1) + (v >> CURVE_SHIFT)
    f = v % (1 << CURVE_SHIFT)
    half = 1 << (CURVE_SHIFT - 1)
    return (curve[i] + (((curve[i + 1] - curve[i]) * f + half) >> CURVE_SHIFT)).astype(np.int16)
