# SPDX-License-Identifier: Apache-2.0
"""Tests of networks that run partly on the machine: every byte equals the interpreter's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import flatbuffers.flexbuffers
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

from systola.arch.config import preset
from systola.compiler import interpreted
from systola.compiler.cut.placement import Place, macs_share
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.interpreted import InterpretedStage
from systola.compiler.network import DeviceStage
from systola.runtime import Strategy, compile, execute, load
from systola.runtime import interpreters as runtime_interpreters
from systola.runtime.compiled_model import CompiledModel
from systola.runtime.execute import HostError
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.onnx_session import run_samples
from systola.verif.compiler.onnx_writer import OnnxWriter
from systola.verif.kit.seeds import random_seed

SAMPLES = 5
BATCH = 2
"""Number of samples in a batch. SAMPLES is no multiple of BATCH, so the last batch is smaller."""


@dataclass(frozen=True)
class Case:
    """A network with input samples, and its expected division between machine and interpreter.

    `host` has the types of the operators that the interpreter is to run.
    """

    content: bytes
    inputs: tuple[NDArray[Any], ...]
    host: tuple[str, ...]
    pieces: str
    """Expected stages in order, a letter each: m on the machine, i in the interpreter."""
    macs: int
    """Expected number of multiply-accumulates on the machine for one sample."""


def codes(rng: np.random.Generator, *shape: int) -> NDArray[np.int8]:
    return rng.integers(-128, 128, (SAMPLES, *shape), np.int8)


def dense(
    writer: ModelWriter,
    rng: np.random.Generator,
    source: int,
    result: int,
    size: tuple[int, int],
    scale: float = 0.01,
) -> None:
    """Add an int8 FULLY_CONNECTED with random weights; `size` is (outputs, inputs)."""
    weights = rng.integers(-127, 128, size, np.int8)
    bias = rng.integers(-500, 500, size[0], np.int32)
    writer.fully_connected(source, result, weights, bias, scale)


def middle(rng: np.random.Generator) -> Case:
    """Make a network with an operator that the machine lacks between two dense layers."""
    writer = ModelWriter()
    x, h = writer.tensor((1, 16), scale=0.5), writer.tensor((1, 12), scale=0.4, zero_point=3)
    n, y = writer.tensor((1, 12), scale=1 / 128), writer.tensor((1, 5), scale=0.1)
    dense(writer, rng, x, h, (12, 16))
    writer.operator("L2_NORMALIZATION", [h], [n])
    dense(writer, rng, n, y, (5, 12))
    content = writer.content([x], [y])
    return Case(content, (codes(rng, 1, 16),), ("L2_NORMALIZATION",), "mim", 12 * 16 + 5 * 12)


def float_tail(rng: np.random.Generator) -> Case:
    """Make a network with a float32 layer after an int8 layer; both layers' results are outputs."""
    writer = ModelWriter()
    x, h = writer.tensor((1, 9), scale=0.5), writer.tensor((1, 8), scale=0.2, zero_point=-5)
    f, y = writer.tensor((1, 8), "float32"), writer.tensor((1, 3), "float32")
    dense(writer, rng, x, h, (8, 9))
    writer.operator("DEQUANTIZE", [h], [f])
    weights = writer.tensor((3, 8), "float32", data=rng.normal(size=(3, 8)).astype(np.float32))
    writer.operator("FULLY_CONNECTED", [f, weights], [y], keepNumDims=True)
    content = writer.content([x], [y, h])
    return Case(content, (codes(rng, 1, 9),), ("FULLY_CONNECTED",), "mi", 8 * 9)


def branches(rng: np.random.Generator) -> Case:
    """Make a network with two branches, one for the machine and one for the interpreter.

    Only the interpreter uses the network's second input, which has type bool.
    """
    writer = ModelWriter()
    x, wanted = writer.tensor((1, 10), scale=0.5), writer.tensor((1, 6), "bool")
    h, n = writer.tensor((1, 6), scale=0.4), writer.tensor((1, 6), scale=1 / 128)
    g, s = writer.tensor((1, 6), scale=1 / 128), writer.tensor((1, 6), scale=1 / 128)
    y, z = writer.tensor((1, 4), scale=0.1), writer.tensor((1, 7), scale=0.3)
    dense(writer, rng, x, h, (6, 10))
    dense(writer, rng, h, z, (7, 6))
    writer.operator("L2_NORMALIZATION", [h], [n])
    dense(writer, rng, h, g, (6, 6))
    writer.operator("SELECT", [wanted, n, g], [s])
    dense(writer, rng, s, y, (4, 6))
    content = writer.content([x, wanted], [y, z])
    inputs = (codes(rng, 1, 10), rng.integers(0, 2, (SAMPLES, 1, 6)).astype(bool))
    return Case(content, inputs, ("L2_NORMALIZATION", "SELECT"), "mim", 60 + 42 + 36 + 24)


