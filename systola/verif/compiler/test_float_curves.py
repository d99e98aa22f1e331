# SPDX-License-Identifier: Apache-2.0
"""Tests of float32 functions that become tables of the machine, against LiteRT.

The functions lie between DEQUANTIZE and QUANTIZE.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.errors import ModelError
from systola.compiler.operations import Operations
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

CODES = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 256)
CHAINS = {
    "SIN": ["SIN"],
    "COS": ["COS"],
    "POW": ["POW 2.5"],
    "POW of the number": ["1.05 POW"],
    "chain": ["ABS", "SQRT", "ADD 0.7 RELU6", "2.5 DIV", "TANH"],
    "roots": ["SQUARE", "ADD 1", "RSQRT", "LOG", "NEG"],
    "bounds": ["EXP", "FLOOR", "MINIMUM 3", "SUB 1.5 RELU", "MAXIMUM 0.5", "RELU_0_TO_1"],
    "differences": ["SQUARED_DIFFERENCE 0.4", "MUL 0.6", "RELU_N1_TO_1", "SIGN"],
    "activations": ["MUL -3", "RELU", "RELU6"],
}
"""Chains of float32 operators; a text is an operator with its constant and its fused activation.

The constant stands before or after the operator, as in "2.5 DIV" or "ADD 0.7".
"""


def model(names: list[str], scales: tuple[float, float], zeros: tuple[int, int]) -> bytes:
    """Return a model of a chain of float32 operators, with int8 codes as input and output."""
    writer = ModelWriter()
    source, result = (
        writer.tensor((1, 256), "int8", scale, zero)
        for scale, zero in zip(scales, zeros, strict=True)
    )
    numbers = writer.tensor((1, 256), "float32")
    writer.operator("DEQUANTIZE", [source], [numbers])
    for name in names:
        words = name.split()
        place = next(n for n, word in enumerate(words) if word[0].isupper())
        inputs = [numbers]
        for n, word in enumerate(words):
            if word[-1].isdigit() and not word[0].isupper():
                constant = writer.tensor((1,), "float32", data=np.array([word], np.float32))
                inputs.insert(0 if n < place else 1, constant)
        options = {}
        if words[-1] != words[place]:
            options = {"fusedActivationFunction": {"RELU": 1, "RELU6": 3}.get(words[-1], 0)}
        numbers = writer.tensor((1, 256), "float32")
        writer.operator(words[place], inputs, [numbers], **options)
    writer.operator("QUANTIZE", [numbers], [result])
    return writer.content([source], [result])


@pytest.mark.parametrize(
    "name",
    ["SIN", *(pytest.param(name, marks=pytest.mark.thorough) for name in list(CHAINS)[1:])],
)
def test_all_codes(name: str) -> None:
    """Check that a chain of float32 operators becomes a table, which is exact for all codes."""
    rng = np.random.default_rng(random_seed())
    for _ in range(10):
        scales = 10 ** rng.uniform(-2.5, -0.5), 10 ** rng.uniform(-3, -1)
        # POW has no result for numbers below 0, so its inputs have the lowest zero point.
        least = -128 if name == "POW" else int(rng.integers(-128, 128))
        zeros = least, int(rng.integers(-128, 128))
        content = model(CHAINS[name], scales, zeros)
        network = network_of(content)
        assert all(isinstance(stage, Operations) for stage in network.stages)
        run = run_network(GoldenBackend(preset("small")), network, CODES)
        assert np.array_equal(run.y, interpret(content, CODES)), (scales, zeros)


@pytest.mark.parametrize("zero", [-128, 5])
@pytest.mark.parametrize("before", [0, 1])
def test_padding_between(zero: int, before: int) -> None:
    """Check padding of float32 numbers before a function and after it.

    The codes of the padding's zeros need not be among the codes of the input.
    """
    writer = ModelWriter()
    source, result = (
        writer.tensor(shape, "int8", 0.05, zero) for shape in ((1, 1, 256), (1, 2, 257))
    )
    shapes = [(1, 1, 256), (1, 1, 256), (1, 2, 257)]
    shapes[1] = shapes[2 * before]
    numbers = [writer.tensor(shape, "float32") for shape in shapes]
    amounts = writer.tensor((3, 2), "int32", data=np.array([[0, 0], [1, 0], [0, 1]], np.int32))
    writer.operator("DEQUANTIZE", [source], numbers[:1])
    for kind, tensors in zip(
        ("PAD", "COS") if before else ("COS", "PAD"), pairwise(numbers), strict=True
    ):
        inputs = [tensors[0], amounts] if kind == "PAD" else [tensors[0]]
        writer.operator(kind, inputs, [tensors[1]])
    writer.operator("QUANTIZE", numbers[2:], [result])
    content = writer.content([source], [result])
    x = CODES[np.newaxis]
    run = run_network(GoldenBackend(preset("small")), network_of(content), x)
    assert np.array_equal(run.y, interpret(content, x))


def test_float_result() -> None:
    """Check that a table on the host makes float32 numbers that are an output of the network."""
    writer = ModelWriter()
    source = writer.tensor((1, 256), "int8", 0.05, 3)
    numbers, result = (writer.tensor((1, 256), "float32") for _ in range(2))
    writer.operator("DEQUANTIZE", [source], [numbers])
    writer.operator("SIN", [numbers], [result])
    content = writer.content([source], [result])
    run = run_network(GoldenBackend(preset("small")), network_of(content), CODES)
    assert run.y.tobytes() == interpret(content, CODES).tobytes()


def test_refusals() -> None:
    """Check that functions of float32 inputs or of two calculated tensors are refused.

    Functions that are infinite or undefined for some codes are refused, too.
    """
    for kind, operands in (("SIN", 1), ("ADD", 2)):
        writer = ModelWriter()
        source, result = (writer.tensor((1, 4), "float32") for _ in range(2))
        writer.operator(kind, [source] * operands, [result])
        with pytest.raises(ModelError, match=r"its input is float32, supported is int8"):
            network_of(writer.content([source], [result]))
    for names in (["LOG"], ["EXP", "EXP"]):
        # Processors turn infinity, and results that are no numbers, into different int8 codes.
        with pytest.raises(ModelError, match=r"numbers that processors convert in different ways"):
            network_of(model(names, (1.0, 0.05), (0, 5)))
    writer = ModelWriter()
    source = writer.tensor((1, 4), "int8", 0.1)
    numbers, result = (writer.tensor((1, 4), "float32") for _ in range(2))
    writer.operator("DEQUANTIZE", [source], [numbers])
    writer.operator("POW", [numbers, numbers], [result])
    with pytest.raises(ModelError, match=r"one calculated tensor and one constant number"):
        network_of(writer.content([source], [result]))
    writer = ModelWriter()
    source, result = (writer.tensor((1, 4), "int8", 0.1) for _ in range(2))
    writer.operator("DIV", [source, source], [result])
    with pytest.raises(ModelError, match=r"this kind of operator is not supported on int8"):
        network_of(writer.content([source], [result]))
