# SPDX-License-Identifier: Apache-2.0
"""A layer of a network: a matrix product, with requantisation and activation of its results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import TABLE_BYTES, Function, Rounding
from systola.compiler.errors import CompileError

MAX_LEFT, MAX_RIGHT = 7, 31
"""Largest shift to the left (MAX_LEFT) and to the right (MAX_RIGHT) that a parameter entry can
express, in bits.
"""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer y = activate(x @ weights + bias): int8 in, int8 out, sums in 32 bits.

    An input vector has K elements, an output vector has N. The constructor raises CompileError if
    shapes of arrays do not match, or if the machine cannot express a value.
    """

    weights: NDArray[np.int8]
    """Weights, K x N."""
    bias: NDArray[np.int32]
    """Bias for each of N output elements, added to the sums modulo 2^32."""
    multiplier: NDArray[np.int32]
    """Multiplier for each of N output elements, from 0 to 2^31 - 1, in units of 2^-31."""
    shift: NDArray[np.int32]
    """Exponent for each of N output elements, from -31 to 7: a sum is multiplied by multiplier *
    2^(shift - 31).
    """
    rounding: Rounding
    zero_point: int = 0
    function: Function = Function.NONE
    ceiling: int = 127
    """Upper bound of RELU6: the code of 6.0."""
    table: bytes | None = None
    """Table for function TABLE: 256 results of int8. Entry i is for the code with bits i, read as
    uint8; None for other functions.
    """

    def __post_init__(self) -> None:
        def need(ok: bool, why: str) -> None:
            if not ok:
                raise CompileError(why)

        need(
            self.weights.ndim == 2 and self.weights.size > 0,
            f"weights must be a matrix with at least one row and column, not {self.weights.shape}",
        )
        for name in ("bias", "multiplier", "shift"):
            shape = getattr(self, name).shape
            need(shape == (self.n,), f"{name} must have {self.n} values, not shape {shape}")
        need(bool((self.multiplier >= 0).all()), "multiplier must be 0 to 2^31 - 1")
        need(
            bool(((self.shift >= -MAX_RIGHT) & (self.shift <= MAX_LEFT)).all()),
            f"shift must be -{MAX_RIGHT} to {MAX_LEFT}",
        )
        for name in ("zero_point", "ceiling"):
            value = getattr(self, name)
            need(-128 <= value <= 127, f"{name} must be -128 to 127, not {value}")
        need(
            (self.table is not None) == (self.function == Function.TABLE),
            "a table belongs to function TABLE and to no other",
        )
        need(
            self.table is None or len(self.table) == TABLE_BYTES,
            f"a table has {TABLE_BYTES} entries",
        )

    @property
    def k(self) -> int:
        """Number of elements of an input vector."""
        return self.weights.shape[0]

    @property
    def n(self) -> int:
        """Number of elements of an output vector."""
        return self.weights.shape[1]
