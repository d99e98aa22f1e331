# SPDX-License-Identifier: Apache-2.0
"""The common part of convolutions and products: the conversion of their sums to codes.

Codes are quantised numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Rounding
from systola.compiler.errors import ModelError
from systola.compiler.onnx.entries import Codes, Limits
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.multipliers import code_limits, runtime_multipliers
from systola.compiler.onnx.numbers import CODES, Quantisation
from systola.compiler.onnx.scope import Scope
from systola.compiler.operations import Requantisation
from systola.compiler.quantise import folded_bias


@dataclass(frozen=True)
class Linear:
    """An operator that multiplies its source by weights and adds a bias."""

    source: Codes
    quantisation: Quantisation
    """Quantisation of the source."""
    weights: NDArray[np.int64]
    """Weights with their zero points subtracted; the last axis has an index for each channel of the
    result.
    """
    scales: NDArray[np.float32]
    """Products of the source's scale and the weights' scales: one for each channel of the result,
    or one for all.
    """
    bias: NDArray[np.int64]


@dataclass(frozen=True)
class LinearOutput:
    """A conversion of an operator's sums to codes: a requantisation, then a table, if any."""

    requantisation: Requantisation
    table: NDArray[np.int64] | None
    """Clamped code for each code from -128 on; None if RELU or RELU6 clamps, or nothing needs to.
    """


def linear_output(
    scope: Scope, linear: Linear, quantisation: Quantisation, limits: Limits
) -> LinearOutput:
    """Return the conversion of an operator's sums to codes of `quantisation`, within `limits`.

    Each channel of the result has a multiplier and a bias of its own. Channels that may differ from
    ONNX Runtime are added to the count `scope.inexact_channels`.
    """
    weights = linear.weights.reshape(-1, linear.weights.shape[-1])
    zero_point = linear.quantisation.zero_point
    ends = weights * (-128 - zero_point), weights * (127 - zero_point)
    low = linear.bias + np.minimum(*ends).sum(axis=0)
    high = linear.bias + np.maximum(*ends).sum(axis=0)
    if bool((low < -(2**31)).any() or (high >= 2**31).any()):
        raise ModelError("its sums do not fit 32 bits")
    floor, ceiling = code_limits(quantisation, limits)
    with np.errstate(over="ignore"):
        scale = np.broadcast_to(linear.scales / quantisation.scale, linear.bias.shape)
    multiplier, shift, exact = runtime_multipliers(
        scale, low, high, min(floor - quantisation.zero_point, 0),
        max(ceiling - quantisation.zero_point, 0),
    )  # fmt: skip
    scope.inexact_channels += int(np.count_nonzero(~exact))
    function, table = Function.NONE, None
    if floor == quantisation.zero_point and (floor, ceiling) != (-128, 127):
        function = Function.RELU if ceiling == 127 else Function.RELU6
    elif (floor, ceiling) != (-128, 127):
        table = np.clip(CODES, floor, ceiling)
    requantisation = Requantisation(
        bias=folded_bias(linear.bias, zero_point, weights.sum(axis=0)),
        multiplier=multiplier,
        shift=shift,
        rounding=Rounding.SINGLE,
        zero_point=quantisation.zero_point,
        function=function,
        ceiling=ceiling if function == Function.RELU6 else 127,
    )
    return LinearOutput(requantisation, table)


def limited(scope: Scope, node: OnnxNode, result: Codes, output: LinearOutput) -> Codes:
    if output.table is None:
        return result
    return scope.look_up(node, result, output.table, result.unsigned)
