# SPDX-License-Identifier: Apache-2.0
"""What the host does with a network's data, before, between and behind the programs.

Each function takes arrays of samples x shape, and the caller brings its result into shape. They are
plain data, so that a compiled network can be stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.compiler.operations import Value
from systola.compiler.quantise import to_float, to_int8
from systola.runtime.softmax import softmax


@dataclass(frozen=True, kw_only=True, eq=False)
class HostStage:
    """One operation of the host."""

    operator: str
    """The operator it comes from, for messages and reports."""
    sources: tuple[Value, ...]
    result: Value
    function: HostFunction


@dataclass(frozen=True)
class View:
    """The same elements in another shape."""

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        return x


@dataclass(frozen=True)
class Quantise:
    """float32 to int8, as LiteRT's QUANTIZE."""

    scale: float
    zero_point: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        return to_int8(x, self.scale, self.zero_point)


@dataclass(frozen=True)
class Dequantise:
    """int8 to float32, as LiteRT's DEQUANTIZE."""

    scale: float
    zero_point: int

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        return to_float(x, self.scale, self.zero_point)


@dataclass(frozen=True)
class Softmax:
    """Along the last axis, int8 to int8 in units of 1/256, as LiteRT's SOFTMAX."""

    scale: float
    beta: float

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        return softmax(x, self.scale, self.beta)


@dataclass(frozen=True, eq=False)
class Embedding:
    """Rows of a table, chosen by whole numbers, as GATHER along the first axis.

    Raises IndexError for a number that is no row.
    """

    table: NDArray[Any]

    def __call__(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        (x,) = arrays
        if x.size and not (int(x.min()) >= 0 and int(x.max()) < len(self.table)):
            raise IndexError(f"an index is outside 0 to {len(self.table) - 1}")
        return np.take(self.table, x, axis=0)


HostFunction = View | Quantise | Dequantise | Softmax | Embedding
"""All that a stage can do."""
