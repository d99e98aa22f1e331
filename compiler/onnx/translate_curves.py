# SPDX-License-Identifier: Apache-2.0
"""Functions of one number: bounds of what is pending, and tables of codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.onnx.entries import Dequantised, Limits, Pending
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.scope import Scope

Curve = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def translate_relu(scope: Scope, node: OnnxNode) -> None:
    """Relu."""
    _limit(scope, node, Limits(low=0.0))


def translate_clip(scope: Scope, node: OnnxNode) -> None:
    """Clip to constant bounds, which are attributes before version 11."""
    largest = float(np.finfo(np.float32).max)
    bounds = [node.number("min", -largest), node.number("max", largest)]
    for position in (1, 2):
        if scope.optional(node, position) is not None:
            bound = scope.constant(node, position)
            if bound.size != 1 or bound.dtype != np.float32:
                raise ModelError("its bounds must be single numbers of float32")
            bounds[position - 1] = float(bound.reshape(-1)[0])
    if not bounds[0] <= bounds[1]:
        raise ModelError(f"its bounds {bounds[0]} and {bounds[1]} are not in order")
    _limit(scope, node, Limits(*bounds))


def _limit(scope: Scope, node: OnnxNode, limits: Limits) -> None:
    source = scope.entry(node, 0)
    if isinstance(source, Pending):
        low, high = (
            float(np.clip(bound, limits.low, limits.high))
            for bound in (source.limits.low, source.limits.high)
        )
        scope.result(node, replace(source, limits=Limits(low, high)))
    elif isinstance(source, Dequantised):
        low, high = np.float32(limits.low), np.float32(limits.high)
        scope.result(node, replace(source, curve=np.clip(source.numbers, low, high)))
    else:
        raise ModelError("its input must come from a DequantizeLinear or an operator")


Translator = Callable[[Scope, OnnxNode], None]
CURVES: dict[str, Translator] = {
    "Relu": translate_relu,
    "Clip": translate_clip,
}
