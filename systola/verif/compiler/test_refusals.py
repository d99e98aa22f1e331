# SPDX-License-Identifier: Apache-2.0
"""Tests that an unsupported network is refused in one line, with the operator and the reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from systola.arch.config import Config, preset
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.network import compile_network
from systola.verif.compiler.model_writer import ModelWriter
from systola.verif.compiler.test_networks import network_of
from systola.verif.plan.selection import thorough

SMALL = preset("small")


def one_operator(
    kind: str, shape: tuple[int, ...], result: tuple[int, ...], **options: Any
) -> bytes:
    """Return a model of a single operator without weights."""
    writer = ModelWriter()
    source, target = writer.tensor(shape, "int8", 0.1), writer.tensor(result, "int8", 0.1)
    writer.operator(kind, [source], [target], **options)
    return writer.content([source], [target])


def weighted(
    kind: str,
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    result: tuple[int, ...],
    weight_type: str = "int8",
    **options: Any,
) -> bytes:
    """Return a model of a single convolution."""
    writer = ModelWriter()
    source, target = writer.tensor(shape, "int8", 0.1), writer.tensor(result, "int8", 0.1)
    axis = 3 if kind.startswith("DEPTHWISE") else 0
    values = np.ones(weights, weight_type)
    bias = np.zeros(weights[axis], np.int32)
    inputs = [
        source,
        writer.tensor(weights, weight_type, 0.01, data=values, axis=axis),
        writer.tensor(bias.shape, "int32", 0.001, data=bias),
    ]
    writer.operator(kind, inputs, [target], **{"strideH": 1, "strideW": 1, **options})
    return writer.content([source], [target])


def pool(shape: tuple[int, ...], kernel: int, kind: str = "AVERAGE_POOL_2D") -> bytes:
    return one_operator(
        kind, shape, shape, strideH=1, strideW=1, filterHeight=kernel, filterWidth=kernel
    )


def with_constants(
    kind: str,
    shape: tuple[int, ...],
    result: tuple[int, ...],
    *constants: list[int],
    **options: Any,
) -> bytes:
    """Return a model of one operator that takes constant whole numbers beside its input."""
    writer = ModelWriter()
    source, target = writer.tensor(shape, "int8", 0.1), writer.tensor(result, "int8", 0.1)
    numbers = [
        writer.tensor((len(each),), "int32", data=np.array(each, np.int32)) for each in constants
    ]
    writer.operator(kind, [source, *numbers], [target], **options)
    return writer.content([source], [target])


@pytest.mark.parametrize(
    ("config", "model", "message"),
    [
        (
            dataclasses.replace(SMALL, accumulator_rows=10),
            weighted("CONV_2D", (1, 2, 11, 3), (4, 3, 3, 3), (1, 2, 11, 4)),
            r"operator 0 \(CONV_2D\): a row of 11 results does not fit the 10 rows",
        ),
        (
            dataclasses.replace(SMALL, buffer_lines=20),
            weighted("CONV_2D", (1, 12, 12, 16), (4, 1, 1, 16), (1, 12, 12, 4)),
            r"operator 0 \(CONV_2D\): part of the input .* of 24 lines finds no place in the 20",
        ),
        (
            dataclasses.replace(SMALL, tables=0),
            one_operator("TANH", (1, 8), (1, 8)),
            r"operator 0 \(TANH\): the machine 'small' has no tables",
        ),
        (
            SMALL,
            pool((1, 1, 4097, 1), 1, "MAX_POOL_2D"),
            r"operator 0 \(MAX_POOL_2D\): .* finds no place in the 4096 lines",
        ),
        (
            preset("base"),
            one_operator(
                "MAX_POOL_2D",
                (1, 1, 400, 1),
                (1, 1, 101, 1),
                padding=1,
                strideH=1,
                strideW=1,
                filterHeight=1,
                filterWidth=300,
            ),
            r"operator 0 \(MAX_POOL_2D\): columns of its window: 300, the machine takes 1 to 255",
        ),
        thorough(
            preset("8x5"),
            with_constants("MEAN", (1, 255, 255, 2), (1, 255, 255, 1), [3], keepDims=True),
            r"too many pieces for the 8192 lines .*: operator 0 \(MEAN\): .* of \d+ lines finds no "
            r"place .*; the preset 'base' has 16384 lines",
        ),
        (
            preset("base"),
            pool((1, 2, 4097, 1), 2, "MAX_POOL_2D"),
            r"operator 0 \(MAX_POOL_2D\): .* finds no place in the 16384 lines",
        ),
    ],
)
def test_machine_too_small(config: Config, model: bytes, message: str) -> None:
    network = network_of(model)
    with pytest.raises(CompileError, match=message) as error:
        compile_network(config, network, 1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            lambda: weighted("CONV_2D", (1, 4, 4, 6), (4, 3, 3, 4), (1, 4, 4, 4)),
            "weights of 4 channels do not fit 6",
        ),
        (
            lambda: weighted("CONV_2D", (1, 4, 4, 3), (4, 3, 3, 3), (1, 4, 4, 5)),
            "its result should have the shape",
        ),
        (
            lambda: weighted("CONV_2D", (1, 4, 4, 3), (4, 5, 3, 3), (1, 4, 4, 4), padding=1),
            "its window does not fit",
        ),
        (
            lambda: weighted("CONV_2D", (1, 4, 4, 3), (4, 3, 3, 3), (1, 4, 4, 4), "int16"),
            "its weights is int16",
        ),
        (
            lambda: weighted("CONV_2D", (1, 4, 4, 3), (4, 3, 3, 3), (1, 4, 4, 4), strideH=0),
            "must be at least 1",
        ),
        (
            lambda: weighted(
                "CONV_2D", (1, 4, 4, 3), (4, 3, 3, 3), (1, 4, 4, 4), fusedActivationFunction=4
            ),
            "TANH is not supported",
        ),
        (lambda: one_operator("FLOOR", (1, 8), (1, 8)), "this kind of operator"),
        (lambda: one_operator("RELU", (1, 8), (1, 9)), "it makes shape"),
        (lambda: one_operator("UNPACK", (1, 8), (1,), axis=5), "has no axis 5"),
        (
            lambda: one_operator("CONCATENATION", (1, 2, 3, 4), (1, 2, 3, 5), axis=3),
            "not as many elements|does not fit",
        ),
        (lambda: one_operator("ADD", (1, 8), (1, 8)), "numbers of its inputs"),
        (
            lambda: with_constants(
                "SPACE_TO_BATCH_ND", (1, 4, 4, 3), (4, 2, 2, 3), [2, 2], [0, 0, 0, 0]
            ),
            "its pairs of numbers have shape",
        ),
        (
            lambda: with_constants("BATCH_TO_SPACE_ND", (4, 2, 2, 3), (1, 4, 4, 3), [2, 2], [0, 0]),
            "its pairs of numbers have shape",
        ),
    ],
)
def test_unsupported_operators(model: Callable[[], bytes], message: str) -> None:
    with pytest.raises(ModelError, match=rf"operator 0 \(.*({message})") as error:
        network_of(model())
    assert "\n" not in str(error.value)


def test_all_that_is_not_supported() -> None:
    """Check that one error names all unsupported operators.

    A supported operator that takes the result of an unsupported operator is not named.
    """
    writer = ModelWriter()
    t = [writer.tensor((1, 8), "int8", 0.1) for _ in range(6)]
    other = writer.tensor((1, 9), "int8", 0.1)
    writer.operator("ROUND", [t[0]], [t[1]])
    writer.operator("RELU", [t[1]], [t[2]])
    writer.operator("CEIL", [t[2]], [t[3]])
    writer.operator("ROUND", [t[3]], [t[4]])
    writer.operator("RELU", [t[0]], [other])
    with pytest.raises(ModelError) as error:
        network_of(writer.content([t[0]], [t[4], other]))
    assert str(error.value) == (
        "operator 0 (ROUND), operator 2 (CEIL), operator 3 (ROUND): this kind of operator is not "
        "supported; operator 4 (RELU): it makes shape (1, 9) of shape (1, 8)"
    )


def flow(
    operators: list[tuple[int, int]], inputs: list[int], outputs: list[int], kind: str = "RELU"
) -> bytes:
    """Return a model with an operator for each (source, result) pair of tensors in `operators`.

    Of the tensors 0 to 4, only tensor 4 is a constant.
    """
    writer = ModelWriter()
    for _ in range(4):
        writer.tensor((1, 8), "int8", 0.1)
    writer.tensor((1, 8), "int8", 0.1, data=np.ones((1, 8), np.int8))
    for source, target in operators:
        writer.operator(kind, [source], [target])
    return writer.content(inputs, outputs)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            flow([(0, 1), (0, 1)], [0], [1]),
            r"operator 1 \(RELU\): its result 't1' is there already",
        ),
        (flow([(0, 1)], [0, 1], [1]), r"operator 0 \(RELU\): its result 't1' is there already"),
        (flow([(0, 4)], [0], [4]), r"operator 0 \(RELU\): its result 't4' is there already"),
        (flow([(0, 1), (1, 2)], [0, 0], [2]), "an input of the model .* is there twice"),
        (flow([(4, 1)], [4], [1]), "an input of the model is a constant"),
        (flow([(1, 2), (0, 1)], [0], [2]), r"operator 0 .* takes tensor 't1' before"),
        (flow([(0, 1), (2, 2)], [0], [2]), r"operator 1 .* takes tensor 't2' before"),
        (flow([(0, 1)], [0], [2]), "an output is not what an operator calculates"),
        (flow([(0, 1)], [], [1]), "the model has no inputs"),
    ],
)
def test_order_of_tensors(model: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        network_of(model)


def product(shape: tuple[int, ...], result: tuple[int, ...], *, keep: bool) -> bytes:
    """Return a model of a FULLY_CONNECTED with 4 inputs and 3 results."""
    writer = ModelWriter()
    source, target = writer.tensor(shape, "int8", 0.1), writer.tensor(result, "int8", 0.1)
    weights = writer.tensor((3, 4), "int8", 0.1, data=np.ones((3, 4), np.int8))
    writer.operator("FULLY_CONNECTED", [source, weights], [target], keepNumDims=keep)
    return writer.content([source], [target])


def total(a: tuple[int, ...], b: tuple[int, ...], result: tuple[int, ...]) -> bytes:
    """Return a model of an ADD of tensors with given shapes."""
    writer = ModelWriter()
    tensors = [writer.tensor(shape, "int8", 0.1) for shape in (a, b, result)]
    writer.operator("ADD", tensors[:2], tensors[2:])
    return writer.content(tensors[:2], tensors[2:])


@pytest.mark.parametrize(
    "model",
    [
        with_constants("MEAN", (1, 7, 7, 2), (1, 7, 7, 1), [3]),
        with_constants("MEAN", (1, 7, 7, 2), (1, 7, 7), [3], keepDims=True),
        with_constants("RESHAPE", (1, 12), (1, 4, 3), [1, 3, 4]),
        with_constants("RESHAPE", (1, 12), (1, 4, 3), [-1, -4, -3]),
        with_constants("EXPAND_DIMS", (2, 12), (2, 12, 1), [1]),
        one_operator("SQUEEZE", (1, 1, 12), (1, 12), squeezeDims=[0, 1]),
        one_operator("SPACE_TO_DEPTH", (1, 2, 2, 3), (1, 1, 1, 12), blockSize=0),
        one_operator("DEPTH_TO_SPACE", (1, 1, 1, 12), (1, 2, 2, 3), blockSize=0),
        product((1, 2, 4), (1, 2, 3), keep=False),
        product((1, 2, 4), (2, 3), keep=True),
        total((1, 3, 4), (1, 1, 4), (3, 4)),
        total((1, 1, 4), (1, 1, 4), (1, 3, 4)),
    ],
)
def test_shapes_that_operators_do_not_make(model: bytes) -> None:
    """Check that an operator is refused if the file gives its result a shape that it cannot make.

    The interpreter calculates shapes itself, so results would have another shape than in the file.
    """
    with pytest.raises(ModelError, match=r"operator 0 \(.*shape"):
        network_of(model)


def test_sums_that_overflow() -> None:
    """Check that a SUB with a very large scale is refused: the interpreter's sum would overflow."""
    writer = ModelWriter()
    shape = (1, 8)
    a, b = writer.tensor(shape, "int8", 0.01), writer.tensor(shape, "int8", 1e6)
    target = writer.tensor(shape, "int8", 0.03)
    writer.operator("SUB", [a, b], [target])
    with pytest.raises(ModelError, match=r"its effective scale .* is too large"):
        network_of(writer.content([a, b], [target]))


