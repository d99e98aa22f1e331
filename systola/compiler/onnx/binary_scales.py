# SPDX-License-Identifier: Apache-2.0
"""The scales with which a Vector instruction makes the sum, difference or product of two codes.

Codes are quantised numbers. The results should be ONNX Runtime's, which calculates in float32,
while the machine calculates in integers. There are only 65,536 pairs of codes, so the scales are
chosen by comparing the results for all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Operation, Rounding
from systola.compiler.errors import ModelError
from systola.compiler.onnx.fitting import Wanted, fit_bias, fit_multiplier, nearest_multiplier
from systola.compiler.onnx.numbers import CODES, Quantisation
from systola.compiler.operations import Requantisation, Scale, scalar_requantisation
from systola.compiler.quantise import double_rounded

Codes = tuple[NDArray[np.int64], Quantisation]
"""Type of a pair: an array of codes, -128 to 127 as in the machine, and the quantisation of these
codes.
"""

OPERAND_BITS = 20
"""Number of bits by which ADD and SUBTRACT shift their operands to the left before they scale them.
"""


@dataclass(frozen=True)
class BinaryScales:
    """A set of scales for an operation: for the operands `a` and `b`, and for the result."""

    a: Scale
    b: Scale
    output: Requantisation
    table: NDArray[np.int64] | None
    """Table that clamps the result to its limits; None if RELU or RELU6 does so, or if nothing must
    be clamped.
    """
    differing: int
    """Number of pairs of codes with a result that differs from ONNX Runtime's result."""


def reference_codes(
    operation: Operation, a: Codes, b: Codes, result: Quantisation, *, fused: bool
) -> NDArray[np.int64]:
    """Return the codes that ONNX Runtime computes from two arrays of codes, element by element.

    With `fused` the operator takes codes itself: QLinearAdd or QLinearMul. Otherwise it is an
    operator of float32 between DequantizeLinear and QuantizeLinear.
    """
    (x, of_x), (y, of_y) = a, b
    if not fused:
        left = _numbers(x, of_x)
        right = _numbers(y, of_y)
        match operation:
            case Operation.ADD:
                return result.codes(left + right)
            case Operation.SUBTRACT:
                return result.codes(left - right)
            case _:
                return result.codes(left * right)
    if operation == Operation.MULTIPLY:
        scale = of_x.scale * of_y.scale / result.scale
        product = (x - of_x.zero_point) * (y - of_y.zero_point)
        steps = np.rint(product.astype(np.float32) * scale) + result.zero_point
    else:
        # ONNX Runtime calculates a constant part of the sum from the zero points, and rounds it. So
        # this needs the model's own zero points. For uint8, codes and zero points are 128 more in
        # the model than in the machine.
        offsets = [128 if each.unsigned else 0 for each in (of_x, of_y, result)]
        ratio_x, ratio_y = of_x.scale / result.scale, of_y.scale / result.scale
        fixed = np.float32(result.zero_point + offsets[2]) - (
            ratio_x * np.float32(of_x.zero_point + offsets[0])
            + ratio_y * np.float32(of_y.zero_point + offsets[1])
        )
        inner = _multiply_add(y + offsets[1], ratio_y, fixed)
        steps = np.rint(_multiply_add(x + offsets[0], ratio_x, inner)) - offsets[2]
    return np.clip(steps, -128, 127).astype(np.int64)


def _numbers(codes: NDArray[np.int64], quantisation: Quantisation) -> NDArray[np.float32]:
    return quantisation.numbers[codes + 128]


def _multiply_add(
    x: NDArray[np.int64], factor: np.float32, addend: np.float32 | NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return x * factor + addend in float32, with a single rounding at the end."""
    exact = x.astype(np.float64) * np.float64(factor) + np.asarray(addend, np.float64)
    return exact.astype(np.float32)


def binary_scales(
    operation: Operation,
    a: Codes,
    b: Codes,
    result: Quantisation,
    limits: tuple[int, int],
    *,
    fused: bool,
) -> BinaryScales:
    """Return the scales with which the fewest results differ from ONNX Runtime's results.

    The results of all pairs, a code of `a` and a code of `b`, are compared. `limits` are the least
    and the greatest code of a result.
    """
    x, y = (grid.reshape(-1) for grid in np.meshgrid(a[0], b[0], indexing="ij"))
    wanted = reference_codes(operation, (x, a[1]), (y, b[1]), result, fused=fused)
    wanted = np.clip(wanted, *limits)
    wanted = wanted - result.zero_point
    low, high = limits[0] - result.zero_point, limits[1] - result.zero_point
    if operation == Operation.MULTIPLY:
        scale_a, scale_b = Scale(a[1].zero_point), Scale(b[1].zero_point)
        sums = (x - a[1].zero_point) * (y - b[1].zero_point)
        scale = float(a[1].scale) * float(b[1].scale) / float(result.scale)
        fit = fit_multiplier(Wanted(sums, wanted, low, high), scale)
    else:
        common = 2 * max(float(a[1].scale), float(b[1].scale))
        scale_a, scale_b = _operand_scale(a[1], common), _operand_scale(b[1], common)
        sign = -1 if operation == Operation.SUBTRACT else 1
        sums = _scaled(x, scale_a) + sign * _scaled(y, scale_b)
        scale = common / (2**OPERAND_BITS * float(result.scale))
        if scale >= 1:
            raise ModelError(f"its effective scale {scale:.6g} is too large")
        fit = fit_bias(Wanted(sums, wanted, low, high), scale)
    function, table = _function(result.zero_point, limits)
    output = scalar_requantisation(
        fit.multiplier,
        fit.shift,
        bias=fit.bias,
        rounding=Rounding.SINGLE,
        zero_point=result.zero_point,
        function=function,
        ceiling=limits[1] if function == Function.RELU6 else 127,
    )
    return BinaryScales(scale_a, scale_b, output, table, fit.differing)


def _function(
    zero_point: int, limits: tuple[int, int]
) -> tuple[Function, NDArray[np.int64] | None]:
    if limits == (-128, 127):
        return Function.NONE, None
    if limits[0] == zero_point:
        return (Function.RELU if limits[1] == 127 else Function.RELU6), None
    return Function.NONE, np.clip(CODES, *limits)


def _operand_scale(operand: Quantisation, common: float) -> Scale:
    q, shift = nearest_multiplier(float(operand.scale) / common)
    return Scale(operand.zero_point, q, -shift)


def _scaled(codes: NDArray[np.int64], scale: Scale) -> NDArray[np.int64]:
    """Return an operand's codes as the machine scales them before an ADD or SUBTRACT."""
    return double_rounded(
        (codes - scale.zero_point) << OPERAND_BITS, scale.multiplier, -scale.shift
    )
