# SPDX-License-Identifier: Apache-2.0
"""Tests of `tpu quantize`, which turns float networks into int8: results, figures, mistakes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

from systola import runtime
from systola.compiler.cut.placement import Place
from systola.compiler.errors import ModelError
from systola.compiler.tflite.reader import read_tflite
from systola.verif.cli.test_errors import run
from systola.verif.compiler import float_tflite, model_writer, onnx_writer
from systola.verif.compiler.float_onnx import NETWORKS, FloatNetwork
from systola.verif.kit.seeds import random_seed
from systola.verif.kit.user_files import tree

SAMPLES = 12
INTERPRETERS = {"tflite": model_writer.interpret, "onnx": onnx_writer.interpret}


def float_onnx(name: str) -> bytes:
    """Return a float network in ONNX by its name, always with the same weights.

    ONNX Runtime calculates with scales of float32. So with other weights, single results of the
    machine may differ by one.
    """
    net = FloatNetwork(np.random.default_rng(1))
    result, shape = NETWORKS[name](net)
    return net.content((result, "float32", shape))


def filter_of_any_size() -> bytes:
    """Return a model in ONNX with a convolution that takes any number of rows."""
    net = FloatNetwork(np.random.default_rng(1))
    x = net.input(("batch", 1, "rows", 8), "float32")
    return net.content((net.conv(x, (4, 1, 3, 3)), "float32", ("batch", 4, "r", 6)))


def run_quantised(content: bytes, x: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the results of an int8 network on the golden model of a machine of 8x8."""
    y = runtime.compile(content, preset="8x8", batch=4).run(x, backend="iss")
    return np.asarray(y.outputs[0]).reshape(shape)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with float networks and samples of all kinds, and return the folder."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(random_seed())
    Path("m.tflite").write_bytes(float_tflite.classifier(rng))
    Path("after.tflite").write_bytes(float_tflite.classifier(rng, after=True))
    Path("rows.tflite").write_bytes(float_tflite.filter_of_any_size(rng))
    Path("m.onnx").write_bytes(float_onnx("lenet"))
    Path("rows.onnx").write_bytes(filter_of_any_size())
    Path("int8.onnx").write_bytes(integer_onnx())
    Path("int8.tflite").write_bytes(integer_tflite())
    Path("cut.onnx").write_bytes(Path("m.onnx").read_bytes()[:900])
    Path("cut.tflite").write_bytes(Path("m.tflite").read_bytes()[:900])
    Path("text").write_text("no model")
    pixels = np.random.default_rng(2).standard_normal((SAMPLES, 256)).astype(np.float32)
    np.savez("onnx.npz", x=pixels.reshape(-1, 1, 16, 16), y=np.arange(SAMPLES) % 10)
    x = rng.standard_normal((SAMPLES, 8, 8, 1))  # samples of float64 are accepted for float32
    np.savez(
        "tflite.npz",
        x=x,
        y=np.arange(SAMPLES) % 10,
        narrow=x[:, :7],
        nan=np.where(x > 1, np.nan, x),
        bytes=x.astype(np.int8),
        none=x[:0],
        classes=np.arange(SAMPLES) + 1,
        few=np.arange(3),
        floats=np.zeros(SAMPLES),
    )
    np.savez("y.npz", y=x)
    return tmp_path


def integer_onnx() -> bytes:
    net = onnx_writer.OnnxWriter()
    x = net.input((1, 4), "float32")
    return net.content((net.quantise(x, 0.1, 0, "int8"), "int8", (1, 4)))


def integer_tflite() -> bytes:
    net = model_writer.ModelWriter()
    x, y = net.tensor((1, 4), "int8", 0.1), net.tensor((1, 4), "int8", 0.1)
    net.operator("RELU", [x], [y])
    return net.content([x], [y])


def share(text: str, begin: str) -> float:
    """Return the percentage that follows `begin` in a printed text, as a fraction of 1."""
    found = re.search(rf"{begin} ([\d.]+) %", text)
    assert found, text
    return float(found[1]) / 100


