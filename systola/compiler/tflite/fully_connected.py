# SPDX-License-Identifier: Apache-2.0
"""The translation of FULLY_CONNECTED to a Layer, the matrix product of the machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Rounding
from systola.compiler.errors import ModelError
from systola.compiler.layer import MAX_LEFT, Layer
from systola.compiler.quantise import (
    exact_multipliers,
    folded_bias,
    quantise_multiplier,
    relu_limits,
    to_single,
)
from systola.compiler.semantics import Semantics
from systola.compiler.tflite.graph import Graph, Operator, Tensor, need_type
from systola.compiler.wide_weights import weight_parts

FUSED = {"NONE": Function.NONE, "RELU": Function.RELU, "RELU6": Function.RELU6}


def fused_activation(operator: Operator) -> str:
    """Return the name of an operator's fused activation; raise ModelError if not in FUSED."""
    activation = str(operator.options.get("FusedActivationFunction", "NONE"))
    if activation not in FUSED:
        raise ModelError(f"the fused activation {activation} is not supported")
    return activation


def bias_values(bias: Tensor | None, n: int) -> NDArray[np.int64]:
    """Return the `n` values of a bias, or `n` zeros if `bias` is None.

    Raises ModelError if the bias has another size, or another type than int32.
    """
    if bias is None:
        return np.zeros(n, np.int64)
    need_type("bias", bias, "int32")
    if bias.data is None or bias.size != n:
        raise ModelError(f"its bias should have {n} values, not shape {bias.shape}")
    return bias.data.reshape(n).astype(np.int64)


def multiplier(scale: float) -> tuple[int, int]:
    """Return LiteRT's (q, shift) for a scale: q * 2^(shift - 31) is nearest to `scale`.

    Raises ModelError if the scale is too large for the machine.
    """
    if scale < 2.0**MAX_LEFT:
        q, shift = quantise_multiplier(scale)
        if shift <= MAX_LEFT:
            return q, shift
    raise ModelError(f"its effective scale {scale:.6g} is too large")


def check_symmetric(weights: Tensor) -> None:
    """Raise ModelError if weights have a zero point other than 0, and are not uint8 in the file."""
    if bool(weights.zero_points.any()) and not weights.unsigned:
        raise ModelError("its weights have a zero point other than 0, which is not supported")


def centred(weights: Tensor) -> NDArray[np.int64]:
    """Return the codes of weights minus their zero point, which is 0 unless the file has uint8."""
    assert weights.data is not None
    if weights.unsigned and len(weights.zero_points) != 1:
        raise ModelError("its weights of uint8 need one scale and one zero point")
    zero_point = int(weights.zero_points[0]) if weights.unsigned else 0
    return weights.data.astype(np.int64) - zero_point


def fully_connected(
    graph: Graph, operator: Operator, source: Tensor, result: Tensor, semantics: Semantics
) -> tuple[Layer, int]:
    """Return a pair: the layer for FULLY_CONNECTED, and the number of the layer's inexact channels.

    Weights of more than 8 bits are split into several matrices of 8 bits, which add up to the
    weights. The layer has these matrices one after another along K, so its input must be repeated
    for each matrix. A channel is inexact if no multiplier gives all of LiteRT's results, as
    exact_multipliers explains. Raises ModelError if the operator is not supported.
    """
    inputs = [graph.tensors[n] if n >= 0 else None for n in operator.inputs]
    weights = inputs[1] if len(inputs) > 1 else None
    bias = inputs[2] if len(inputs) > 2 else None
    need_type("input", source, "int8")
    need_type("result", result, "int8")
    if weights is None or weights.data is None:
        raise ModelError("its weights are missing, or of a type that is not supported")
    need_type("weights", weights, "int8")
    if len(weights.shape) != 2 or weights.size == 0:
        raise ModelError(f"its weights have the shape {weights.shape}")
    if operator.options.get("WeightsFormat"):
        raise ModelError("shuffled weights are not supported")
    check_symmetric(weights)
    n, k = weights.shape
    if source.size % k:
        raise ModelError(f"weights of {k} inputs do not fit a tensor of shape {source.shape}")
    rows = source.size // k
    if result.size != rows * n:
        raise ModelError(f"its result should have {rows * n} elements, not {result.size}")
    if len(weights.scales) not in (1, n) or (len(weights.scales) > 1 and weights.axis != 0):
        raise ModelError("its weights need one scale, or one for each output")
    values = centred(weights).T
    biases = bias_values(bias, n)
    rounding, inexact = Rounding.DOUBLE, 0
    if semantics == Semantics.LITERT_1_2:
        multipliers, shift = _double_multipliers(source, result, weights, n)
    else:
        rounding = Rounding.SINGLE
        multipliers, shift, exact = _single_multipliers(source, result, weights, values, biases)
        inexact = int(np.count_nonzero(~exact))
    activation = fused_activation(operator)
    layer = Layer(
        weights=np.ascontiguousarray(np.concatenate(weight_parts(values))),
        bias=folded_bias(biases, source.zero_point, values.sum(axis=0, dtype=np.int64)),
        multiplier=multipliers,
        shift=shift,
        rounding=rounding,
        zero_point=result.zero_point,
        function=FUSED[activation],
        ceiling=relu_limits(activation, result.scale, result.zero_point)[1],
    )
    return layer, inexact


def _double_multipliers(
    source: Tensor, result: Tensor, weights: Tensor, n: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return (multipliers, shifts) of the `n` channels for DOUBLE rounding, as in LiteRT 1.2.0."""
    if len(weights.scales) == 1:
        # If all weights have one scale, LiteRT multiplies it by the input's scale in float32.
        scales = np.full(n, to_single(source.scale * weights.channel_scales[0]) / result.scale)
    else:
        scales = source.scale * weights.channel_scales / result.scale
    pairs = [multiplier(float(scale)) for scale in scales]
    return np.array([q for q, _ in pairs], np.int32), np.array([e for _, e in pairs], np.int32)


def _single_multipliers(
    source: Tensor,
    result: Tensor,
    weights: Tensor,
    values: NDArray[np.int64],
    bias: NDArray[np.int64],
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    """Return (multipliers, shifts, exact) of the channels for SINGLE rounding, as in LiteRT 2.3.0.

    `exact` is true for a channel if all its results equal LiteRT's results.
    """
    zero_point = source.zero_point
    # The limits are the least and the greatest sum of each channel that an input can give.
    low_end, high_end = values * (-128 - zero_point), values * (127 - zero_point)
    limits = (
        bias + np.minimum(low_end, high_end).sum(axis=0),
        bias + np.maximum(low_end, high_end).sum(axis=0),
    )
    low, high = (np.clip(limit, -(2**31), 2**31 - 1) for limit in limits)
    scale = np.float64(source.scale) * weights.channel_scales / np.float64(result.scale)
    return exact_multipliers(np.broadcast_to(scale, bias.shape), low, high)
