# SPDX-License-Identifier: Apache-2.0
"""Multipliers and tables that stand for real scales, exactly as in LiteRT.

A code q stands for the number scale * (q - zero point). SINGLE rounding rounds a product with a
multiplier once, and DOUBLE rounding rounds twice.

LiteRT here means the reference path (BUILTIN_REF) of ai-edge-litert. This path gives the same
results in 1.2.0 and 2.3.0, except for FULLY_CONNECTED. Where LiteRT calculates in float32, these
functions do, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.layer import MAX_LEFT, MAX_RIGHT

INT8 = np.arange(-128, 128, dtype=np.int64)
"""All int8 codes in their numeric order."""
LARGE = 200.0
"""Largest argument given to exp: the result is finite in float64, but infinite in float32."""
MAX_SHIFT = 20
"""Largest binary exponent of a factor between two int8 scales; larger factors are refused."""
NO_SCALE = 2.0**-80
"""Smallest scale in calculations, also used for scale 0. Any sum of 32 bits times this scale
rounds to 0.
"""
MAX_STEPS = 255
"""Largest distance between two int8 codes."""


def exact_multipliers(
    scale: NDArray[np.float64], low: NDArray[np.int64], high: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    """Return multipliers and shifts with which SINGLE rounding equals FULLY_CONNECTED in 2.3.0.

    LiteRT rounds the float64 product of sum and `scale` half away from zero. SINGLE rounds half up,
    and multiplies by an integer q of 31 bits. So LiteRT and SINGLE may step from one result to the
    next at different sums, and a q a few units away may correct this. LiteRT's step to result j is
    at the least sum t with round(t * scale) >= j, and the step to -j is at -t. Let a be (j - 1/2) *
    2^(31 - shift). SINGLE has the step to j at t if `(t - 1) q < a <= t q`, and the step to -j at
    -t if `(t - 1) q <= a < t q`. The returned q satisfies the condition of every step that a sum
    from `low` to `high` can meet. So equality is proved, not tested. Of several such q, the one
    nearest to the scale is returned.

    `scale` (0 or more), `low` and `high` (32 bits, low <= high) have one value per channel. Returns
    (multiplier, shift, exact) with one value per channel: the result is about sum * multiplier *
    2^(shift - 31). If `exact` is false, no q satisfies all conditions, which happens only with a
    small scale and sums of 24 bits. Then the multiplier is the q nearest to the scale, and results
    of a few sums are off by one. Raises ModelError for a scale of 128 or more.
    """
    if not bool(np.isfinite(scale).all() and (scale >= 0).all()):
        raise ModelError("its scales are not positive numbers")
    scale = np.maximum(scale, NO_SCALE)
    _, exponent = np.frexp(scale)
    if int(exponent.max()) > MAX_LEFT:
        raise ModelError(
            f"its effective scale {float(scale.max()):.6g} is too large, the limit is "
            f"{1 << MAX_LEFT}"
        )
    steps = np.arange(1, MAX_STEPS + 1)
    return fitted_multipliers(scale, _first_sums(scale[:, np.newaxis], steps), low, high)


def fitted_multipliers(
    scale: NDArray[np.float64],
    sums: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    least_result: int = -MAX_STEPS,
    greatest_result: int = MAX_STEPS,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    """Return multipliers and shifts with which SINGLE rounding equals a reference function.

    `sums` describes the function, with a row for each channel: the least positive sums that give
    the results 1, 2, ... For a negative sum -t, the function must give minus the result of t.
    Results outside `least_result` (at most 0) to `greatest_result` (at least 0) are clamped later,
    and need no equality. Scales must be below 128. `low`, `high` and the returned tuple are as in
    exact_multipliers.
    """
    _, exponent = np.frexp(scale)
    shift = np.maximum(exponent, -MAX_RIGHT).astype(np.int64)
    steps = np.arange(1, sums.shape[1] + 1, dtype=np.int64)
    # `a` may overflow for results that no sum of 32 bits reaches. Such results are not used.
    a = (2 * steps - 1) << (30 - shift[:, np.newaxis])
    up, down = steps <= greatest_result, steps <= -least_result
    least, greatest = _multiplier_range(a, sums, np.maximum(low, 1), high, up, 0)
    other_least, other_greatest = _multiplier_range(a, sums, np.maximum(-high, 1), -low, down, 1)
    least, greatest = np.maximum(least, other_least), np.minimum(greatest, other_greatest)
    exact = least <= greatest
    wanted = np.minimum(np.floor(np.ldexp(scale, 31 - shift) + 0.5), (1 << 31) - 1)
    wanted = wanted.astype(np.int64)
    multiplier = np.where(exact, np.clip(wanted, least, np.maximum(least, greatest)), wanted)
    return multiplier.astype(np.int32), shift.astype(np.int32), exact


def _multiplier_range(
    a: NDArray[np.int64],
    sums: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    wanted: NDArray[np.bool_],
    negative: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the least and the greatest multiplier q that satisfy all conditions, for each channel.

    The conditions are explained in exact_multipliers, as is `a`. `sums` has the sum t of each step.
    Only the `wanted` steps count, and only for sums from `low` to `high`, low >= 1. `negative` is 1
    if `sums`, `low` and `high` are absolute values of negative sums, else 0.
    """
    low, high = low[:, np.newaxis], high[:, np.newaxis]
    # The first step at a sum above `high` limits q. Later steps set weaker limits.
    reachable = sums <= high
    counts = np.column_stack([np.ones_like(reachable[:, 0]), reachable[:, :-1]]) & wanted
    beyond, before = np.maximum(sums, low), np.minimum(sums - 1, high)
    # The least q follows from t q >= a for positive sums, and from t q > a for negative sums.
    least = np.where(counts & (beyond <= high), (a - 1 + negative) // beyond + 1, 0)
    # The greatest q follows from (t - 1) q < a for positive sums, (t - 1) q <= a for negative.
    highest = (1 << 31) - 1
    below = (a - 1 + negative) // np.maximum(before, 1)
    greatest = np.where(counts & (before >= low), below, highest)
    return least.max(axis=1), np.minimum(greatest.min(axis=1), highest)


def _first_sums(scale: NDArray[np.float64], steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the least sum t with round(t * scale) >= j in float64, for each j in `steps`."""
    # Quotients are limited to 2^40, so that they fit int64. All sums of 32 bits are far below.
    t = np.ceil(np.minimum((steps - 0.5) / scale, 2.0**40)).astype(np.int64) + 1
    for _ in range(2):
        t = np.where(np.floor((t - 1) * scale + 0.5) >= steps, t - 1, t)
    return t


def quantise_multiplier(value: float) -> tuple[int, int]:
    """Return (q, shift) such that q * 2^(shift - 31) is nearest to `value`, with q below 2^31.

    The results equal LiteRT's function QuantizeMultiplier. Very small values give (0, 0).
    """
    fraction, shift = math.frexp(value)
    q = math.floor(fraction * 2**31 + 0.5)
    if q == 1 << 31:
        q, shift = q // 2, shift + 1
    return (0, 0) if shift < -31 else (q, shift)


def double_rounded(x: NDArray[np.int64], q: int, shift: int) -> NDArray[np.int64]:
    """Return x * q * 2^(shift - 31), rounded twice as in gemmlowp.

    The first rounding is after the product with q, the second after a shift to the right.
    """
    high = high_product(x << max(shift, 0), q)
    return rounded_shift(high, max(-shift, 0))


def high_product(a: NDArray[np.int64], b: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Return a * b / 2^31, rounded half up, as gemmlowp's SaturatingRoundingDoublingHighMul does.

    The operands must not both be -2^31.
    """
    return (a * b + (1 << 30)) >> 31


def rounded_shift(x: NDArray[np.int64], count: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Return x / 2^count, rounded half away from zero, as gemmlowp's RoundingDivideByPOT does."""
    half = (np.int64(1) << np.asarray(count, np.int64)) >> 1
    return (x + half - ((x < 0) & (half > 0))) >> count


def to_single(x: float) -> float:
    """Return `x` rounded to float32, or infinity if `x` is too large.

    `x` may be the float64 product or quotient of two float32 numbers. The result then equals the
    product or quotient in float32, although it is rounded twice.
    """
    with np.errstate(over="ignore"):
        return float(np.float32(x))


def round_half_away(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return each number rounded to a whole number, half away from zero, as C's roundf does."""
    return np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x)


def _bound(value: float, scale: float, zero_point: int) -> int:
    """Return the int8 code nearest to the number `value`, a bound of an activation's results."""
    steps = round_half_away(np.full(1, value, np.float32) / np.float32(scale))
    return int(min(max(zero_point + float(steps[0]), -128), 127))


RELU_BOUNDS: Mapping[str, tuple[float | None, float | None]] = {
    "RELU": (0, None),
    "RELU6": (0, 6),
    "RELU_N1_TO_1": (-1, 1),
    "RELU_0_TO_1": (0, 1),
}
"""Least and greatest result of an activation, by its name. None stands for no bound."""


def relu_limits(activation: str, scale: float, zero_point: int) -> tuple[int, int]:
    """Return the least and the greatest int8 code that results of an activation can have.

    `activation` is a key of RELU_BOUNDS; with any other, such as NONE, the limits are -128 and 127.
    """
    low, high = RELU_BOUNDS.get(activation, (None, None))
    return (
        -128 if low is None else _bound(low, scale, zero_point),
        127 if high is None else _bound(high, scale, zero_point),
    )


def curve_table(
    curve: str, scale: float, zero_point: int, out_scale: float, out_zero_point: int
) -> NDArray[np.int8]:
    """Return a table of LOGISTIC or TANH for all int8 codes, in the order of INT8."""
    # With a very large scale `x` becomes infinite. Both curves have finite limits at infinity.
    with np.errstate(over="ignore"):
        x = (np.float32(scale) * (INT8 - zero_point).astype(np.float32)).astype(np.float32)
    y = _logistic(x) if curve == "LOGISTIC" else _tanh(x)
    code = round_half_away(y * (np.float32(1) / np.float32(out_scale))) + out_zero_point
    return np.clip(code, -128, 127).astype(np.int8)


def _logistic(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return 1 / (1 + exp(-x)), rounded to float32 at each step."""
    one = np.float32(1)
    return one / (one + _rounded(np.exp(np.minimum(-x.astype(np.float64), LARGE))))


def _tanh(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return tanh(x) in float32, calculated from exp(y) - 1 in float32 as glibc 2.36 does.

    LiteRT's results were measured with this C library. The exact tanh, rounded to float32, would
    give another code in about one of a million cases.
    """
    one, two = np.float32(1), np.float32(2)
    magnitude = np.abs(x)
    doubled = np.minimum(2 * magnitude.astype(np.float64), LARGE)
    small = _rounded(np.expm1(-doubled))
    large = one - two / (_rounded(np.expm1(doubled)) + two)
    return np.copysign(np.where(magnitude >= one, large, -small / (small + two)), x)


def _rounded(x: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return `x` rounded to float32; numbers that are too large become infinity."""
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def requantise_table(
    scale: float,
    zero_point: int,
    out_scale: float,
    out_zero_point: int,
    limits: tuple[int, int] | None = None,
) -> NDArray[np.int8]:
    """Return a table of QUANTIZE or of a RELU operator for all int8 codes, in the order of INT8.

    `limits` has the least and the greatest result code of the RELU operator, None for QUANTIZE.
    LiteRT divides the scales in float64 for QUANTIZE, and in float32 for RELU operators. Raises
    ModelError if the quotient of the scales is too large.
    """
    effective = scale / out_scale
    if limits is not None:
        effective = to_single(effective)
    if not effective < 2.0**MAX_SHIFT:
        raise ModelError(f"its effective scale {effective:.6g} is too large")
    q, shift = quantise_multiplier(effective)
    code = double_rounded(INT8 - zero_point, q, shift) + out_zero_point
    return np.clip(code, *(limits or (-128, 127))).astype(np.int8)


def absolute_table(
    scale: float, zero_point: int, out_scale: float, out_zero_point: int
) -> NDArray[np.int8]:
    """Return a table of ABS for all int8 codes, in the order of INT8."""
    effective = to_single(scale / out_scale)
    q, shift = quantise_multiplier(effective)
    if shift > MAX_SHIFT:
        raise ModelError(f"its effective scale {effective:.6g} is too large")
    code = double_rounded(np.abs(INT8 - zero_point), q, shift) + out_zero_point
    return np.clip(code, -128, 127).astype(np.int8)


def hard_swish_table(
    scale: float, zero_point: int, out_scale: float, out_zero_point: int
) -> NDArray[np.int8]:
    """Return a table of HARD_SWISH for all int8 codes, in LiteRT's 16-bit arithmetic.

    The table is in the order of INT8. A result is the product of two factors: x in units of the
    result's scale, and max(0, min(1, x / 6 + 1/2)).
    """
    fine = to_single(scale / 128)
    q_out, shift_out = quantise_multiplier(to_single(fine / out_scale))
    q, shift = quantise_multiplier(to_single(fine / to_single(3 / 32768)))
    if max(shift_out, shift - 20) > 0:
        raise ModelError("its scales are too far apart")
    x = (INT8 - zero_point) << 7
    factor = _high_product_16(x, _short(q_out))
    relu = _saturated_16(x << max(shift - 1, 0))
    relu = _high_product_16(relu, _short(q))
    relu = _saturated_16(relu << int(shift > 0))
    relu = (rounded_shift(relu, max(-shift, 0)) + (1 << 15)) >> 1
    product = relu * factor
    # The division by 2^15 rounds towards 0, as in C.
    product = _saturated_16(np.sign(product) * (np.abs(product) >> 15))
    code = rounded_shift(product, -shift_out) + out_zero_point
    return np.clip(code, -128, 127).astype(np.int8)


def _short(q: int) -> int:
    """Return a multiplier of 31 bits divided by 2^16, rounded to an integer of 15 bits."""
    return min((q + (1 << 15)) >> 16, 0x7FFF)


def _high_product_16(a: NDArray[np.int64], b: int) -> NDArray[np.int64]:
    """Return a * b / 2^15 for b >= 0, rounded as in gemmlowp's function for 16 bits."""
    product = a * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.sign(nudged) * (np.abs(nudged) >> 15)


def _saturated_16(x: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.clip(x, -(1 << 15), (1 << 15) - 1)


def leaky_relu_table(
    scale: float, zero_point: int, out_scale: float, out_zero_point: int, alpha: float
) -> NDArray[np.int8]:
    """Return a table of LEAKY_RELU for all int8 codes, in the order of INT8."""
    x = INT8 - zero_point
    parts: list[NDArray[np.int64]] = []
    # The slope is 1 for positive numbers, alpha for others. LiteRT calculates scales in float32.
    slopes = (scale, to_single(scale * to_single(alpha)))
    for effective in (to_single(slope / out_scale) for slope in slopes):
        if not abs(effective) < 2.0**MAX_SHIFT:
            raise ModelError(f"its effective scale {effective:.6g} is too large")
        q, shift = quantise_multiplier(abs(effective))
        parts.append(double_rounded(x, -q if effective < 0 else q, shift))
    code = np.where(x >= 0, parts[0], parts[1]) + out_zero_point
    return np.clip(code, -128, 127).astype(np.int8)


def table_bytes(table: NDArray[np.int8]) -> bytes:
    """Return a table, given in the order of INT8, as the bytes that Load_Table expects.

    In these bytes the results for codes 0 to 127 come first, then the results for codes -128 to -1.
    """
    return np.roll(table, -128).tobytes()


def to_int8(x: NDArray[np.float32], scale: float, zero_point: int) -> NDArray[np.int8]:
    """Return the int8 codes of float32 numbers, as LiteRT's QUANTIZE calculates them."""
    with np.errstate(over="ignore"):
        steps = x / np.float32(scale)
    code = round_half_away(steps) + np.float32(zero_point)
    return np.clip(code, -128, 127).astype(np.int8)


def to_float(x: NDArray[np.int8], scale: float, zero_point: int) -> NDArray[np.float32]:
    """Return the float32 numbers of int8 codes, as LiteRT's DEQUANTIZE calculates them."""
    return (np.float64(scale) * (x.astype(np.int64) - zero_point)).astype(np.float32)


def folded_bias(
    bias: NDArray[np.int64], zero_point: int, weight_sums: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return bias - zero_point * weight_sums for each channel, modulo 2^32 as int32.

    `zero_point` belongs to the input, and `weight_sums` has the sum of each channel's weights. With
    the new bias, input codes can be multiplied by weights without subtracting the zero point.
    """
    return ((bias - zero_point * weight_sums) & 0xFFFF_FFFF).astype(np.uint32).view(np.int32)