@pytest.mark.parametrize("kind", INTERPRETERS)
def test_accuracy_and_bytes(kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check the printed accuracies and the machine's results against the interpreter."""
    line = f"quantize m.{kind} --data {kind}.npz --labels y -o q --preset 8x8"
    status, out, _ = run(line, capsys)
    assert status == 0
    with np.load(f"{kind}.npz") as data:
        x, labels = data["x"].astype(np.float32), data["y"]
    interpret, content = INTERPRETERS[kind], Path("q").read_bytes()
    of_float = interpret(Path(f"m.{kind}").read_bytes(), x[:, np.newaxis])
    of_int8 = interpret(content, x[:, np.newaxis])
    for begin, results in (("accuracy", of_int8), ("of the float network", of_float)):
        right = results.reshape(SAMPLES, 10).argmax(axis=1) == labels
        assert share(out, begin) == pytest.approx(np.mean(right), abs=1e-4)
    assert np.array_equal(run_quantised(content, x, of_int8.shape), of_int8)
    assert "compiles for '8x8': " in out and "layers with the most noise: " in out
    # The int8 network's results are near to the float network's results, but not equal.
    noise = np.sum((of_float - of_int8) ** 2) / np.sum(of_float**2)
    assert 0 < noise < 0.01


@pytest.mark.parametrize("kind", INTERPRETERS)
def test_open_sizes(kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that --shape sets sizes that a file leaves open.

    Without labels, the command prints noise in place of accuracies.
    """
    shape = {"tflite": (2, 5, 8, 1), "onnx": (2, 1, 5, 8)}[kind]
    x = np.random.default_rng(3).standard_normal((SAMPLES, *shape)).astype(np.float32)
    np.savez("x.npz", x=x)
    status, _, err = run(f"quantize rows.{kind} --data x.npz -o q", capsys)
    assert (status, err.count("\n")) == (2, 1) and "has open sizes, ?x" in err and "--shape" in err
    sizes = ",".join(map(str, shape))
    line = f"quantize rows.{kind} --data x.npz -o q --shape {sizes} --json j"
    status, out, _ = run(line, capsys)
    assert status == 0
    expected = INTERPRETERS[kind](Path("q").read_bytes(), x)
    assert expected[0].size == {"tflite": 2 * 5 * 8 * 4, "onnx": 2 * 4 * 3 * 6}[kind]
    y = run_quantised(Path("q").read_bytes(), x, expected.shape)
    assert np.array_equal(y, expected)
    figures = json.loads(Path("j").read_text())
    assert (figures["samples"], figures["accuracy"], figures["agreement"]) == (SAMPLES, None, None)
    (ratio,) = figures["signal_to_noise"]
    assert 25 < ratio < 60
    assert f"signal to noise of the results: {ratio:.1f} dB" in out
    assert figures["refusal"] is None and len(figures["worst_layers"]) == 1


def test_inputs_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that arrays for several inputs are named x0, x1, or have the inputs' names."""
    Path("two.tflite").write_bytes(float_tflite.sum_of_two(np.random.default_rng(1)))
    rng = np.random.default_rng(random_seed())
    x = {name: rng.standard_normal((SAMPLES, size)) for name, size in (("t1", 9), ("t0", 6))}
    np.savez("named.npz", **x)
    np.savez("numbered.npz", x0=x["t0"], x1=x["t1"])
    contents: list[bytes] = []
    for name in ("named", "numbered"):
        assert run(f"quantize two.tflite --data {name}.npz -o q", capsys)[0] == 0
        contents.append(Path("q").read_bytes())
    by_python = runtime.quantize("two.tflite", x)
    assert contents == [by_python.content] * 2
    by_python.save("saved.tflite")
    assert Path("saved.tflite").read_bytes() == by_python.content
    arrays = [x[name].astype(np.float32) for name in ("t0", "t1")]
    expected = model_writer.interpret(by_python.content, *(each[:, np.newaxis] for each in arrays))
    y = runtime.compile(by_python.content, preset="8x8", batch=4).run(*arrays, backend="iss").y
    assert np.array_equal(y.reshape(expected.shape), expected)


def test_a_signature_of_its_own(folder: Path) -> None:
    """Check that a file keeps its signature.

    The signature names the inputs in another order than the model. Samples are still taken in the
    order of the model.
    """
    rng = np.random.default_rng(random_seed())
    samples = [rng.standard_normal((SAMPLES, size)) * size for size in (6, 9)]
    plain, signed = (
        runtime.quantize(float_tflite.sum_of_two(np.random.default_rng(1), signed=signed), *samples)
        for signed in (False, True)
    )
    assert signed.comparison == plain.comparison
    interpreter = model_writer.Interpreter(model_content=signed.content)
    assert interpreter.get_signature_list() == {
        "call": {"inputs": ["left", "right"], "outputs": ["sum"]}
    }


def test_weights_after_the_flatbuffer(folder: Path) -> None:
    """Check that weights after the flatbuffer are kept when the file gets a signature."""
    with np.load("tflite.npz") as data:
        x = data["x"].astype(np.float32)
    after = runtime.quantize("after.tflite", x)
    expected = model_writer.interpret(after.content, x[:, np.newaxis])
    of_float = model_writer.interpret(Path("after.tflite").read_bytes(), x[:, np.newaxis])
    assert np.sum((expected - of_float) ** 2) < 0.01 * np.sum(of_float**2)
    assert np.array_equal(run_quantised(after.content, x, expected.shape), expected)


def test_a_refused_result(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that an int8 network is written even if the compiler refuses it.

    The command prints the reason.
    """
    net = FloatNetwork(np.random.default_rng(1))
    x = net.node("LRN", net.input((1, 4, 3, 3), "float32"), size=3)
    Path("lrn.onnx").write_bytes(net.content((x, "float32", (1, 4, 3, 3))))
    np.savez("x.npz", x=np.ones((2, 4, 3, 3), np.float32))
    status, out, _ = run("quantize lrn.onnx --data x.npz -o q --json j", capsys)
    assert status == 0 and "does not compile for 'base': " in out and "(LRN" in out
    assert "LRN" in json.loads(Path("j").read_text())["refusal"] and Path("q").exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("m.tflite --data y.npz", "y.npz has no array 'x' (it has: y)"),
        ("m.tflite --data missing.npz", "cannot read missing.npz"),
        ("m.tflite --data m.onnx", "m.onnx is not a .npz file"),
        ("m.tflite --data tflite.npz --key narrow", "array 'narrow': an input of shape (12, 7, 8"),
        ("m.tflite --data tflite.npz --key nan", "array 'nan': an input has values that are not"),
        ("m.tflite --data tflite.npz --key bytes", "an input is int8, the model takes float32"),
        ("m.tflite --data tflite.npz --key none", "array 'none' has no samples"),
        ("m.tflite --data tflite.npz --labels z", "has no array 'z'"),
        ("m.tflite --data tflite.npz --labels classes", "labels are from 1 to 12, classes 0 to 9"),
        ("m.tflite --data tflite.npz --labels few", "labels are 12 whole numbers here, not int64"),
        ("m.onnx --data onnx.npz --labels x", "labels are 12 whole numbers here, not float32"),
        ("m.tflite --data tflite.npz --shape 1,9,8,1", "is ?x8x8x1 in the model, it cannot be 1x9"),
        ("m.onnx --data onnx.npz --shape 1,16,16", "it cannot be 1x16x16"),
        ("m.onnx --data onnx.npz --shape 1 --shape 1", "2 shapes are given, the model takes 1"),
        ("m.onnx --data onnx.npz --shape 1,0", "'1,0' is no shape such as"),
        ("m.onnx --data onnx.npz --to 16x8", "only .tflite models can be of 16x8"),
        ("m.onnx --data onnx.npz --to int4", "int4"),
        ("rows.tflite --data tflite.npz", "has open sizes, ?x?x8x1: tpu quantize --shape sets"),
        ("int8.onnx --data onnx.npz", "quantised already: it has QuantizeLinear"),
        ("int8.tflite --data onnx.npz", "quantised already: tensor 't0' is int8"),
        ("cut.onnx --data onnx.npz", "cut.onnx: the model is damaged"),
        ("cut.tflite --data onnx.npz", "cut.tflite: the model is damaged"),
        ("text --data onnx.npz", "text: neither a TensorFlow Lite nor an ONNX model"),
    ],
)
def test_mistakes(line: str, says: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Check that each mistake gives one line of text, and that no file is written or changed."""
    before = tree(folder)
    status, out, err = run(f"quantize {line} -o q", capfd)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"tpu: error: [^\n]+\n", err) and says in err, err
    assert tree(folder) == before


@pytest.mark.parametrize(
    ("kind", "library"), [("tflite", "ai_edge_quantizer"), ("onnx", "onnxruntime.quantization")]
)
def test_a_missing_library(
    kind: str,
    library: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    status, out, err = run(f"quantize m.{kind} --data {kind}.npz -o q", capsys)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{library.split('.')[0]}, which is missing: pip install 'systola[quantize]'" in err


def test_weights_in_another_file(folder: Path) -> None:
    model = onnx.load("m.onnx")
    model.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    with pytest.raises(ModelError, match="are in another file: save it as one"):
        runtime.quantize(model.SerializeToString(), np.zeros((1, 1, 16, 16), np.float32))


def test_what_the_quantiser_refuses(folder: Path) -> None:
    """Check that an exception of the quantising library becomes a ModelError of one line."""
    node = helper.make_node("Unheard", ["x"], ["y"])
    sizes = (onnx.TensorProto.FLOAT, (1, 2))
    x, y = (helper.make_tensor_value_info(name, *sizes) for name in "xy")
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]))
    with pytest.raises(ModelError, match=r"^ONNX Runtime cannot .*Unheard") as caught:
        runtime.quantize(model.SerializeToString(), np.zeros((1, 2), np.float32))
    assert "\n" not in str(caught.value)


