# SPDX-License-Identifier: Apache-2.0
"""Tests of systola.onnx_backend, a back end with ONNX's interface, also by ONNX's test suite."""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from systola import onnx_backend
from systola.compiler.cut import onnx_source
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.interpreted import Interpreter
from systola.runtime import execute, interpreters
from systola.verif.compiler.onnx_writer import OnnxWriter, interpret
from systola.verif.kit.seeds import random_seed

PASSED = 151
"""Number of ONNX 1.23.2's own tests that pass; the other tests are refused."""
SMALL: dict[str, Any] = {"preset": "8x8"}


def random_bytes(*shape: int) -> Any:
    return np.random.default_rng(random_seed()).integers(-128, 128, shape).astype(np.int8)


def relu() -> onnx.ModelProto:
    net = OnnxWriter()
    x = net.dequantise(net.input((1, 6), "int8"), 0.1, 3, "int8")
    y = net.quantise(net.node("Relu", x), 0.1, 3, "int8")
    return onnx.load_from_string(net.content((y, "int8", (1, 6))))


def moved(kind: str, shape: tuple[int, ...], **attributes: Any) -> onnx.ModelProto:
    """Return a model of one operator on a float32 tensor of the shape `shape`."""
    node = helper.make_node(kind, ["x"], ["y"], **attributes)
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    graph = helper.make_graph([node], "g", [source], [onnx.ValueInfoProto(name="y")])
    opset = helper.make_opsetid("", 13)
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[opset], ir_version=8)
    )


def test_prepared_model() -> None:
    """Check a model with inputs in a sequence, a mapping or an array, against ONNX Runtime."""
    model, x = relu(), random_bytes(1, 6)
    assert onnx_backend.is_compatible(model, **SMALL)
    prepared = onnx_backend.prepare(model, "CPU", **SMALL)
    expected = interpret(model.SerializeToString(), x[np.newaxis])[0]
    for inputs in ([x], (x,), {model.graph.input[0].name: x}, x):
        (y,) = prepared.run(inputs)
        assert y.dtype == np.int8 and np.array_equal(y, expected)
    (y,) = onnx_backend.run_model(model, [x], **SMALL)
    assert np.array_equal(y, expected)


def test_single_operator() -> None:
    """Check a model of one operator with weights as inputs, which are constants of the program."""
    x, weights = random_bytes(3, 8), random_bytes(8, 5)
    scale, zero = np.float32(0.02), np.int8(1)
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    node = helper.make_node("QLinearMatMul", names, ["y"])
    inputs = [x, scale, zero, weights, scale, zero, np.float32(0.4), np.int8(-2)]
    arrays = [np.asarray(each) for each in inputs]
    (y,) = onnx_backend.run_node(node, arrays, opset_version=13, **SMALL)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in zip(names, arrays, strict=True)
    ]
    result = helper.make_tensor_value_info("y", TensorProto.INT8, (3, 5))
    model = helper.make_model(
        helper.make_graph([node], "g", infos, [result]),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, dict(zip(names, arrays, strict=True)))[0]
    assert np.array_equal(y, expected)
    assert not onnx_backend.is_compatible(model, **SMALL)


def test_refusals() -> None:
    """Check that a network without any part for the machine, and an unknown device, are refused."""
    model = moved("Sin", (1, 4))
    assert not onnx_backend.is_compatible(model, **SMALL)
    with pytest.raises(ModelError, match=r"Sin"):
        onnx_backend.run_model(model, [np.zeros((1, 4), np.float32)], **SMALL)
    assert onnx_backend.supports_device("CPU") and not onnx_backend.supports_device("CUDA")
    with pytest.raises(ModelError, match=r"there is no device 'CUDA' \(known: CPU\)"):
        onnx_backend.prepare(relu(), "CUDA", **SMALL)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("Flatten", {"axis": 0}),
        ("Flatten", {"axis": 1}),
        ("Flatten", {"axis": 2}),
        ("Transpose", {"perm": [1, 0, 2]}),
        ("Transpose", {"perm": [0, 2, 1]}),
        ("Transpose", {"perm": [2, 1, 0]}),
    ],
)
def test_first_axis_that_is_none_of_samples(kind: str, attributes: dict[str, Any]) -> None:
    """Check operators that mix the first axis of a tensor, which counts no samples, with others."""
    model = moved(kind, (2, 2, 2), **attributes)
    x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    (y,) = onnx_backend.run_model(model, [x], **SMALL)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert y.shape == expected.shape and np.array_equal(y, expected)


class SessionHere:
    """A stand-in for the session in a process of its own: ONNX Runtime runs in this process.

    A process for each of two thousand models would take an hour.
    """

    def __init__(
        self, kind: Interpreter, model: bytes, *, optimised: bool = True, probe: bool = False
    ) -> None:
        try:
            self._opened = interpreters.open_here(kind, model, optimised=optimised)
        except Exception as error:
            line = str(error).splitlines()[0]
            raise ModelError(f"onnxruntime refuses the model: {line}") from None
        found = self._opened.tensors()
        if probe:
            with suppress(Exception):
                found = self._opened.probed()
        self.tensors = {key: (name, tuple(shape)) for key, name, shape in found}

    def restart(self) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> SessionHere:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, sample: Any) -> list[Any]:
        """Return the results as arrays, even if they have no dimensions."""
        whole = [np.ascontiguousarray(each) for each in sample]
        return [np.asarray(each) for each in self._opened.run(whole)]


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_onnx_own_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that each of ONNX's own tests passes or is refused with a reason.

    The tests of kind "real" load models from elsewhere, and are left out.
    """
    with warnings.catch_warnings():
        # The import calculates the test cases, some of them with a warning.
        warnings.simplefilter("ignore")
        from onnx.backend.test.runner import Runner

        runner = Runner(onnx_backend.SystolaBackend, __name__)
    for module in (onnx_source, execute):
        monkeypatch.setattr(module, "Session", SessionHere)
    onnxruntime.set_default_logger_severity(4)
    passed: list[str] = []
    refused: dict[str, str] = {}
    for category, items in runner._test_items.items():
        for name, item in items.items():
            if category == "Real" or not name.endswith("_cpu"):
                continue
            run: Callable[[object], None] = item.func
            try:
                run(None)
                passed.append(name)
            except (ModelError, CompileError) as error:
                refused[name] = str(error)
            except unittest.SkipTest as error:
                # Before it runs a whole network, the suite asks is_compatible and skips refused
                # networks.
                refused[name] = str(error)
    assert len(passed) == PASSED
    assert len(refused) > 1800
    assert all(reason and "\n" not in reason for reason in refused.values())