def detector(rng: np.random.Generator) -> Case:
    """Make a network that ends in a custom operator, without the shapes of its results."""
    anchors, classes, most = 6, 3, 4
    writer = ModelWriter()
    x = writer.tensor((1, 12), scale=0.5)
    boxes, scores = writer.tensor((1, 24), scale=0.05), writer.tensor((1, 24), scale=1 / 64)
    dense(writer, rng, x, boxes, (24, 12))
    dense(writer, rng, x, scores, (24, 12))
    numbers: list[int] = []
    for source in (boxes, scores):
        wide = writer.tensor((1, anchors, 4), scale=writer.quantization(source)[0])
        shape = writer.tensor((3,), "int32", data=np.array([1, anchors, 4], np.int32))
        writer.operator("RESHAPE", [source, shape], [wide])
        numbers.append(writer.tensor((1, anchors, 4), "float32"))
        writer.operator("DEQUANTIZE", [wide], [numbers[-1]])
    places = rng.uniform(0.1, 0.9, (anchors, 4)).astype(np.float32)
    numbers.append(writer.tensor((anchors, 4), "float32", data=places))
    results = [writer.tensor((), "float32") for _ in range(4)]
    options = {"max_detections": most, "max_classes_per_detection": 1, "num_classes": classes}
    scales = dict.fromkeys(("y_scale", "x_scale", "h_scale", "w_scale"), 10.0)
    limits = {"nms_score_threshold": 0.0, "nms_iou_threshold": 0.5}
    writer.custom_operator(
        "TFLite_Detection_PostProcess",
        numbers,
        results,
        bytes(flatbuffers.flexbuffers.Dumps({**options, **scales, **limits})),
    )
    content = writer.content([x], results)
    kinds = ("CUSTOM TFLite_Detection_PostProcess",)
    return Case(content, (codes(rng, 1, 12),), kinds, "mi", 2 * 24 * 12)


def unsigned(rng: np.random.Generator) -> Case:
    """Make a uint8 network with L2_NORMALIZATION, which computes differently on uint8 and int8."""
    writer = ModelWriter()
    byte = {"dtype": "uint8", "zero_point": 128}
    x, h = writer.tensor((1, 8), scale=0.5, **byte), writer.tensor((1, 6), scale=0.4, **byte)
    n, y = writer.tensor((1, 6), scale=1 / 128, **byte), writer.tensor((1, 4), scale=0.1, **byte)
    for source, result, size in ((x, h, (6, 8)), (n, y, (4, 6))):
        if source == n:
            writer.operator("L2_NORMALIZATION", [h], [n])
        data = rng.integers(0, 256, size, np.uint8)
        weights = writer.tensor(size, "uint8", 0.01, 128, data)
        scale = 0.01 * writer.quantization(source)[0]
        bias = writer.tensor(size[:1], "int32", scale, data=np.arange(size[0], dtype=np.int32))
        writer.operator("FULLY_CONNECTED", [source, weights, bias], [result])
    content = writer.content([x], [y])
    inputs = (rng.integers(0, 256, (SAMPLES, 1, 8), np.uint8),)
    return Case(content, inputs, ("L2_NORMALIZATION",), "mim", 48 + 24)


STATE: dict[str, Any] = {"shape": (1, 6), "scale": 0.25}
STATE_KINDS = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")


def initial_state(writer: ModelWriter, rng: np.random.Generator) -> None:
    """Add a subgraph that calculates the first value of the variable "state".

    The machine takes only variables with a constant first value, so the host keeps this variable.
    """
    writer.begin_subgraph()
    handle = writer.variable("state")
    flat = writer.tensor((6,), scale=STATE["scale"], data=rng.integers(-128, 128, 6, np.int8))
    start = writer.tensor(**STATE)
    shape = writer.tensor((2,), "int32", data=np.array(STATE["shape"], np.int32))
    writer.operator("RESHAPE", [flat, shape], [start])
    writer.operator("ASSIGN_VARIABLE", [handle, start], [])
    writer.end_subgraph([], [])


