# SPDX-License-Identifier: Apache-2.0
"""Small float32 networks in TensorFlow Lite's format."""

from __future__ import annotations

import numpy as np

from systola.verif.compiler.model_writer import ModelWriter, schema

RELU = schema.ActivationFunctionType.RELU
NO_ACTIVATION = schema.ActivationFunctionType.NONE


def classifier(rng: np.random.Generator, *, after: bool = False) -> bytes:
    """Return a network of a convolution, a pooling and a dense layer, for images of 8x8 pixels.

    The network has ten classes, and leaves the number of samples open. The file has no signature.
    With `after` the weights come after the flatbuffer.
    """
    net = ModelWriter()
    x = _calculated(net, 8, 8, 1)
    y = _calculated(net, 8, 8, 4)
    _convolve(net, rng, x, y)
    pooled = _calculated(net, 4, 4, 4)
    net.operator(
        "MAX_POOL_2D",
        [y],
        [pooled],
        padding=schema.Padding.VALID,
        strideW=2,
        strideH=2,
        filterWidth=2,
        filterHeight=2,
    )
    flat = _calculated(net, 64)
    sizes = net.tensor((2,), "int32", data=np.array([-1, 64], np.int32))
    net.operator("RESHAPE", [pooled, sizes], [flat])
    result = _calculated(net, 10)
    dense = _weights(net, rng, 10, 64), _weights(net, rng, 10)
    net.operator("FULLY_CONNECTED", [flat, *dense], [result], fusedActivationFunction=NO_ACTIVATION)
    write = net.content_with_weights_behind if after else net.content
    return write([x], [result])


def weights_of_float16(rng: np.random.Generator) -> bytes:
    """Return a network of a dense layer that stores its weights in float16, as converters write it.

    A DEQUANTIZE makes float32 of the weights.
    """
    net = ModelWriter()
    x, y = _calculated(net, 40), _calculated(net, 30)
    weights = rng.standard_normal((30, 40)).astype(np.float16)
    stored, wide = net.tensor((30, 40), "float16", data=weights), net.tensor((30, 40), "float32")
    net.operator("DEQUANTIZE", [stored], [wide])
    net.operator("FULLY_CONNECTED", [x, wide, -1], [y], fusedActivationFunction=RELU)
    return net.content([x], [y])


def weights_of_int8(rng: np.random.Generator) -> bytes:
    """Return a network of two dense layers on float32 that have weights of 8 bits.

    The first layer takes int8 weights as they are. A DEQUANTIZE makes float32 of the second layer's
    uint8 weights.
    """
    net = ModelWriter()
    x, h, y = (_calculated(net, size) for size in (40, 30, 20))
    scales = rng.uniform(0.01, 0.03, 30).astype(np.float32)
    codes = rng.integers(-127, 128, (30, 40), np.int8)
    net.operator("FULLY_CONNECTED", [x, net.tensor((30, 40), "int8", scales, 0, codes), -1], [h])
    codes = rng.integers(0, 256, (20, 30), np.uint8)
    stored, wide = net.tensor((20, 30), "uint8", 0.01, 120, codes), net.tensor((20, 30), "float32")
    net.operator("DEQUANTIZE", [stored], [wide])
    net.operator("FULLY_CONNECTED", [h, wide, -1], [y], fusedActivationFunction=RELU)
    return net.content([x], [y])


def loop(rng: np.random.Generator) -> bytes:
    """Return a network of a dense layer, and a loop that adds another layer's result twice."""
    net = ModelWriter()
    net.begin_subgraph()
    i, value = net.tensor((), "int32"), net.tensor((1, 5), "float32")
    most, more = net.tensor((), "int32", data=np.array(2, np.int32)), net.tensor((), "bool")
    net.operator("LESS", [i, most], [more])
    net.end_subgraph([i, value], [more])
    net.begin_subgraph()
    i, value = net.tensor((), "int32"), net.tensor((1, 5), "float32")
    one, following = net.tensor((), "int32", data=np.array(1, np.int32)), net.tensor((), "int32")
    product, total = net.tensor((1, 5), "float32"), net.tensor((1, 5), "float32")
    net.operator("ADD", [i, one], [following])
    net.operator("FULLY_CONNECTED", [value, _weights(net, rng, 5, 5), -1], [product])
    net.operator("ADD", [value, product], [total])
    net.end_subgraph([i, value], [following, total])
    x, h, y = (net.tensor((1, size), "float32") for size in (40, 5, 5))
    zero, last = net.tensor((), "int32", data=np.array(0, np.int32)), net.tensor((), "int32")
    net.operator("FULLY_CONNECTED", [x, _weights(net, rng, 5, 40), -1], [h])
    net.operator("WHILE", [zero, h], [last, y], condSubgraphIndex=1, bodySubgraphIndex=2)
    return net.content([x], [y])


def filter_of_any_size(rng: np.random.Generator) -> bytes:
    """Return a network of a convolution that takes any number of samples and of rows."""
    net = ModelWriter()
    x = net.tensor((1, 1, 8, 1), "float32", signature=(-1, -1, 8, 1))
    y = net.tensor((1, 1, 8, 4), "float32", signature=(-1, -1, 8, 4))
    _convolve(net, rng, x, y)
    return net.content([x], [y])


def sum_of_two(rng: np.random.Generator, *, signed: bool = False) -> bytes:
    """Return a network that adds the results of two dense layers, for inputs of 6 and of 9 numbers.

    With `signed` the file has a signature, which gives the tensors other names than their own.
    """
    net = ModelWriter()
    inputs = [_calculated(net, size) for size in (6, 9)]
    parts = [_calculated(net, 5) for _ in inputs]
    for source, part, size in zip(inputs, parts, (6, 9), strict=True):
        dense = _weights(net, rng, 5, size), _weights(net, rng, 5)
        net.operator(
            "FULLY_CONNECTED", [source, *dense], [part], fusedActivationFunction=NO_ACTIVATION
        )
    result = _calculated(net, 5)
    if signed:
        # The signature has the inputs in another order than the model.
        net.sign("call", {"right": inputs[1], "left": inputs[0]}, {"sum": result})
    net.operator("ADD", parts, [result], fusedActivationFunction=RELU)
    return net.content(inputs, [result])


def _calculated(net: ModelWriter, *sizes: int) -> int:
    """Add a float32 tensor with `sizes` for each sample of an open batch; return its number."""
    return net.tensor((1, *sizes), "float32", signature=(-1, *sizes))


def _weights(net: ModelWriter, rng: np.random.Generator, *sizes: int) -> int:
    """Add a tensor of random float32 weights; return its number."""
    return net.tensor(sizes, "float32", data=rng.standard_normal(sizes).astype(np.float32))


def _convolve(net: ModelWriter, rng: np.random.Generator, x: int, y: int) -> None:
    """Add a 3x3 convolution with a RELU, from tensor `x` of one channel to `y` of four channels."""
    net.operator(
        "CONV_2D",
        [x, _weights(net, rng, 4, 3, 3, 1), _weights(net, rng, 4)],
        [y],
        padding=schema.Padding.SAME,
        strideW=1,
        strideH=1,
        dilationWFactor=1,
        dilationHFactor=1,
        fusedActivationFunction=RELU,
    )
