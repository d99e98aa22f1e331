# SPDX-License-Identifier: Apache-2.0
"""Compares memory with what it should hold, and says where it does not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Matrix:
    """Where a matrix of bytes lies in memory, to name its elements."""

    name: str
    offset: int
    rows: int
    stride: int
    """Bytes from one row to the next."""
    columns: int

    def place(self, offset: int) -> str | None:
        """Name of the element at byte `offset` of memory; None where there is none."""
        inside = offset - self.offset
        row, column = divmod(inside, self.stride) if self.stride else (0, inside)
        if 0 <= row < self.rows and column < self.columns:
            return f"{self.name}[{row}, {column}]"
        return None


def difference(
    expected: NDArray[np.uint8], actual: NDArray[np.uint8], matrices: Iterable[Matrix] = ()
) -> str | None:
    """The first differing byte of two memories in words; None when they are equal."""
    if expected.size != actual.size:
        return f"{actual.size} bytes instead of {expected.size}"
    wrong = np.flatnonzero(expected != actual)
    if not wrong.size:
        return None
    first = int(wrong[0])
    names = [name for matrix in matrices if (name := matrix.place(first))]
    where = f" ({', '.join(names)})" if names else ""
    return (
        f"{wrong.size} of {expected.size} bytes differ, first at 0x{first:x}{where}: "
        f"0x{int(actual[first]):02x} instead of 0x{int(expected[first]):02x}; "
        f"last at 0x{int(wrong[-1]):x}"
    )


def check(
    expected: NDArray[np.uint8], actual: NDArray[np.uint8], matrices: Iterable[Matrix] = ()
) -> None:
    """Fails with the first differing byte."""
    found = difference(expected, actual, matrices)
    assert found is None, found
