# SPDX-License-Identifier: Apache-2.0
"""The translation of QuantizeLinear and DequantizeLinear. Codes are quantised numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from systola.compiler.errors import ModelError
from systola.compiler.host_stage import HostStage, QuantiseEven
from systola.compiler.onnx.entries import Codes, Dequantised, HostArray, Pending, Weights
from systola.compiler.onnx.layout import plain
from systola.compiler.onnx.model import Constant, OnnxNode
from systola.compiler.onnx.numbers import Quantisation
from systola.compiler.onnx.scope import Scope, machine_quantisation
from systola.compiler.operations import Value


def translate_quantize(scope: Scope, node: OnnxNode) -> None:
    """Translate QuantizeLinear, which sets the scale of its input, and the operator before it.

    The machine calculates codes only, so an operator's result needs the scale from QuantizeLinear.
    """
    source = scope.entry(node, 0)
    if isinstance(source, Weights):
        source = source.numbers
    if isinstance(source, np.ndarray):
        scope.result(node, _quantised_constant(scope, node, source))
        return
    quantisation = scope.quantisation(node, 1, 2)
    match source:
        case Pending():
            result = source.finish(quantisation, source.limits)
        case Dequantised():
            result = requantised(scope, node, source, quantisation)
        case HostArray():
            result = _from_host(scope, node, source, quantisation)
        case Codes():
            raise ModelError("its input is quantised already")
    scope.result(node, result)


def requantised(
    scope: Scope, node: OnnxNode, source: Dequantised, quantisation: Quantisation
) -> Codes:
    """Return a float32 tensor as codes of a new quantisation.

    The tensor is a function of older codes, so a table from older to new codes is enough.
    """
    table = quantisation.codes(source.numbers)
    if np.array_equal(table, np.arange(-128, 128)):
        return replace(source.codes, unsigned=quantisation.unsigned)
    return scope.look_up(node, source.codes, table, quantisation.unsigned)


def _from_host(
    scope: Scope, node: OnnxNode, source: HostArray, quantisation: Quantisation
) -> Codes:
    if source.value.dtype != "float32":
        raise ModelError(f"its input is {source.value.dtype}, supported is float32")
    result = Value(node.outputs[0], source.value.shape)
    function = QuantiseEven(float(quantisation.scale), quantisation.zero_point)
    scope.add(
        HostStage(operator=str(node), sources=(source.value,), result=result, function=function)
    )
    return Codes(result, result.shape, plain(result.shape), quantisation.unsigned)


def _quantised_constant(scope: Scope, node: OnnxNode, source: Constant) -> Constant:
    scales, zero_points, unsigned = scope.scales(node, 1, 2)
    if not scales.all():
        raise ModelError("it divides constants by a scale of 0")
    limits = np.iinfo(np.uint8 if unsigned else np.int8)
    shape = _channel_shape(node, source.shape, scales.size)
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(source.astype(np.float32) / scales.reshape(shape))
    steps = np.nan_to_num(steps.astype(np.float64), nan=limits.min)
    codes = np.clip(steps + zero_points.reshape(shape), limits.min, limits.max)
    return codes.astype(limits.dtype)


def translate_dequantize(scope: Scope, node: OnnxNode) -> None:
    """Translate DequantizeLinear to a note of the number for which each code stands; nothing is
    calculated.
    """
    source = scope.entry(node, 0)
    if isinstance(source, np.ndarray):
        dtype = str(source.dtype)
        if dtype not in ("int8", "uint8", "int32"):
            raise ModelError(f"constants of {dtype} are not supported")
        scales, zero_points, _ = scope.scales(node, 1, 2, dtype)
        _channel_shape(node, source.shape, scales.size)
        axis = node.integer("axis", 1)
        axis += source.ndim if axis < 0 else 0
        scope.result(node, Weights(source, scales, zero_points, axis))
        return
    if not isinstance(source, Codes):
        raise ModelError("its input is not quantised")
    scales, zero_points, unsigned = scope.scales(node, 1, 2, "uint8" if source.unsigned else "int8")
    if scales.size != 1:
        raise ModelError("it needs one scale, not one for each channel")
    if unsigned != source.unsigned:
        raise ModelError("its zero point is of another type than its input")
    quantisation = machine_quantisation(float(scales[0]), int(zero_points[0]), unsigned)
    scope.result(node, Dequantised(source, quantisation))


def _channel_shape(node: OnnxNode, shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the shape in which a node's `count` scales can be broadcast to an array of `shape`."""
    if count == 1:
        return (1,) * len(shape)
    axis = node.integer("axis", 1)
    if not -len(shape) <= axis < len(shape) or shape[axis] != count:
        raise ModelError(f"its {count} scales do not fit the shape {shape}")
    if node.integer("block_size", 0):
        raise ModelError("scales for blocks are not supported")
    return tuple(count if each == axis % len(shape) else 1 for each in range(len(shape)))
