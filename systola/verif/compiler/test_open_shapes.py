# SPDX-License-Identifier: Apache-2.0
"""Tests of .tflite files that have placeholders for sizes that the converter did not know."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from systola.arch.config import preset
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed


class OpenShapes:
    """A writer of a model in which the sizes of all results are placeholders.

    In the file each of these sizes is 1 in the tensor's shape, and -1 in its shape signature.
    """

    def __init__(self) -> None:
        self.writer = ModelWriter()
        self.input = self.writer.tensor((1, 2, 3), "int8", 0.1, 5)

    def result(self, rank: int, scale: float = 0.1) -> int:
        return self.writer.tensor((1,) * rank, "int8", scale, 5, signature=(-1,) * rank)

    def numbers(self, *values: int) -> int:
        return self.writer.tensor((len(values),), "int32", data=np.array(values, np.int32))

    def flat(self) -> int:
        """Add a RESHAPE of the input to a matrix with a shape that other operators calculate."""
        shape = self.writer.tensor((1,), "int32", signature=(-1,))
        self.writer.operator("SHAPE", [self.input], [shape], outType=2)
        first = self.writer.tensor((1,), "int32", signature=(-1,))
        bounds = [self.numbers(0), self.numbers(1), self.numbers(1)]
        self.writer.operator("STRIDED_SLICE", [shape, *bounds], [first])
        wanted = self.writer.tensor((1,), "int32", signature=(-1,))
        self.writer.operator("CONCATENATION", [first, self.numbers(6)], [wanted], axis=0)
        return self.add("RESHAPE", [self.input, wanted], 2)

    def add(self, kind: str, inputs: list[int], rank: int, scale: float = 0.1, **more: int) -> int:
        result = self.result(rank, scale)
        self.writer.operator(kind, inputs, [result], **more)
        return result


def product(model: OpenShapes) -> int:
    result, weights = model.result(2), np.arange(-12, 12, dtype=np.int8).reshape(4, 6)
    model.writer.fully_connected(model.flat(), result, weights, None, 0.05)
    return result


MODELS: dict[str, Callable[[OpenShapes], int]] = {
    "FULLY_CONNECTED": product,
    "RELU": lambda m: m.add("RELU", [m.flat()], 2, 0.2),
    "ADD": lambda m: m.add("ADD", [m.flat(), m.flat()], 2, 0.2),
    "MEAN": lambda m: m.add("MEAN", [m.flat(), m.numbers(1)], 2, keepDims=1),
    "TRANSPOSE": lambda m: m.add("TRANSPOSE", [m.flat(), m.numbers(1, 0)], 2),
    "CONCATENATION": lambda m: m.add("CONCATENATION", [m.flat(), m.flat()], 2, axis=1),
    "PACK": lambda m: m.add("PACK", [m.flat(), m.flat()], 3, axis=1, valuesCount=2),
    "EXPAND_DIMS": lambda m: m.add("EXPAND_DIMS", [m.flat(), m.numbers(1)], 3),
}


@pytest.mark.parametrize("kind", MODELS)
def test_placeholders(kind: str) -> None:
    model = OpenShapes()
    content = model.writer.content([model.input], [MODELS[kind](model)])
    x = np.random.default_rng(random_seed()).integers(-128, 128, (5, 1, 2, 3), np.int8)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x)
    expected = interpret(content, x)
    assert np.array_equal(run.y, expected)
