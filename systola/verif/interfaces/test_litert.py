# SPDX-License-Identifier: Apache-2.0
"""Tests of systola.litert.Interpreter: the same calls give the results of LiteRT's Interpreter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRt
from ai_edge_litert.interpreter import OpResolverType
from numpy.typing import NDArray

from systola.litert import Interpreter
from systola.verif.compiler import float_tflite, model_writer
from systola.verif.kit.seeds import random_seed
from systola.verif.runtime.test_partial import streaming

MODELS = Path(str(files("systola.models")))
CNN = "cnn_residual_dw_pool"
Either = Callable[..., Any]


def original(**arguments: Any) -> LiteRt:
    """Return LiteRT's Interpreter with its reference kernels, which the machine equals exactly."""
    return LiteRt(experimental_op_resolver_type=OpResolverType.BUILTIN_REF, **arguments)


def ours(**arguments: Any) -> Interpreter:
    """Return systola's Interpreter for a small machine."""
    return Interpreter(preset="8x8", **arguments)


def content(name: str) -> bytes:
    return (MODELS / f"{name}.tflite").read_bytes()


def data_for(details: dict[str, Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return random values for an input of a model."""
    rng = np.random.default_rng(random_seed())
    if details["dtype"] is np.float32:
        return rng.uniform(-1, 1, shape).astype(np.float32)
    limits = np.iinfo(details["dtype"])
    return rng.integers(max(limits.min, 0), min(limits.max, 99), shape).astype(details["dtype"])


def assert_same(one: Any, other: Any) -> None:
    """Check that two results are equal: their types, keys and arrays."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for each in zip(one, other, strict=True):
            assert_same(*each)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and np.array_equal(one, other)
    else:
        assert one == other


def script(make: Either, model: bytes, samples: int | None = None) -> list[Any]:
    """Run a model as a usual script does; return all details and arrays that the script sees."""
    interpreter = make(model_content=model, num_threads=2)
    seen = [interpreter.get_input_details(), interpreter.get_signature_list()]
    if samples:
        for each in interpreter.get_input_details():
            interpreter.resize_tensor_input(each["index"], [samples, *each["shape"][1:]])
    interpreter.allocate_tensors()
    seen += [interpreter.get_input_details(), interpreter.get_output_details()]
    for each in interpreter.get_input_details():
        interpreter.set_tensor(each["index"], data_for(each, tuple(each["shape"])))
        seen.append(interpreter.get_tensor(each["index"]))
    interpreter.invoke()
    return [*seen, *(interpreter.get_tensor(e["index"]) for e in interpreter.get_output_details())]


def two_inputs() -> bytes:
    """Return a model that adds two inputs of int8."""
    net = model_writer.ModelWriter()
    x, y = (net.tensor((1, 6), "int8", scale, zero) for scale, zero in ((0.1, 3), (0.2, -5)))
    z = net.tensor((1, 6), "int8", 0.25, 7)
    net.operator("ADD", [x, y], [z], fusedActivationFunction=float_tflite.NO_ACTIVATION)
    return net.content([x, y], [z])


@pytest.mark.parametrize(
    "name",
    [
        CNN,
        "mlp_floatio",
        "fc_pertensor_00",
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in ("conv1d_movements", "lenet5", "lstm_text_100", "mlp_tutorial_pc_softmax")
        ),
    ],
)
def test_same_calls(name: str) -> None:
    model = content(name)
    assert_same(script(ours, model), script(original, model))


@pytest.mark.parametrize("name", [CNN, "mlp_floatio"])
def test_number_of_samples(name: str) -> None:
    """Check a model after its inputs are resized to several samples in their first dimension."""
    model = content(name)
    assert_same(script(ours, model, 3), script(original, model, 3))


def test_two_inputs() -> None:
    assert_same(script(ours, two_inputs(), 2), script(original, two_inputs(), 2))
    interpreter = ours(model_content=two_inputs())
    interpreter.resize_tensor_input(0, (2, 6))
    with pytest.raises(RuntimeError, match="different numbers of samples"):
        interpreter.allocate_tensors()


def test_tensors_of_the_file() -> None:
    """Check that names, types and scales of all tensors, and all constants, are as in LiteRT.

    Only the content of intermediate results cannot be read, as it stays on the machine.
    """
    model = content(CNN)
    one, other = ours(model_content=model), original(model_content=model)
    assert_same(one.get_tensor_details(), other.get_tensor_details())
    one.allocate_tensors()
    assert np.array_equal(one.get_tensor(3), other.get_tensor(3))
    with pytest.raises(ValueError, match="stays on the machine"):
        one.get_tensor(16)


def test_signature() -> None:
    """Check a signature runner, which takes any number of samples without allocate_tensors()."""
    results: list[Any] = []
    for make in (ours, original):
        run = make(model_content=content(CNN)).get_signature_runner()
        details = run.get_input_details()
        x = data_for(details["x"], (3, 8, 8, 1))
        results.append([details, run.get_output_details(), run(x=x), run(x=x[:1])])
        for wrong in ({}, {"y": x}, {"x": x, "y": x}, {"x": x[0]}, {"x": x.astype(np.int32)}):
            with pytest.raises((ValueError, RuntimeError)):
                run(**wrong)
        with pytest.raises(ValueError, match=r'Invalid signature_key provided: "z"\.'):
            make(model_content=content(CNN)).get_signature_runner("z")
        with pytest.raises(ValueError, match="model has 0 Signatures"):
            make(model_content=content("fc_pertensor_00")).get_signature_runner()
    assert_same(*results)


def test_views() -> None:
    """Check that arrays from tensor() are views of a tensor, and that set_tensor() makes a copy."""
    outputs: list[Any] = []
    for make in (ours, original):
        interpreter = make(model_path=MODELS / f"{CNN}.tflite")
        interpreter.allocate_tensors()
        source, result = (
            each()[0]["index"]
            for each in (interpreter.get_input_details, interpreter.get_output_details)
        )
        x = np.full((1, 8, 8, 1), 7, np.int8)
        interpreter.set_tensor(source, x)
        x[...] = 0
        interpreter.tensor(source)()[0, 0, 0, 0] = 9
        interpreter.invoke()
        outputs += [interpreter.get_tensor(source), interpreter.tensor(result)().copy()]
    assert_same(outputs[:2], outputs[2:])


MISTAKES: dict[str, Callable[[Any, int, int], Any]] = {
    "early get": lambda i, x, y: i.get_tensor(y),
    "early set": lambda i, x, y: i.set_tensor(x, np.zeros((1, 8, 8, 1), np.int8)),
    "early invoke": lambda i, x, y: i.invoke(),
    "type": lambda i, x, y: (i.allocate_tensors(), i.set_tensor(x, np.zeros((1, 8, 8, 1)))),
    "list": lambda i, x, y: (i.allocate_tensors(), i.set_tensor(x, [[[[0]]]])),
    "rank": lambda i, x, y: (i.allocate_tensors(), i.set_tensor(x, np.zeros((8, 8, 1), np.int8))),
    "size": lambda i, x, y: (
        i.allocate_tensors(),
        i.set_tensor(x, np.zeros((1, 8, 9, 1), np.int8)),
    ),
    "samples": lambda i, x, y: (
        i.allocate_tensors(),
        i.set_tensor(x, np.zeros((2, 8, 8, 1), np.int8)),
    ),
    "number": lambda i, x, y: (i.allocate_tensors(), i.get_tensor(99)),
    "negative": lambda i, x, y: (i.allocate_tensors(), i.get_tensor(-1)),
    "set of a number": lambda i, x, y: (i.allocate_tensors(), i.set_tensor(99, np.zeros(1))),
    "subgraph": lambda i, x, y: i.get_tensor_details(1),
    "resized and not allocated": lambda i, x, y: (
        i.allocate_tensors(),
        i.resize_tensor_input(x, [2, 8, 8, 1]),
        i.invoke(),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake: str) -> None:
    """Check that wrong calls raise the same exceptions as in LiteRT."""
    raised: list[Exception] = []
    for make in (ours, original):
        interpreter = make(model_content=content(CNN))
        places = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
        with pytest.raises((ValueError, RuntimeError)) as caught:
            MISTAKES[mistake](interpreter, *(each["index"] for each in places))
        raised.append(caught.value)
    assert type(raised[0]) is type(raised[1])


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"model_content": b""},
        {"model_content": b"abc"},
        {"model_path": "missing.tflite"},
        {"model_path": "missing.tflite", "model_content": b"abc"},
        {"model_content": b"abc", "num_threads": 0},
        {"model_content": b"abc", "num_threads": "2"},
    ],
)
def test_wrong_arguments(arguments: dict[str, Any]) -> None:
    for make in (ours, original):
        with pytest.raises(ValueError, match=r"\w"):
            make(**arguments)
    with pytest.raises(TypeError):
        ours(model_content=b"abc", threads=2)


