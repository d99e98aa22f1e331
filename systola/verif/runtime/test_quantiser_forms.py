# SPDX-License-Identifier: Apache-2.0
"""Tests of quantising to int16, of masks before a softmax, and of a network's first operator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from systola import quantize
from systola.compiler.cut.placement import Place
from systola.compiler.errors import ModelError
from systola.runtime import compile as compile_model
from systola.runtime.quantiser.masks import CLIPPED, Step, masks
from systola.verif.compiler import float_tflite
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.onnx_writer import OnnxWriter
from systola.verif.compiler.onnx_writer import interpret as interpret_onnx
from systola.verif.kit.seeds import random_seed

MASK = np.array([0, 0, -1e4, 0, -1e9, 0, 0, 0], np.float32)


def test_to_int16() -> None:
    """Check a network quantised to int16 activations and int8 weights.

    Its layers run on the machine, the results equal LiteRT's bytes, and the noise is less than with
    int8 activations.
    """
    rng = np.random.default_rng(random_seed())
    content = float_tflite.classifier(rng)
    x = rng.standard_normal((16, 8, 8, 1)).astype(np.float32)
    narrow, wide = (quantize(content, x, to=form) for form in ("int8", "16x8"))
    assert wide.comparison.signal_to_noise > narrow.comparison.signal_to_noise
    model = compile_model(wide.content, preset="base")
    places = {each.kind: each.place for each in model.placement}
    assert places["CONV_2D"] is places["FULLY_CONNECTED"] is Place.MACHINE
    expected = interpret(wide.content, x[:, np.newaxis])
    y = np.asarray(model.run(x, backend="iss").outputs[0])
    assert np.array_equal(y.reshape(expected.shape), expected)


def masked_tflite() -> bytes:
    """Return a .tflite model: a softmax of eight scores, after an ADD of MASK that removes two."""
    writer = ModelWriter()
    x, y, z = (writer.tensor((1, 8), "float32") for _ in range(3))
    mask = writer.tensor((1, 8), "float32", data=MASK.reshape(1, 8))
    writer.operator("ADD", [x, mask], [y])
    writer.operator("SOFTMAX", [y], [z], beta=1.0)
    return writer.content([x], [z])


def masked_onnx() -> bytes:
    """Return an ONNX model: a softmax of eight scores, after an Add of MASK that removes two."""
    writer = OnnxWriter()
    x = writer.input((1, 8), "float32")
    y = writer.node("Add", x, writer.constant(MASK.reshape(1, 8)))
    z = writer.node("Softmax", y, axis=1)
    return writer.content((z, "float32", (1, 8)))


@pytest.mark.parametrize("form", ["tflite", "onnx"])
def test_masks_leave_codes_for_the_scores(form: str) -> None:
    rng = np.random.default_rng(random_seed())
    x = rng.uniform(-3, 3, (20, 1, 8)).astype(np.float32)
    made = quantize(masked_tflite() if form == "tflite" else masked_onnx(), x)
    exact = np.exp(x + MASK)
    exact /= exact.sum(axis=-1, keepdims=True)
    found = np.asarray(compile_model(made.content, preset="base").run(x, backend="iss").outputs[0])
    # `off` is the largest error of a score: half a step of the codes of x (a step is 6 / 255), and
    # half a step of the codes of the sum (36 / 255). The softmax changes most if a result is 1 / 2,
    # its score is too large and all other scores are too small. The change is then less than
    # tanh(off / 2). Half a step of the result (1 / 256) and the error of a table's entry are added.
    off = (6 / 255 + 36 / 255) / 2
    assert np.abs(found.reshape(exact.shape) - exact).max() < np.tanh(off / 2) + 1 / 256
    assert not found.reshape(-1, 8)[:, MASK < 0].any()


@pytest.mark.parametrize("form", ["tflite", "onnx"])
@pytest.mark.parametrize("count", [1, 15, 16, 17, 32])
def test_all_samples_calibrate(form: str, count: int) -> None:
    """Check that the quantiser takes the range of the scores from all samples.

    Only the first or the last sample has large scores.
    """
    for place in (0, count - 1):
        x = np.full((count, 1, 8), 0.01, np.float32)
        x[place] = [-3, 3, 0, 2, 1, 0, -1, 0]
        made = quantize(masked_tflite() if form == "tflite" else masked_onnx(), x)
        model = compile_model(made.content, preset="base")
        found = np.asarray(model.run(x[place][np.newaxis], backend="iss").outputs[0]).reshape(-1)
        exact = np.exp(x[place, 0] + MASK)
        assert np.abs(found - exact / exact.sum()).max() < 0.05


def test_other_constants_stay() -> None:
    """Check that `masks` clips only constants that are added to the input of a softmax.

    A constant that is also used elsewhere is not clipped.
    """
    steps = [
        Step("ADD", ["x", "mask"], ["a"]),
        Step("RESHAPE", ["a", "shape"], ["b"]),
        Step("SOFTMAX", ["b"], ["c"]),
        Step("ADD", ["c", "offset"], ["d"]),
        Step("MUL", ["x", "factor"], ["e"]),
        Step("SELECT_V2", ["condition", "e", "both"], ["f"]),
        Step("SOFTMAX", ["f"], ["g"]),
        Step("TANH", ["f"], ["h"]),
    ]
    names = ("mask", "offset", "factor", "both", "unused")
    found = masks(steps, names, lambda _: MASK)
    assert list(found) == ["mask"]
    assert np.array_equal(found["mask"], np.where(MASK < 0, np.float32(CLIPPED), 0))
    assert not masks(steps, names, lambda _: MASK / 1e7)


def test_a_pooling_that_comes_first() -> None:
    """Check that a pooling at the start of a network is quantised.

    By default, ONNX Runtime's quantiser leaves such a pooling in float32.
    """
    writer = OnnxWriter()
    x = writer.input((1, 3, 6, 6), "float32")
    y = writer.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    given = np.random.default_rng(random_seed()).uniform(-1, 1, (9, 1, 3, 6, 6)).astype(np.float32)
    made = quantize(writer.content((y, "float32", (1, 3, 3, 3))), given)
    model = compile_model(made.content, preset="base")
    assert {each.kind: each.place for each in model.placement}["AveragePool"] is Place.MACHINE
    found = np.asarray(model.run(given, backend="iss").outputs[0])
    # One step between codes is at most 2 / 255. A result between two codes may get either code.
    assert np.abs(found - interpret_onnx(made.content, given)).max() < 2.1 / 255


@pytest.mark.parametrize("kind", ["NonZero", "Cast"])
def test_results_that_cannot_be_compared(kind: str) -> None:
    """Check that networks are refused if their results are text, or have a shape set by values."""
    writer = OnnxWriter()
    y = writer.node("Relu", writer.input((1, 4), "float32"))
    if kind == "Cast":
        output = (writer.node(kind, y, to=onnx.TensorProto.STRING), "object", (1, 4))
        says = "elements of type object"
    else:
        output = (writer.node(kind, y), "int64", (2, "n"))
        says = r"follows from the values: it is \(2, 1\) and \(2, 2\)"
    x = np.array([[[0, 0, 0, 1]], [[1, 0, 0, 1]]], np.float32)
    with pytest.raises(ModelError, match=says):
        quantize(writer.content(output), x)
