# SPDX-License-Identifier: Apache-2.0
"""The choice of the steps that execute one operation if all its maps are in the unified buffer."""

from __future__ import annotations

from systola.arch.config import Config
from systola.compiler.errors import CompileError
from systola.compiler.lower.batch_rows import by_sample, window_by_sample
from systola.compiler.lower.beside import beside_step
from systola.compiler.lower.calculated_product import calculated_product_steps
from systola.compiler.lower.convolution import convolution_step, product_step
from systola.compiler.lower.depthwise import depthwise_steps
from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.lstm_choice import chosen_lstm
from systola.compiler.lower.pooling import pooling_steps
from systola.compiler.lower.step import Step
from systola.compiler.lower.vector import binary_steps, constant_map, curve_step, unary_step
from systola.compiler.lower.wide_product import wide_product_step
from systola.compiler.operations import (
    Binary,
    CalculatedProduct,
    Convolution,
    Curve,
    DepthwiseConvolution,
    Lstm,
    Node,
    Pooling,
    Product,
    Unary,
    Value,
    WideProduct,
)


def node_steps(
    config: Config,
    node: Node,
    sources: list[FeatureMap],
    target: FeatureMap,
    samples: int,
    taps: dict[bytes, Lines],
    hidden: int,
) -> list[Step]:
    """Return the steps that execute `node` on `samples` samples.

    lower/batch_rows.py describes the order of the samples' pixels in a map. `taps` has the buffer
    lines of weights of depthwise convolutions, so that equal weights are stored once; the key is
    the bytes of the weights. `hidden` is the number of cycles that the array is busy with other
    work during a depthwise convolution. Raises CompileError if the machine cannot do the operation.
    """
    match node:
        case Convolution() if target.beside > 1:
            source = sources[0]
            return [beside_step(config, node.operator, source, target, node.weights, node.output)]
        case Convolution():
            return [
                convolution_step(
                    config,
                    node.operator,
                    sources[0] if sources[0].packed else by_sample(sources[0], samples),
                    by_sample(target, samples),
                    node.weights,
                    window_by_sample(node.window, samples),
                    node.fill,
                    node.output,
                )
            ]
        case Product():
            return [product_step(config, node, sources[0], target, samples)]
        case CalculatedProduct():
            return calculated_product_steps(config, node, sources, target)
        case WideProduct():
            return [wide_product_step(config, node, sources[0], target)]
        case DepthwiseConvolution():
            return depthwise_steps(config, node, sources[0], target, taps, hidden)
        case Pooling():
            return [*pooling_steps(config, node, sources[0], target, samples)]
        case Unary():
            return [unary_step(config, node, sources[0], target)]
        case Curve():
            return [curve_step(config, node, sources[0], target)]
        case Binary():
            maps = iter(sources)
            a, b = (
                next(maps)
                if isinstance(operand, Value)
                else constant_map(f"constants of {node.operator}", operand, target, samples)
                for operand in (node.a, node.b)
            )
            return binary_steps(config, node, (a, b), target, samples)
        case Lstm():
            return [chosen_lstm(config, node, sources[0], target, samples)]
        case _:
            raise CompileError("this kind of operation is not supported")