def read_state(writer: ModelWriter, beside: int) -> tuple[int, int]:
    """Add operators that concatenate the variable "state" and the tensor `beside`.

    Returns the variable's handle and the concatenated tensor.
    """
    writer.operator("CALL_ONCE", [], [], initSubgraphIndex=1)
    handle, old = writer.variable("state"), writer.tensor(**STATE)
    both = writer.tensor((1, 12), scale=STATE["scale"])
    writer.operator("READ_VARIABLE", [handle], [old])
    writer.operator("CONCATENATION", [old, beside], [both], axis=1)
    return handle, both


def streaming(rng: np.random.Generator) -> Case:
    """Make a network with a variable that keeps a value from one sample to the next."""
    writer = ModelWriter()
    initial_state(writer, rng)
    x, h = writer.tensor((1, 10), scale=0.5), writer.tensor(**STATE)
    y = writer.tensor((1, 4), scale=0.5)
    dense(writer, rng, x, h, (6, 10))
    handle, both = read_state(writer, h)
    writer.operator("ASSIGN_VARIABLE", [handle, h], [])
    dense(writer, rng, both, y, (4, 12))
    content = writer.content([x], [y])
    return Case(content, (codes(rng, 1, 10),), STATE_KINDS, "mim", 60 + 48)


def feedback(rng: np.random.Generator) -> Case:
    """Make a network with a layer that calculates a variable's new value from its old value."""
    writer = ModelWriter()
    initial_state(writer, rng)
    x, h = writer.tensor((1, 10), scale=0.5), writer.tensor(**STATE)
    new, y = writer.tensor(**STATE), writer.tensor((1, 4), scale=0.5)
    dense(writer, rng, x, h, (6, 10))
    handle, both = read_state(writer, h)
    dense(writer, rng, both, new, (6, 12))
    writer.operator("ASSIGN_VARIABLE", [handle, new], [])
    dense(writer, rng, new, y, (4, 6))
    content = writer.content([x], [y])
    kinds = (*STATE_KINDS, "FULLY_CONNECTED")
    return Case(content, (codes(rng, 1, 10),), kinds, "mim", 60 + 24)


def choice(rng: np.random.Generator) -> Case:
    """Make a network that ends in an IF operator, which runs one of two subgraphs."""
    writer = ModelWriter()
    for kind in ("ABS", "SQUARE"):
        writer.begin_subgraph()
        given, result = writer.tensor((1, 5), "float32"), writer.tensor((1, 5), "float32")
        writer.operator(kind, [given], [result])
        writer.end_subgraph([given], [result])
    x, flag = writer.tensor((1, 7), scale=0.5), writer.tensor((1,), "bool")
    h, f = writer.tensor((1, 5), scale=0.2, zero_point=4), writer.tensor((1, 5), "float32")
    y = writer.tensor((1, 5), "float32")
    dense(writer, rng, x, h, (5, 7))
    writer.operator("DEQUANTIZE", [h], [f])
    writer.operator("IF", [flag, f], [y], thenSubgraphIndex=1, elseSubgraphIndex=2)
    content = writer.content([x, flag], [y])
    flags = rng.integers(0, 2, (SAMPLES, 1)).astype(bool)
    return Case(content, (codes(rng, 1, 7), flags), ("IF",), "mi", 35)


@pytest.mark.parametrize(
    "make",
    [
        feedback,
        *(
            pytest.param(each, marks=pytest.mark.thorough)
            for each in (middle, float_tail, branches, unsigned, detector, streaming, choice)
        ),
    ],
)
def test_tflite(make: Callable[[np.random.Generator], Case], tmp_path: Path) -> None:
    case = make(np.random.default_rng(random_seed()))
    model = check(case)
    expected = litert(case)
    for where in (model, stored(model, tmp_path)):
        compare(where.run(*case.inputs, backend="iss").outputs, expected)
    # A run without a state argument begins with the first values of the variables.
    compare(model.run(*(x[:1] for x in case.inputs), backend="iss").outputs, expected, 1)


