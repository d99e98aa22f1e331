# SPDX-License-Identifier: Apache-2.0
"""Tests that damaged, hostile and unsupported ONNX models are refused in one line."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from systola.arch.config import preset
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.network import compile_network, make_network
from systola.compiler.onnx.translate import translate_onnx
from systola.compiler.read_model import read_model
from systola.compiler.semantics import Semantics
from systola.runtime.compile_content import compile_content
from systola.verif.compiler.onnx_writer import OnnxWriter
from systola.verif.compiler.random_onnx import KINDS, RandomOnnx
from systola.verif.kit.seeds import random_seed


def outcome(content: bytes) -> str:
    """Compile a model; return the text of its error, or an empty text if the model has none."""
    try:
        network = make_network(translate_onnx(content))
        compile_network(preset("small"), network, 1)
    except (ModelError, CompileError) as error:
        found = str(error)
    else:
        return ""
    assert found.isprintable()
    return found


def one_node(kind: str, *, results: int = 1, **attributes: object) -> bytes:
    """Return a model of one node between a DequantizeLinear and a QuantizeLinear."""
    writer = OnnxWriter()
    x = writer.dequantise(writer.input((1, 4, 6, 6)), 0.1, 0, "int8")
    y = writer.node(kind, x, results=results, **attributes)
    y = writer.quantise(y if results == 1 else y[0], 0.1, 0, "int8")
    return writer.content((y, "int8", ("a", "b", "c", "d")))


def convolution(change: Callable[[onnx.GraphProto], None] | None = None) -> bytes:
    """Return a model of a convolution; `change` may alter its graph."""
    writer = OnnxWriter()
    x = writer.dequantise(writer.input((1, 2, 6, 6)), 0.1, 0, "int8")
    weights = writer.constant(np.ones((3, 2, 3, 3), np.int8))
    w = writer.dequantise(weights, np.full(3, 0.1), 0, "int8", axis=0)
    y = writer.quantise(writer.node("Conv", x, w), 0.1, 0, "int8")
    model = onnx.load_from_string(writer.content((y, "int8", ("a", "b", "c", "d"))))
    if change:
        change(model.graph)
    return model.SerializeToString()


def test_whole_model() -> None:
    assert outcome(convolution()) == ""
    assert outcome(one_node("Tanh")) == ""


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (one_node("Det"), "node 1 (Det): this kind of operator is not supported"),
        (one_node("LSTM", results=1), "the model is not valid"),
        (one_node("MaxPool", kernel_shape=[9, 9]), "node 1 (MaxPool): its window does not fit"),
        (one_node("MaxPool", kernel_shape=[2]), "do not fit one another"),
        (one_node("AveragePool", kernel_shape=[2, 2], strides=[0, 1]), "must be at least 1"),
        (one_node("Transpose", perm=[0, 0, 1, 2]), "its permutation (0, 0, 1, 2) does not fit"),
        (one_node("ReduceMean", axes=[5]), "node 1 (ReduceMean): it has no axis 5"),
        (one_node("Flatten", axis=9), "node 1 (Flatten): it has no axis 9"),
    ],
)
def test_operators(content: bytes, reason: str) -> None:
    assert reason in outcome(content)


def test_lstm_is_refused() -> None:
    writer = OnnxWriter()
    x = writer.dequantise(writer.input((4, 1, 3)), 0.1, 0, "int8")
    weights = [writer.constant(np.ones((1, 8, size), np.float32)) for size in (3, 2)]
    y = writer.node("LSTM", x, *weights, hidden_size=2)
    y = writer.quantise(y, 0.1, 0, "int8")
    assert "node 1 (LSTM): this kind of operator is not supported" in outcome(
        writer.content((y, "int8", ("a", "b", "c", "d")))
    )


def test_all_that_is_not_supported() -> None:
    """Check that one error names all unsupported nodes.

    A supported node that takes the result of an unsupported node is not named.
    """
    writer = OnnxWriter()
    x = writer.dequantise(writer.input((1, 4, 6, 6)), 0.1, 0, "int8")
    y = writer.node("IsNaN", x)
    y = writer.node("Relu", y)
    y = writer.node("IsInf", y)
    z = writer.node("MaxPool", x, kernel_shape=[9, 9])
    y = writer.quantise(writer.node("Add", y, z), 0.1, 0, "int8")
    found = outcome(writer.content((y, "int8", ("a", "b", "c", "d"))))
    assert found.startswith(
        "node 1 (IsNaN), node 3 (IsInf): this kind of operator is not supported; "
    )
    assert "node 4 (MaxPool): its window does not fit" in found
    assert "Add" not in found and "Relu" not in found


def test_many_that_are_not_supported() -> None:
    """Check that an error names only the first eight of many unsupported nodes."""
    writer = OnnxWriter()
    y = writer.dequantise(writer.input((1, 4, 6, 6)), 0.1, 0, "int8")
    for _ in range(11):
        y = writer.node("IsNaN", y)
    found = outcome(
        writer.content((writer.quantise(y, 0.1, 0, "int8"), "int8", ("a", "b", "c", "d")))
    )
    named = ", ".join(f"node {number} (IsNaN)" for number in range(1, 9))
    assert found.startswith(f"{named} and 3 more: this kind of operator is not supported")


def softmax(channels: int, out_scale: float) -> bytes:
    """Return a model of a Softmax along an axis of `channels` elements."""
    writer = OnnxWriter()
    x = writer.dequantise(writer.input((1, channels, 2), "uint8"), 0.1, 128, "uint8")
    y = writer.quantise(writer.node("Softmax", x, axis=1), out_scale, 0, "uint8")
    return writer.content((y, "uint8", (1, channels, 2)))


def test_softmax_beyond_float32() -> None:
    """Check that a Softmax is refused if ONNX Runtime has two ways to execute it that disagree.

    For example, one of the ways gives 0 in place of 1.0.
    """
    reason = "a Softmax of rows of length 1, to codes of the scale 0.00392, has no defined result"
    assert reason in outcome(softmax(1, 1 / 255))
    assert outcome(softmax(1, 1 / 140)) == ""
    assert outcome(softmax(2, 1 / 255)) == ""


def _external(graph: onnx.GraphProto) -> None:
    tensor = graph.initializer[2]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "weights.bin"


def _short(graph: onnx.GraphProto) -> None:
    graph.initializer[2].raw_data = b"1"


def _huge(graph: onnx.GraphProto) -> None:
    graph.initializer[2].ClearField("raw_data")
    graph.initializer[2].dims[:] = [1 << 30, 1 << 30, 3, 3]


def _huge_input(graph: onnx.GraphProto) -> None:
    for size in graph.input[0].type.tensor_type.shape.dim[2:]:
        size.dim_value = 1 << 30


def _many_samples(graph: onnx.GraphProto) -> None:
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1 << 20


def _unknown_size(graph: onnx.GraphProto) -> None:
    graph.input[0].type.tensor_type.shape.dim[3].dim_param = "width"


def _not_a_number(graph: onnx.GraphProto) -> None:
    scale = onnx.numpy_helper.from_array(np.float32(np.nan), graph.initializer[0].name)
    graph.initializer[0].CopyFrom(scale)


def _domain(graph: onnx.GraphProto) -> None:
    graph.node[2].domain = "elsewhere"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_external, "lies outside the file"),
        (_short, "the model is not valid"),
        (_huge, "the model is not valid"),
        (_huge_input, "is not supported"),
        (_many_samples, "a result of shape (1048576, 2, 6, 6) is not supported"),
        (_unknown_size, "the size of dimension 3 of the input"),
        (_not_a_number, "it has a scale that is not between"),
        (_domain, "the model is not valid"),
    ],
)
def test_models(change: Callable[[onnx.GraphProto], None], reason: str) -> None:
    found = outcome(convolution(change))
    assert reason in found, found


@pytest.mark.parametrize("content", [b"", b"\x08", b"\x08\x09", b"TFL3TFL3", b"\xff" * 99])
def test_other_files(content: bytes) -> None:
    assert outcome(content)
    with pytest.raises(ModelError):
        read_model(content)


def test_semantics_of_the_format() -> None:
    assert read_model(convolution())[1] == Semantics.ONNX
    with pytest.raises(ModelError, match="an ONNX model has the semantics onnx"):
        read_model(convolution(), Semantics.LITERT_2)


def test_mutations() -> None:
    """Check that a model that is cut off or has wrong bytes gives a clear error, or compiles."""
    rng = np.random.default_rng(random_seed())
    models = [RandomOnnx(rng, KINDS, 3).content for _ in range(12)]
    refused = 0
    for _ in range(600):
        content = bytearray(models[int(rng.integers(len(models)))])
        match int(rng.integers(3)):
            case 0:
                del content[int(rng.integers(len(content))) :]
            case 1:
                for _ in range(int(rng.integers(1, 5))):
                    content[int(rng.integers(len(content)))] = int(rng.integers(256))
            case _:
                first, second = (int(place) for place in rng.integers(0, len(content), 2))
                content[first : first + 9] = content[second : second + 9]
        refused += bool(outcome(bytes(content)))
    assert refused > 100


def test_window_that_does_not_fit() -> None:
    """Check that a convolution with a window larger than its map is refused.

    ONNX Runtime and ONNX's shape inference give the convolution's result a size below 0. No
    operator may take such a result.
    """
    writer = OnnxWriter()
    x = writer.dequantise(writer.input((1, 3, 1)), 0.1, 0, "int8")
    weights = writer.dequantise(writer.constant(np.ones((5, 3, 3), np.int8)), 0.1, 0, "int8")
    made = writer.quantise(writer.node("Conv", x, weights), 0.1, 0, "int8")
    turned = writer.node("Transpose", writer.dequantise(made, 0.1, 0, "int8"), perm=[0, 2, 1])
    content = writer.content((turned, "float32", ("n", "m", 5)))
    with pytest.raises(ModelError, match=r"does not fit a map of \(1,\)"):
        compile_content(preset("small"), content, None, 1)
