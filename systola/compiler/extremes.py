# SPDX-License-Identifier: Apache-2.0
"""The element-wise maximum of several quantised tensors, calculated as one pooling.

Each tensor becomes a row of one map, and a window of the pooling covers a column.
"""

from __future__ import annotations

from collections.abc import Sequence

from systola.arch.isa import Reduction
from systola.compiler.operations import Concatenation, Node, Pooling, Reshape, Value, Window


def larger_codes(operator: str, values: Sequence[Value], result: Value) -> list[Node]:
    """Return the operations that calculate `result`, the element-wise maximum of `values`.

    All values have the shape of `result`.
    """
    pixels, channels = result.pixels, result.channels
    rows = [Value(f"{value.name} in a row", (1, 1, pixels, channels)) for value in values]
    both = Value(f"all inputs of {operator}", (1, len(rows), pixels, channels))
    pooled = Value(f"{result.name} in a row", (1, 1, pixels, channels))
    return [
        *(
            Reshape(operator=operator, source=value, result=row)
            for value, row in zip(values, rows, strict=True)
        ),
        Concatenation(operator=operator, result=both, parts=tuple(rows), axis=1),
        Pooling(
            operator=operator,
            result=pooled,
            source=both,
            reduction=Reduction.MAX,
            window=Window(kernel=(len(rows), 1), out=(1, pixels)),
        ),
        Reshape(operator=operator, source=pooled, result=result),
    ]