def float_middle(rng: np.random.Generator) -> Case:
    """Make an ONNX network with a float32 LRN operator between two quantised convolutions."""
    writer = OnnxWriter()
    x = writer.input((1, 3, 6, 6), "float32")
    first = convolution(writer, rng, x, (4, 3))
    second = convolution(writer, rng, writer.node("LRN", first, size=3), (5, 4))
    content = writer.content((second, "float32", (1, 5, 6, 6)))
    inputs = rng.normal(size=(SAMPLES, 1, 3, 6, 6)).astype(np.float32)
    kinds = ("LRN", "QuantizeLinear")
    return Case(content, (inputs,), kinds, "mim", 36 * 9 * (4 * 3 + 5 * 4))


def convolution(
    writer: OnnxWriter, rng: np.random.Generator, source: str, size: tuple[int, int]
) -> str:
    """Add a quantised 3 x 3 Conv of ONNX.

    With the Conv's scales, all ways of rounding give equal results.
    """
    source = writer.dequantise(writer.quantise(source, 0.031, 3, "int8"), 0.031, 3, "int8")
    weights = writer.constant(rng.integers(-127, 128, (*size, 3, 3), np.int8))
    numbers = writer.dequantise(weights, 0.017, 0, "int8")
    result = writer.node("Conv", source, numbers, pads=[1, 1, 1, 1])
    return writer.dequantise(writer.quantise(result, 0.43, -4, "int8"), 0.43, -4, "int8")


def loop_and_branch(rng: np.random.Generator) -> Case:
    """Make an ONNX network with an If, which runs Relu or Neg on the machine's result.

    The network's second input chooses between them.
    """
    writer = OnnxWriter()
    x, flag = writer.input((1, 3, 6, 6), "float32"), writer.input((1,), "bool")
    first = convolution(writer, rng, x, (4, 3))
    second = convolution(writer, rng, first, (2, 4))
    chosen = writer.choice(flag, "Relu", "Neg", first)
    content = writer.content((second, "float32", (1, 2, 6, 6)), (chosen, "float32", (1, 4, 6, 6)))
    inputs = rng.normal(size=(SAMPLES, 1, 3, 6, 6)).astype(np.float32)
    flags = rng.integers(0, 2, (SAMPLES, 1)).astype(bool)
    return Case(content, (inputs, flags), ("If",), "mi", 36 * 9 * (4 * 3 + 2 * 4))


def size_by_values(rng: np.random.Generator) -> Case:
    """Make an ONNX network in which the values of an input set the size of a tensor.

    The test's values, zeros and ones, leave the tensor's size unchanged.
    """
    writer = OnnxWriter()
    x, flags = writer.input((1, 3, 6, 6), "float32"), writer.input((4,), "int64")
    one = writer.constant(np.array([1, 1, 1, 1], np.int64))
    times = writer.node("Max", flags, one)
    first = convolution(writer, rng, x, (4, 3))
    second = convolution(writer, rng, writer.node("Tile", first, times), (5, 4))
    content = writer.content((second, "float32", (1, 5, 6, 6)))
    inputs = rng.normal(size=(SAMPLES, 1, 3, 6, 6)).astype(np.float32)
    numbers = rng.integers(0, 2, (SAMPLES, 4))
    kinds = ("Max", "Tile", "QuantizeLinear")
    return Case(content, (inputs, numbers), kinds, "imim", 36 * 9 * (4 * 3 + 5 * 4))


@pytest.mark.parametrize(
    "make",
    [float_middle, size_by_values, pytest.param(loop_and_branch, marks=pytest.mark.thorough)],
)
def test_onnx(make: Callable[[np.random.Generator], Case], tmp_path: Path) -> None:
    case = make(np.random.default_rng(random_seed()))
    model = check(case)
    assert model.inexact_channels == 0
    expected = run_samples(case.content, case.inputs, optimised=True)
    for where in (model, stored(model, tmp_path)):
        compare(where.run(*case.inputs, backend="iss").outputs, expected)


