# SPDX-License-Identifier: Apache-2.0
"""Tests that a damaged .tflite file gives one clear error, or compiles."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from systola.arch.config import preset
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.network import build_network, compile_network
from systola.compiler.tflite.reader import read_tflite
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.stored_networks import CONVOLUTIONAL, RECURRENT
from systola.verif.compiler.test_networks import MODELS, model_file, network_of
from systola.verif.compiler.tflite_mutations import packed
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

NAMES = (*MODELS, *CONVOLUTIONAL, *RECURRENT)
SMALL = "mlp_odd_relu6_tanh_sigmoid.tflite"


def outcome(content: bytes) -> str:
    """Compile a file; return 'network' if it compiles, or else the error's message of one line."""
    try:
        compile_network(preset("small"), build_network(read_tflite(content)), 1)
    except (ModelError, CompileError) as error:
        message = str(error)
        assert message
        assert "\n" not in message
        return message
    return "network"


@pytest.mark.parametrize("name", NAMES)
def test_whole_files(name: str) -> None:
    assert outcome(model_file(f"{name}.tflite")) == "network"


@pytest.mark.parametrize("kind", ["MUL", "GREATER"])
def test_the_newer_code_of_an_operator(kind: str) -> None:
    """Check that an operator's kind is the larger of its two codes, in an old and a new field."""
    writer = ModelWriter()
    tensors = [writer.tensor((1, 8), "int8", 0.1) for _ in range(3)]
    writer.operator("ADD", tensors[:2], tensors[2:])
    model = schema.ModelT.InitFromPackedBuf(writer.content(tensors[:2], tensors[2:]))
    model.operatorCodes[0].builtinCode = getattr(schema.BuiltinOperator, kind)
    assert read_tflite(packed(model)).operators[0].kind == kind


def test_options_of_another_kind() -> None:
    """Check that an operator's options are ignored if they belong to another kind of operator."""
    writer = ModelWriter()
    tensors = [writer.tensor((1, 8), "int8", 0.1) for _ in range(3)]
    writer.operator("ADD", tensors[:2], tensors[2:], fusedActivationFunction=1)
    model = schema.ModelT.InitFromPackedBuf(writer.content(tensors[:2], tensors[2:]))
    assert read_tflite(packed(model)).operators[0].options
    model.subgraphs[0].operators[0].builtinOptionsType = schema.BuiltinOptions.SubOptions
    assert not read_tflite(packed(model)).operators[0].options


def test_every_truncation_is_found() -> None:
    content = model_file(SMALL)
    for length in (*range(0, len(content), 13), *range(len(content) - 100, len(content))):
        assert outcome(content[:length]) != "network", length


def weights_behind(rng: np.random.Generator) -> bytes:
    """Return a file with one layer, which has weights and bias after the flatbuffer, not inside."""
    writer = ModelWriter()
    source, result = writer.tensor((1, 9), "int8", 0.1), writer.tensor((1, 5), "int8", 0.2)
    weights, bias = rng.integers(-127, 128, (5, 9), np.int8), rng.integers(-900, 900, 5, np.int32)
    writer.fully_connected(source, result, weights, bias, 0.01)
    return writer.content_with_weights_behind([source], [result])


def test_weights_behind_the_flatbuffer() -> None:
    rng = np.random.default_rng(random_seed())
    content = weights_behind(rng)
    x = rng.integers(-128, 128, (6, 1, 9), np.int8)
    run = run_network(GoldenBackend(preset("small")), network_of(content), x)
    assert np.array_equal(run.y, interpret(content, x))
    for length in range(len(content) - 20, len(content)):
        assert outcome(content[:length]) == "the model is damaged or cut short"


def test_what_is_no_model() -> None:
    for content in (b"", b"TFL3", b"PK\x03\x04" * 10, bytes(100)):
        assert outcome(content) == "not a TensorFlow Lite model"
    assert outcome(b"\0\0\0\0TFL3") != "network"
    assert "damaged" in outcome(b"\xff\xff\xff\xffTFL3" + bytes(64))
