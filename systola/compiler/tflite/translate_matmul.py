# SPDX-License-Identifier: Apache-2.0
"""The translation of BATCH_MATMUL by constants, to products."""

from __future__ import annotations

import math

import numpy as np

from systola.arch.isa import Rounding
from systola.compiler.errors import ModelError
from systola.compiler.layer import Layer
from systola.compiler.moves import MOST_PARTS
from systola.compiler.operations import Concatenation, Product, Reshape, Slice, Value
from systola.compiler.quantise import folded_bias, to_single
from systola.compiler.tflite.fully_connected import multiplier
from systola.compiler.tflite.graph import Operator, need_type
from systola.compiler.tflite.scope import Scope, one_result
from systola.compiler.wide_weights import repeated, weight_parts


def translate_batch_matmul(scope: Scope, operator: Operator) -> None:
    """Translate BATCH_MATMUL of an int8 value by a constant: each matrix of the constant becomes a
    product of its own.
    """
    one_result(operator, 2)
    source, source_tensor = scope.source(operator)
    result, result_tensor = scope.result(operator)
    weights = scope.tensor(operator, 1)
    need_type("second input", weights, "int8")
    if weights.data is None:
        raise ModelError("its second input must be a constant")
    if operator.options.get("AdjX") or scope.repeat > 1:
        raise ModelError("a transposed first input, or several samples, are not supported")
    matrices = weights.data.astype(np.int64) - weights.zero_point
    if operator.options.get("AdjY"):
        matrices = matrices.swapaxes(-1, -2)
    if matrices.ndim < 2 or not matrices.size:
        raise ModelError(f"its second input has the shape {weights.shape}")
    *batch, k, n = (int(size) for size in matrices.shape)
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
    q, shift = multiplier(product / result_tensor.scale)
    rows = source.pixels // count
    name = str(operator)
    whole = Value(f"{source.name} for {operator}", (source.pixels, k))
    scope.add(Reshape(operator=name, result=whole, source=source))
    made: list[Value] = []
    stacked = matrices.reshape(count, k, n)
    for number in range(count):
        matrix = stacked[number]
        part = whole
        if count > 1:
            part = Value(f"{whole.name} {number}", (rows, k))
            scope.add(Slice(operator=name, result=part, source=whole, axis=0, start=number * rows))
        parts = weight_parts(matrix)
        taken, items = repeated(name, part, len(parts))
        scope.add(*items)
        layer = Layer(
            weights=np.ascontiguousarray(np.concatenate(parts)),
            bias=folded_bias(
                np.zeros(n, np.int64), source_tensor.zero_point, matrix.sum(axis=0, dtype=np.int64)
            ),
            multiplier=np.array([q] * n, np.int32),
            shift=np.array([shift] * n, np.int32),
            rounding=Rounding.DOUBLE,
            zero_point=result_tensor.zero_point,
        )
        made.append(Value(f"{result.name} {number}", (rows, n)))
        scope.add(Product(operator=name, result=made[-1], source=taken, layer=layer))
    joined = made[0]
    if count > 1:
        joined = Value(f"{result.name} joined", (source.pixels, n))
        scope.add(Concatenation(operator=name, result=joined, parts=tuple(made), axis=0))
    scope.add(Reshape(operator=name, result=result, source=joined))