def check(case: Case) -> CompiledModel:
    """Compile a network, check its stages and the place of each operator, and return the model."""
    model = compile(case.content, preset="small", batch=BATCH)
    assert isinstance(model, CompiledModel)
    stages = model.compiled.stages
    letters = {DeviceStage: "m", InterpretedStage: "i"}
    assert "".join(letters.get(type(stage), "") for stage in stages) == case.pieces
    run_by_interpreter = {
        name for s in stages if isinstance(s, InterpretedStage) for name in s.operators
    }
    for kind in case.host:
        assert any(f"({kind}" in name for name in run_by_interpreter)
    placement = model.placement
    assert [each.number for each in placement] == list(range(len(placement)))
    refused = [each for each in placement if each.reason]
    conversions = {"QUANTIZE", "DEQUANTIZE", "QuantizeLinear", "DequantizeLinear"}
    assert {each.kind for each in refused} <= {*case.host, *conversions, "RESHAPE", "CONCATENATION"}
    assert all(each.place is Place.HOST for each in refused)
    assert model.macs == case.macs
    on_machine = sum(each.macs for each in placement if each.place is Place.MACHINE)
    assert on_machine == case.macs
    report = model.estimate()
    assert report.macs == case.macs
    assert sum(row.macs for row in report.rows) == sum(each.macs for each in placement)
    assert macs_share(placement) == case.macs / sum(each.macs for each in placement)
    return model


def stored(model: CompiledModel, folder: Path) -> CompiledModel:
    """Save a model in a file, and return the model that is loaded from the file."""
    model.save(folder / "model.tpu")
    found = load(folder / "model.tpu")
    assert isinstance(found, CompiledModel)
    assert found.placement == model.placement
    return found


def litert(case: Case) -> list[NDArray[Any]]:
    """Run the whole network in LiteRT on each sample in order, and return the outputs."""
    whole = Interpreter(
        model_content=case.content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    whole.allocate_tensors()
    rows: list[list[NDArray[Any]]] = []
    for sample in zip(*case.inputs, strict=True):
        for details, value in zip(whole.get_input_details(), sample, strict=True):
            whole.set_tensor(details["index"], value)
        whole.invoke()
        results = whole.get_output_details()
        rows.append([whole.get_tensor(each["index"]).copy() for each in results])
    return [np.array(each) for each in zip(*rows, strict=True)]


def compare(
    found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], count: int = SAMPLES
) -> None:
    assert len(found) == len(expected)
    for y, wanted in zip(found, expected, strict=True):
        assert y.dtype == wanted.dtype
        assert np.array_equal(y, wanted[:count].reshape(y.shape))


@pytest.mark.parametrize("tail", [False, True])
def test_nothing_for_the_machine(tail: bool) -> None:
    """Check that a network without a layer for the machine is refused.

    The message has the reason why the whole network does not run on the machine. It does not ask
    the user to install an interpreter.
    """
    writer = ModelWriter()
    x, y = writer.tensor((1, 4), "float32"), writer.tensor((1, 3), "float32")
    weights = writer.tensor((3, 4), "float32", data=np.ones((3, 4), np.float32))
    writer.operator("FULLY_CONNECTED", [x, weights], [y], keepNumDims=True)
    if tail:
        # The machine could run ABS. But a stage on the machine needs multiply-accumulates.
        quantised, z = writer.tensor((1, 3), scale=0.1), writer.tensor((1, 3), scale=0.2)
        writer.operator("QUANTIZE", [y], [quantised])
        writer.operator("ABS", [quantised], [z])
        y = z
    with pytest.raises(
        ModelError, match=r"^operator 0 \(FULLY_CONNECTED\): its .* is float32"
    ) as e:
        compile(writer.content([x], [y]))
    assert "ai-edge-litert" not in str(e.value)


