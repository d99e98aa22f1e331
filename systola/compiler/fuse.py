# SPDX-License-Identifier: Apache-2.0
"""The merge of functions of single elements into the operation before them.

The operation before then looks up its results in a table that contains the function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Function
from systola.compiler.layer import Layer
from systola.compiler.operations import (
    Binary,
    Convolution,
    Curve,
    Node,
    Operations,
    Product,
    Requantisation,
    Unary,
    Value,
    WideProduct,
)
from systola.compiler.quantise import INT8, table_bytes
from systola.compiler.tables import unary_table

_Output = TypeVar("_Output", Layer, Requantisation)
_Kind = TypeVar("_Kind", Unary, Curve)


@lru_cache(maxsize=16)
def fuse_tables(config: Config, operations: Operations) -> Operations:
    """Return `operations` with each Unary and Curve merged into the operation before, if possible.

    A merge is possible only if no other operation takes the result of the operation before. An
    activation of the operation before becomes part of the table.

    A Unary is a function of single elements of int8. If the merged operations would need more
    tables than the machine has, and more than without a merge, no Unary is merged.

    A Curve is a function of single elements of int16. Only machines with `-attention` in their name
    have curves. A merge of a Curve never needs more tables.
    """
    if config.attention:
        operations = replace(operations, nodes=_all_fused(operations, Curve, _fused_curve))
    fused = replace(operations, nodes=_all_fused(operations, Unary, _fused))
    needed = len(_tables(fused))
    return operations if config.tables < needed > len(_tables(operations)) else fused


def _tables(operations: Operations) -> set[bytes]:
    tables: set[bytes | None] = set()
    for node in operations.nodes:
        match node:
            case Convolution() | Binary(wide=False):
                tables.add(node.output.table)
            case Product():
                tables.add(node.layer.table)
            case Unary():
                tables.add(node.table)
            case _:
                pass
    return {table for table in tables if table is not None}


def _all_fused(
    operations: Operations, kind: type[_Kind], fuse: Callable[[Node, _Kind], Node | None]
) -> tuple[Node, ...]:
    """Return all operations, with operations of class `kind` merged into the operation before them.

    `fuse` takes the operation before and an operation of class `kind`. It returns the merged
    operation, or None if a merge is not possible. An operation stays if others also take its
    source.
    """
    uses = Counter(source for node in operations.nodes for source in node.sources)
    uses.update(operations.outputs)
    result: dict[Value, Node] = {}
    for node in operations.nodes:
        if isinstance(node, kind) and uses[source := node.sources[0]] == 1:
            before = result.get(source)
            if before is not None and (fused := fuse(before, node)):
                del result[source]
                node = fused
        result[node.result] = node
    return tuple(result.values())


def _fused(before: Node, unary: Unary) -> Node | None:
    """Return the operation `before` with the function `unary` as its lookup table.

    Returns None if operations of this class cannot have a table.
    """
    table = unary_table(unary)
    match before:
        case Convolution() | Binary():
            output = _with_table(before.output, table)
            return replace(before, result=unary.result, output=output)
        case Product():
            layer = _with_table(before.layer, table)
            return replace(before, result=unary.result, layer=layer)
        case Unary():
            both = table[unary_table(before).astype(np.int64) + 128]
            return Unary(
                operator=before.operator,
                result=unary.result,
                source=before.source,
                table=table_bytes(both),
            )
        case _:
            return None


def _fused_curve(before: Node, curve: Curve) -> Node | None:
    """Return operation `before` with `curve` merged into it; None if `before` makes no results of
    int16.
    """
    match before:
        case WideProduct(sums=False) | Binary(wide=True):
            output = replace(before.output, function=Function.TABLE, table=curve.tables)
            return replace(before, result=curve.result, output=output)
        case _:
            return None


def _with_table(output: _Output, table: NDArray[np.int8]) -> _Output:
    """Return `output` with a lookup table for its results, which contains the old activation or
    table.

    Entry i of `table` is for the code i - 128 after the old activation or table.
    """
    codes = INT8
    if output.function in (Function.RELU, Function.RELU6):
        codes = np.maximum(codes, output.zero_point)
    if output.function == Function.RELU6:
        codes = np.minimum(codes, output.ceiling)
    if output.table is not None:
        codes = np.roll(np.frombuffer(output.table, np.int8), 128).astype(np.int64)
    return replace(output, function=Function.TABLE, table=table_bytes(table[codes + 128]))