def test_slice_with_offsets_outside() -> None:
    """Check that a STRIDED_SLICE with an end outside of the tensor is refused if ends are offsets.

    The interpreter does not move such an end to the edge of the tensor.
    """
    model = with_constants("STRIDED_SLICE", (1, 4), (1, 2), [0, 2], [1, 3], [1, 1], offset=True)
    with pytest.raises(ModelError, match="its bounds do not fit"):
        network_of(model)


def test_slice_backwards_along_an_axis_that_goes() -> None:
    """Check that a STRIDED_SLICE with the lowest int32 as the stride of a removed axis is refused.

    With such a stride, the interpreter reads nothing at all along this axis.
    """
    bounds = [0, -2], [1, 3], [1, -(1 << 31)]
    model = with_constants("STRIDED_SLICE", (1, 4), (1,), *bounds, shrinkAxisMask=2)
    with pytest.raises(ModelError, match="a stride of -2147483648 along an axis that goes"):
        network_of(model)


def test_padding_without_quantisation() -> None:
    """Check that a PAD of a tensor without a scale is refused.

    The interpreter pads such a tensor with 0, not with the zero point.
    """
    writer = ModelWriter()
    source, target = writer.tensor((1, 4)), writer.tensor((1, 6), "int8", 0.1, 5)
    padding = writer.tensor((2, 2), "int32", data=np.array([[0, 0], [1, 1]], np.int32))
    writer.operator("PAD", [source, padding], [target])
    with pytest.raises(ModelError, match="tensor 't0' needs one scale"):
        network_of(writer.content([source], [target]))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (one_operator("RELU", (2**31 - 1, 2**31 - 1), (1, 1)), "supported are 1 to"),
        (one_operator("RELU", (1 << 30, 1 << 30, 1 << 30), (1, 1)), "supported are 1 to"),
        (one_operator("RELU", (1, 0), (1, 0)), "which is empty"),
    ],
)
def test_sizes(model: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        network_of(model)


@pytest.mark.parametrize("kind", ["RELU", "LOGISTIC", "SOFTMAX"])
def test_long_chain(kind: str) -> None:
    """Check that a chain of 1,500 operators compiles: the stack must not grow with its length."""
    writer = ModelWriter()
    first = writer.tensor((1, 8), "int8", 1 / 256, -128)
    last = first
    for _ in range(1500):
        result = writer.tensor((1, 8), "int8", 1 / 256, -128)
        writer.operator(kind, [last], [result], **({"beta": 1.0} if kind == "SOFTMAX" else {}))
        last = result
    network = network_of(writer.content([first], [last]))
    assert compile_network(SMALL, network, 1).stages