def test_interpreter_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the message if the interpreter that a network needs is not installed.

    The message names the operator for which the interpreter is needed, and the package to install.
    """
    monkeypatch.setattr(runtime_interpreters, "find_spec", lambda _: None)
    case = middle(np.random.default_rng(random_seed()))
    with pytest.raises(
        ModelError, match=r"NORMALIZATION.*not supported; .*litert.*systola\[host\]"
    ):
        compile(case.content)
    # An invalid batch size is refused. The message does not mention an interpreter.
    writer = ModelWriter()
    x, y = writer.tensor((1, 6), scale=0.5), writer.tensor((1, 4), scale=0.5)
    dense(writer, np.random.default_rng(random_seed()), x, y, (4, 6))
    with pytest.raises(CompileError, match=r"^a batch has at least 1 sample, not 0$"):
        compile(writer.content([x], [y]), batch=0)


def test_interpreter_refuses() -> None:
    """Check the message for an operator that neither machine nor interpreter knows.

    The message has the machine's reason first, and then the interpreter's reason.
    """
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    x, h, y = (writer.tensor((1, 4), scale=0.5) for _ in range(3))
    dense(writer, rng, x, h, (4, 4))
    writer.custom_operator("Unheard", [h], [y], b"")
    with pytest.raises(ModelError, match=r"CUSTOM Unheard.*; ai-edge-litert refuses the model: .*"):
        compile(writer.content([x], [y]))


def test_a_long_reason_is_cut() -> None:
    """Check that a long error message from LiteRT, about 30 tensors, is cut to 400 characters."""
    writer = ModelWriter()
    chain = [writer.tensor((1, 4), scale=0.5, zero_point=None) for _ in range(30)]
    for source, result in pairwise(chain):
        writer.operator("RELU", [source], [result])
    with pytest.raises(
        ModelError, match=r"^ai-edge-litert refuses the model: .* \.\.\.$"
    ) as caught:
        runtime_interpreters.Session(
            interpreted.Interpreter.LITERT, writer.content(chain[:1], chain[-1:])
        )
    assert len(str(caught.value)) < 400


def test_interpreters_wait_for_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a second run of a model uses the interpreter processes of the first run.

    In both runs, the variables begin with their first values.
    """
    case = feedback(np.random.default_rng(random_seed()))
    model = compile(case.content, preset="small", batch=BATCH)
    first = model.run(*case.inputs, backend="iss").outputs
    with monkeypatch.context() as changed:
        changed.setattr(execute, "Session", None)
        compare(model.run(*case.inputs, backend="iss").outputs, first)
    execute._close(execute._idle[model.compiled])
    compare(model.run(*case.inputs, backend="iss").outputs, first)


def test_interpreter_that_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a crash of the interpreter's process raises an error that names the operator."""
    case = middle(np.random.default_rng(random_seed()))
    model = compile(case.content, preset="small", batch=1)
    original = runtime_interpreters.Session.run

    def crashing(session: Any, sample: Any) -> Any:
        session._process.kill()
        session._process.wait()
        return original(session, sample)

    monkeypatch.setattr(runtime_interpreters.Session, "run", crashing)
    with pytest.raises(HostError, match=r"operator 1 \(L2_NORMALIZATION\): .* has crashed"):
        model.run(case.inputs[0], backend="iss")  # type: ignore[call-arg]


def test_pods_are_of_one_piece(tmp_path: Path) -> None:
    case = middle(np.random.default_rng(random_seed()))
    compile(case.content, preset="small", batch=1).save(tmp_path / "m.tpu")  # type: ignore[union-attr]
    with Strategy(2, preset="small", backend="iss").scope():
        with pytest.raises(ModelError, match="runs on one core"):
            load(tmp_path / "m.tpu")


def test_a_large_operator_goes_to_the_host_alone() -> None:
    """Check that the host runs only the layer with results that do not fit the machine.

    The network's other layer stays on the machine, since its results can be cut into rows.
    """
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    # The first layer's results are one row, which is larger than the buffer and cannot be cut. The
    # second layer's results are a map, which can be cut into rows.
    machine = preset("tiny")
    count = (machine.buffer_lines + 1) * machine.cols
    x, wide, y, z = (
        writer.tensor(shape, scale=0.1)
        for shape in ((1, 1), (1, count), (1, 80, 1, 1), (1, 80, 1, 64))
    )
    dense(writer, rng, x, wide, (count, 1))
    weights = rng.integers(-127, 128, (64, 1, 1, 1), np.int8)
    writer.weighted("CONV_2D", y, z, weights, np.zeros(64, np.int32), 0.01, 0, strideH=1, strideW=1)
    model = compile(writer.content([x, y], [wide, z]), preset="tiny", batch=1)
    assert isinstance(model, CompiledModel)
    assert [each.place for each in model.placement] == [Place.HOST, Place.MACHINE]


def test_more_sizes_of_results_than_index_registers() -> None:
    """Check a network with results of more sizes than there are index registers, for one sample.

    A program for more samples needs an index register for each size, to step from sample to sample.
    """
    rng = np.random.default_rng(random_seed())
    writer = ModelWriter()
    x = writer.tensor((1, 16), scale=0.1)
    results = [writer.tensor((1, size), scale=0.5) for size in range(8, 72, 8)]
    for result, size in zip(results, range(8, 72, 8), strict=True):
        dense(writer, rng, x, result, (size, 16))
    model = compile(writer.content([x], results), preset="8x8", batch=1)
    given = codes(rng, 1, 16)
    for result, found in zip(results, model.run(given, backend="iss").outputs, strict=True):
        assert np.array_equal(found, interpret(writer.content([x], [result]), given))
