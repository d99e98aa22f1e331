# SPDX-License-Identifier: Apache-2.0
"""The translation of BATCH_MATMUL to products, by constants or by calculated matrices."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Rounding
from systola.compiler.errors import ModelError
from systola.compiler.layer import Layer
from systola.compiler.moves import MOST_PARTS, Rearrange, check_size
from systola.compiler.operations import (
    CalculatedProduct,
    Concatenation,
    Product,
    Requantisation,
    Reshape,
    Slice,
    Value,
)
from systola.compiler.quantise import folded_bias, to_single
from systola.compiler.tflite.fully_connected import multiplier
from systola.compiler.tflite.graph import Operator, need_type
from systola.compiler.tflite.scope import Scope, one_result
from systola.compiler.wide_weights import repeated, weight_parts


def translate_batch_matmul(scope: Scope, operator: Operator) -> None:
    """Translate BATCH_MATMUL of int8: each matrix of the second input becomes a product of its own,
    whether it is constant or calculated.
    """
    one_result(operator, 2)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    weights = scope.tensor(operator, 1)
    need_type("second input", weights, "int8")
    if operator.options.get("AdjX") or scope.repeat > 1:
        raise ModelError("a transposed first input, or several samples, are not supported")
    shape = weights.shape
    if len(shape) < 2 or not weights.size:
        raise ModelError(f"its second input has the shape {shape}")
    *batch, k, n = shape
    turned = bool(operator.options.get("AdjY"))
    if turned:
        k, n = n, k
    count = math.prod(batch)
    sizes = [size for size in source.shape[:-2] if size > 1]
    if (
        source.channels != k
        or result.channels != n
        or result.pixels != source.pixels
        or (count > 1 and [size for size in batch if size > 1] != sizes)
        or len(source.shape) < 2
    ):
        raise ModelError(f"it makes shape {result.shape} of {source.shape} and {weights.shape}")
    if count > MOST_PARTS:
        raise ModelError(f"{count} matrices are not supported")
    # LiteRT rounds the product of the two scales to float32.
    product = to_single(source_tensor.scale * weights.scale)
    scaled = multiplier(product / result_tensor.scale)
    name = str(operator)
    parts = _matrices(scope, operator, source, count)
    made = [Value(f"{result.name} {number}", (part.pixels, n)) for number, part in enumerate(parts)]
    if weights.data is None:
        second, _ = scope.source(operator, 1)
        if turned:
            # By the host: the machine would leave each channel in a block of its own.
            check_size(second)
            places = np.arange(weights.size).reshape(shape).swapaxes(-1, -2)
            right = Value(f"{second.name} for {operator}", places.shape)
            scope.host(operator, Rearrange(places.reshape(-1), 0), right, second)
            second = right
        matrices = _matrices(scope, operator, second, count)
        zero_points = source_tensor.zero_point, weights.zero_point
        output = Requantisation(
            bias=np.array([k * zero_points[0] * zero_points[1]], np.int32),
            multiplier=np.array([scaled[0]], np.int32),
            shift=np.array([scaled[1]], np.int32),
            zero_point=result_tensor.zero_point,
        )
        for part, matrix, to in zip(parts, matrices, made, strict=True):
            scope.add(
                CalculatedProduct(
                    operator=name,
                    result=to,
                    source=part,
                    matrix=matrix,
                    zero_points=zero_points,
                    output=output,
                )
            )
    else:
        numbers = weights.data.astype(np.int64) - weights.zero_point
        if turned:
            numbers = numbers.swapaxes(-1, -2)
        for part, numbers_of_part, to in zip(
            parts, numbers.reshape(count, k, n), made, strict=True
        ):
            _add_product(
                scope,
                operator,
                part,
                to,
                numbers_of_part,
                scaled,
                (source_tensor.zero_point, result_tensor.zero_point),
            )
    joined = made[0]
    if count > 1:
        joined = Value(f"{result.name} joined", (source.pixels, n))
        scope.add(Concatenation(operator=name, result=joined, parts=tuple(made), axis=0))
    scope.add(Reshape(operator=name, result=result, source=joined))


def _matrices(scope: Scope, operator: Operator, value: Value, count: int) -> list[Value]:
    """Return the `count` matrices that a value consists of, each as a value of two dimensions."""
    name, rows, columns = str(operator), value.pixels // count, value.channels
    whole = Value(f"{value.name} for {operator}", (value.pixels, columns))
    scope.add(Reshape(operator=name, result=whole, source=value))
    if count == 1:
        return [whole]
    parts = [Value(f"{whole.name} {number}", (rows, columns)) for number in range(count)]
    for number, part in enumerate(parts):
        scope.add(Slice(operator=name, result=part, source=whole, axis=0, start=number * rows))
    return parts


def _add_product(
    scope: Scope,
    operator: Operator,
    source: Value,
    result: Value,
    matrix: NDArray[np.int64],
    scaled: tuple[int, int],
    zero_points: tuple[int, int],
) -> None:
    """Add the product of a value by a constant matrix, without the matrix' zero point.

    `scaled` has the multiplier and the shift for the sums. `zero_points` has one zero point for the
    source and one for the result.
    """
    n = result.channels
    parts = weight_parts(matrix)
    taken, items = repeated(str(operator), source, len(parts))
    scope.add(*items)
    layer = Layer(
        weights=np.ascontiguousarray(np.concatenate(parts)),
        bias=folded_bias(np.zeros(n, np.int64), zero_points[0], matrix.sum(axis=0, dtype=np.int64)),
        multiplier=np.array([scaled[0]] * n, np.int32),
        shift=np.array([scaled[1]] * n, np.int32),
        rounding=Rounding.DOUBLE,
        zero_point=zero_points[1],
    )
    scope.add(Product(operator=str(operator), result=result, source=taken, layer=layer))
