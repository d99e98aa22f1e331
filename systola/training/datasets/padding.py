# SPDX-License-Identifier: Apache-2.0
"""Puts lists of different lengths into one array."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from systola.training.arguments import takes
from systola.training.checks import choice, shown, whole
from systola.training.errors import TrainingError

_ENDS = ("pre", "post")


@takes()
def pad_sequences(
    sequences: Sequence[Sequence[Any]] | NDArray[Any],
    maxlen: int | None = None,
    dtype: DTypeLike = "int32",
    padding: str = "pre",
    truncating: str = "pre",
    value: float = 0.0,
) -> NDArray[Any]:
    """Return sequences as the rows of one array with `maxlen` columns.

    If `maxlen` is None, the array is as wide as the longest sequence. Shorter sequences are filled
    up with `value`, at the beginning if `padding` is "pre", at the end if it is "post". Longer
    sequences lose items at the end that `truncating` chooses in the same way. Raises TrainingError
    for sequences that cannot be rows of an array, and for wrong arguments.
    """
    at_the_end = choice("padding", padding, _ENDS) == "post"
    keep_the_first = choice("truncating", truncating, _ENDS) == "post"
    if maxlen is not None:
        maxlen = whole("maxlen", maxlen, 1)
    try:
        # By default NumPy sets only a flag for NaN and for numbers too large for `dtype`. For
        # deprecated type names and complex numbers NumPy gives only a warning. Here all of this
        # raises an error.
        with np.errstate(invalid="raise"), warnings.catch_warnings():
            warnings.simplefilter("error")
            rows = [np.asarray(each, dtype) for each in sequences]
            shape = next((row.shape[1:] for row in rows if len(row)), ())
            most = max(map(len, rows), default=0) if maxlen is None else maxlen
            found = np.full((len(rows), most, *shape), value, dtype)
            for into, row in zip(found, rows, strict=True):
                if len(row) and row.shape[1:] != shape:
                    other = shown(row.shape[1:])
                    raise ValueError(f"an item has the shape {other}, another {shape}")
                kept = row[:most] if keep_the_first else row[-most:]
                if len(kept):
                    into[slice(len(kept)) if at_the_end else slice(-len(kept), None)] = kept
    except (TypeError, ValueError, ArithmeticError, MemoryError, Warning) as error:
        raise TrainingError(f"sequences cannot be padded: {error}") from None
    return found
