# SPDX-License-Identifier: Apache-2.0
"""Tables of operations with one variable operand of int8: the result for each int8 code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Operation, Rounding
from systola.compiler.operations import Binary, Requantisation, Unary, Value
from systola.compiler.quantise import INT8, double_rounded


def unary_table(node: Unary) -> NDArray[np.int8]:
    """Return the results of an operation with one operand for all int8 codes, in the order of
    INT8.
    """
    codes = _requantised(INT8 - node.zero_point, node.output)
    if node.table is None:
        return codes
    return np.roll(np.frombuffer(node.table, np.int8), 128)[codes.astype(np.int64) + 128]


def binary_table(node: Binary, constant: int) -> NDArray[np.int8]:
    """Return the results of an operation with a constant operand for all int8 codes of the other.

    The results are in the order of INT8. `constant` is the code that stands in place of the operand
    of `node` that is not a Value.
    """
    other = np.full_like(INT8, constant)
    a, b = (INT8, other) if isinstance(node.a, Value) else (other, INT8)
    a, b = a - node.scale_a.zero_point, b - node.scale_b.zero_point
    if node.operation == Operation.MULTIPLY:
        return _requantised(a * b, node.output)
    a, b = (
        double_rounded(x << 20, scale.multiplier, -scale.shift)
        for x, scale in ((a, node.scale_a), (b, node.scale_b))
    )
    return _requantised(a + b if node.operation == Operation.ADD else a - b, node.output)


def _requantised(x: NDArray[np.int64], output: Requantisation) -> NDArray[np.int8]:
    """Return the int8 codes to which Activate requantises the sums `x`, as described by `output`.

    All channels must have the same requantisation. Sums with their bias must fit into 32 bits.
    """
    bias, multiplier, shift = (
        int(each[0]) for each in (output.bias, output.multiplier, output.shift)
    )
    if output.rounding == Rounding.DOUBLE:
        y = double_rounded(x + bias, multiplier, shift)
    else:
        y = ((x + bias) * multiplier + (1 << (30 - shift))) >> (31 - shift)
    y = y + output.zero_point
    if output.function in (Function.RELU, Function.RELU6):
        y = np.maximum(y, output.zero_point)
    if output.function == Function.RELU6:
        y = np.minimum(y, output.ceiling)
    return np.clip(y, -128, 127).astype(np.int8)
