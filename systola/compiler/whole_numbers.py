# SPDX-License-Identifier: Apache-2.0
"""Operators on integers and truth values, which models apply to indexes and shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

WHOLE_TYPES = ("int32", "int64", "bool")

WHOLE_NUMBERS: Mapping[str, Callable[..., NDArray[Any]]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "LOGICAL_AND": np.logical_and,
    "LOGICAL_OR": np.logical_or,
    "LOGICAL_NOT": np.logical_not,
    "SELECT": np.where,
    "SELECT_V2": np.where,
}
"""Map from a kind of operator to the numpy function that does it, element by element."""