def test_sizes_of_the_file() -> None:
    """Check that only the first size of an input, the number of samples, can be changed.

    With `strict`, or if the file fixes the first size, that size cannot change either.
    """
    interpreter = ours(model_content=content(CNN))
    for sizes, strict in (((1, 9, 8, 1), False), ((1, 64), False), ((2, 8, 8, 1), True)):
        with pytest.raises(ValueError, match="first size"):
            interpreter.resize_tensor_input(0, sizes, strict=strict)
    seven = ours(model_content=content("fc_pertensor_00"))
    with pytest.raises(ValueError, match="its first size is fixed to 7"):
        seven.resize_tensor_input(0, (8, 142))


def test_state() -> None:
    """Check that an LSTM begins anew after a reset, as in LiteRT.

    A second invocation without a reset raises an error.
    """
    name = "lstm_digits_rows_k2"
    results: list[NDArray[Any]] = []
    for make in (ours, original):
        interpreter = make(model_content=content(name))
        interpreter.allocate_tensors()
        (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
        for _ in range(2):
            interpreter.reset_all_variables()
            interpreter.set_tensor(source["index"], data_for(source, tuple(source["shape"])))
            interpreter.invoke()
            results.append(interpreter.get_tensor(result["index"]))
        if make is ours:
            with pytest.raises(RuntimeError, match="reset_all_variables"):
                interpreter.invoke()
    assert all(np.array_equal(each, results[0]) for each in results)


@pytest.mark.thorough
def test_variables() -> None:
    """Check that variables keep their values from one invocation to the next, as in LiteRT.

    Even a reset leaves the values as they are.
    """
    case = streaming(np.random.default_rng(random_seed()))
    results: list[NDArray[Any]] = []
    for make in (ours, original):
        interpreter = make(model_content=case.content)
        interpreter.allocate_tensors()
        (source,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
        for number, sample in enumerate(case.inputs[0][:4]):
            if number == 2:
                interpreter.reset_all_variables()
            interpreter.set_tensor(source["index"], sample)
            interpreter.invoke()
            results.append(interpreter.get_tensor(result["index"]))
    half = len(results) // 2
    assert_same(results[:half], results[half:])


@pytest.mark.thorough
def test_without_the_libraries() -> None:
    """Check that both drop-in classes run int8 files without LiteRT and ONNX Runtime installed."""
    script = f"""
import sys
sys.modules |= dict.fromkeys(("ai_edge_litert", "ai_edge_quantizer", "onnxruntime", "torch"))
import numpy as np
from systola.litert import Interpreter
from systola.onnxruntime import InferenceSession
run = Interpreter(model_path={str(MODELS / CNN)!r} + ".tflite", preset="8x8").get_signature_runner()
print(run(x=np.zeros((2, 8, 8, 1), np.int8))["output_0"].shape)
path = {str(MODELS / "onnx_skl_mlp_48relu_qdq_s8s8_pc.onnx")!r}
x = np.zeros((1, 64), np.float32)
print(InferenceSession(path, preset="8x8").run(None, dict(x=x))[0].shape)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "(2, 10)\n(1, 10)\n"


def test_machine() -> None:
    """Check that the cycles of an invocation can be read, and unknown machines are refused."""
    interpreter = ours(model_content=content(CNN))
    interpreter.allocate_tensors()
    interpreter.invoke()
    assert interpreter.last_run is not None and interpreter.last_run.samples == 1
    for wrong in ({"preset": "9"}, {"backend": "gpu"}):
        with pytest.raises(ValueError, match="unknown"):
            Interpreter(model_content=content(CNN), **wrong)