def test_each_channel_has_a_scale(folder: Path) -> None:
    """Check that the first convolution has a scale for each channel: 6 in ONNX, 4 in LiteRT."""
    pixels = np.ones((1, 1, 16, 16), np.float32)
    graph = onnx.load_from_string(runtime.quantize("m.onnx", pixels).content).graph
    constants = {each.name: each for each in graph.initializer}
    scales = [
        constants[node.input[1]].dims
        for node in graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in constants
    ]
    assert [6] in scales
    content = runtime.quantize("m.tflite", pixels.reshape(4, 8, 8, 1)).content
    assert 4 in {len(tensor.scales) for tensor in read_tflite(content).tensors}


@pytest.mark.parametrize("cores", ["", "--cores 2"])
def test_run_of_a_float_network(
    cores: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that `tpu run --calibrate` runs the network that `tpu quantize` would make."""
    line = "run m.tflite --input tflite.npz --output r.npz --backend iss --preset 8x8"
    assert run(f"{line} {cores} --calibrate tflite.npz", capsys)[0] == 0
    with np.load("tflite.npz") as data:
        x = data["x"].astype(np.float32)
    content = runtime.quantize("m.tflite", x).content
    expected = model_writer.interpret(content, x[:, np.newaxis])
    with np.load("r.npz") as data:
        assert np.array_equal(data["y"].reshape(expected.shape), expected)
    status, _, err = run(f"{line} {cores} --calibrate y.npz", capsys)
    assert (status, err) == (2, "tpu: error: y.npz has no array 'x' (it has: y)\n")


def test_old_operators(folder: Path) -> None:
    """Check that ONNX operators from before version 13 have a scale for each channel, too."""
    net = FloatNetwork(np.random.default_rng(1), opset=11)
    x = net.node("Relu", net.conv(net.input((1, 3, 6, 6), "float32"), (4, 3, 3, 3)))
    x = net.gemm(net.node("Flatten", net.node("GlobalAveragePool", x)), 4, 5)
    samples = np.random.default_rng(2).standard_normal((SAMPLES, 1, 3, 6, 6)).astype(np.float32)
    made = runtime.quantize(net.content((x, "float32", (1, 5))), samples)
    assert made.comparison.signal_to_noise[0] > 25
    expected = onnx_writer.interpret(made.content, samples)
    assert np.array_equal(run_quantised(made.content, samples, expected.shape), expected)


def test_codes_of_old_files(folder: Path) -> None:
    """Check files from before 2020, with operators' codes in a field that the quantiser ignores."""
    content = Path("m.tflite").read_bytes()
    model = float_tflite.schema.ModelT.InitFromPackedBuf(content, 0)
    for code in model.operatorCodes:
        code.builtinCode = 0
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    with np.load("tflite.npz") as data:
        x = data["x"].astype(np.float32)
    made = runtime.quantize(bytes(builder.Output()), x)
    assert made.content == runtime.quantize(content, x).content


def test_control_flow(folder: Path) -> None:
    """Check that a loop stays in float32, and that the layer before it runs on the machine."""
    content = float_tflite.loop(np.random.default_rng(random_seed()))
    samples = np.random.default_rng(2).standard_normal((SAMPLES, 1, 40)).astype(np.float32)
    made = runtime.quantize(content, samples)
    assert made.comparison.signal_to_noise[0] > 20
    placement = runtime.compile(made.content, preset="small").placement
    assert {each.kind for each in placement if each.place is Place.MACHINE} == {"FULLY_CONNECTED"}
    expected = model_writer.interpret(made.content, samples)
    assert np.array_equal(run_quantised(made.content, samples, expected.shape), expected)


def test_weights_of_int8(folder: Path) -> None:
    """Check files of dynamic range, in which only weights are int8: they become floats again."""
    content = float_tflite.weights_of_int8(np.random.default_rng(random_seed()))
    samples = np.random.default_rng(2).standard_normal((SAMPLES, 1, 40)).astype(np.float32)
    made = runtime.quantize(content, samples)
    assert made.comparison.signal_to_noise[0] > 30
    expected = model_writer.interpret(made.content, samples)
    assert np.array_equal(run_quantised(made.content, samples, expected.shape), expected)
    stored = read_tflite(content).tensors
    first = next(each.data for each in stored if each.shape == (30, 40))
    second = next(each.data for each in stored if each.shape == (20, 30))
    scales = next(each.scales for each in stored if each.shape == (30, 40))
    hidden = samples[:, 0] @ (first * scales[:, np.newaxis]).T
    exact = np.maximum(hidden @ ((second - 120.0) * 0.01).T, 0)
    error = expected.reshape(exact.shape) - exact
    assert np.sum(error**2) < 0.001 * np.sum(exact**2)


def test_onnx_of_float16(folder: Path) -> None:
    """Check that a quantised float16 network takes float32 inputs, and equals ONNX Runtime."""
    net = FloatNetwork(np.random.default_rng(1))
    x = net.node("Relu", net.conv(net.input((1, 3, 6, 6), "float32"), (4, 3, 3, 3)))
    x = net.gemm(net.node("Flatten", net.node("GlobalAveragePool", x)), 4, 5)
    model = onnx.load_from_string(net.content((x, "float32", (1, 5))))
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    for tensor in model.graph.initializer:
        half = onnx.numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(onnx.numpy_helper.from_array(half, tensor.name))
    samples = np.random.default_rng(2).standard_normal((SAMPLES, 1, 3, 6, 6)).astype(np.float32)
    made = runtime.quantize(model.SerializeToString(), samples)
    assert made.comparison.signal_to_noise[0] > 25
    expected = onnx_writer.interpret(made.content, samples)
    assert np.array_equal(run_quantised(made.content, samples, expected.shape), expected)


def test_inputs_without_axes_and_shared_codes(folder: Path) -> None:
    """Check an input without axes (a number), and a constant that is used twice."""
    net = FloatNetwork(np.random.default_rng(1))
    x, factor = net.input((1, 4), "float32"), net.input((), "float32")
    shared = net.constant(np.linspace(-1, 1, 4, dtype=np.float32).reshape(1, 4))
    joined = net.node("Concat", net.node("Mul", x, factor), shared, shared, axis=1)
    y = net.gemm(joined, 12, 5)
    rng = np.random.default_rng(2)
    samples = rng.standard_normal((SAMPLES, 1, 4)).astype(np.float32)
    factors = rng.uniform(1, 2, SAMPLES).astype(np.float32)
    made = runtime.quantize(net.content((y, "float32", (1, 5))), samples, factors)
    assert made.comparison.signal_to_noise[0] > 20


def test_constants_among_the_inputs(folder: Path) -> None:
    """Check old ONNX files, which name constants among the inputs and have biases of shape 1xN."""
    net = FloatNetwork(np.random.default_rng(1), opset=8)
    x = net.input((1, 6), "float32")
    weights = np.linspace(-1, 1, 30, dtype=np.float32).reshape(6, 5)
    bias = net.constant(np.linspace(2, 3, 5, dtype=np.float32).reshape(1, 5))
    y = net.node("Gemm", x, net.constant(weights), bias)
    model = onnx.load_from_string(net.content((y, "float32", (1, 5))))
    model.ir_version = 3
    for each in model.graph.initializer:
        info = helper.make_tensor_value_info(each.name, each.data_type, each.dims)
        model.graph.input.append(info)
    samples = np.random.default_rng(2).standard_normal((SAMPLES, 1, 6)).astype(np.float32)
    made = runtime.quantize(model.SerializeToString(), samples)
    expected = onnx_writer.interpret(made.content, samples)
    assert np.array_equal(run_quantised(made.content, samples, expected.shape), expected)


def test_weights_of_float16(folder: Path) -> None:
    """Check that float16 weights become int8 as well, and that all samples count for the ranges."""
    content = float_tflite.weights_of_float16(np.random.default_rng(random_seed()))
    samples = np.random.default_rng(2).standard_normal((SAMPLES, 1, 40)).astype(np.float32)
    # The first sample is small. If each range were a moving average that begins with this sample,
    # the ranges would be too small for the other samples.
    samples[0] *= 0.1
    made = runtime.quantize(content, samples)
    assert made.comparison.signal_to_noise[0] > 30
    expected = model_writer.interpret(made.content, samples)
    assert np.array_equal(run_quantised(made.content, samples, expected.shape), expected)
