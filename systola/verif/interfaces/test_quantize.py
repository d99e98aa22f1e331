# SPDX-License-Identifier: Apache-2.0
"""Tests of systola.quantize for files, and for Keras and PyTorch models by their exporters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import systola
from systola import runtime
from systola.compiler.errors import ModelError
from systola.verif.compiler import onnx_writer
from systola.verif.compiler.float_digits import as_onnx, as_tflite, digits
from systola.verif.kit.seeds import random_seed

X = digits()["x"][:12]


class StandInForKeras:
    """A stand-in for a Keras model, with a back end of Keras that exports to the form `exports`."""

    exports = "litert"
    missing: str | None = None
    called: Any = None

    def __call__(self, x: NDArray[Any], *, training: bool) -> None:
        assert not training
        self.called = x

    def export(self, path: str, *, format: str, verbose: bool) -> None:
        """Write the file of a classifier, as Keras's exporter would."""
        assert self.called is not None and not verbose and format == self.exports
        if self.missing:
            raise ImportError(f"No module named '{self.missing}'", name=self.missing)
        Path(path).write_bytes(as_tflite() if format == "litert" else as_onnx())


class StandInForModule:
    """A stand-in for torch.nn.Module, with its two modes."""

    training = True

    def eval(self) -> StandInForModule:
        """Switch the module to inference."""
        return self.train(False)

    def train(self, mode: bool) -> StandInForModule:
        """Switch the module to training, or to inference if `mode` is false."""
        self.training = mode
        return self


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that replaces the package Keras by a stand-in with a given back end."""

    def install(backend: str) -> None:
        module: Any = ModuleType("keras")
        module.Model = StandInForKeras
        module.backend = SimpleNamespace(backend=lambda: backend)
        monkeypatch.setitem(sys.modules, "keras", module)

    return install


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a stand-in in place of the package PyTorch; return the stand-in."""

    def export(module: StandInForModule, arguments: Any, **options: Any) -> Any:
        assert not module.training and options["dynamo"]
        (first,) = arguments or options["kwargs"].values()
        assert first.shape == (1, 64) and first.dtype == np.float32
        return SimpleNamespace(model_proto=onnx.load_from_string(as_onnx()))

    module: Any = ModuleType("torch")
    module.nn = ModuleType("torch.nn")
    module.nn.Module = StandInForModule
    module.onnx = SimpleNamespace(export=export)
    module.from_numpy = np.asarray
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setitem(sys.modules, "torch.nn", module.nn)
    return module


def test_files(tmp_path: Path) -> None:
    """Check that a path, or the content of a file, gives the bytes that runtime.quantize gives."""
    content = as_onnx()
    (tmp_path / "m.onnx").write_bytes(content)
    expected = runtime.quantize(content, X).content
    for model in (content, tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        assert systola.quantize(model, X).content == expected


@pytest.mark.parametrize(
    ("backend", "exports"), [("tensorflow", "litert"), ("torch", "onnx"), ("jax", "onnx")]
)
def test_keras(backend: str, exports: str, keras: Callable[[str], None]) -> None:
    """Check that a Keras model is exported in the form that its back end can make."""
    keras(backend)
    model = StandInForKeras()
    model.exports = exports
    content = {"litert": as_tflite, "onnx": as_onnx}[exports]()
    assert systola.quantize(model, X).content == runtime.quantize(content, X).content
    assert np.array_equal(model.called, X[:1])
    model.missing = "tf2onnx"
    with pytest.raises(ModelError, match=r"takes tf2onnx, which is missing: pip install tf2onnx$"):
        systola.quantize(model, X)


def test_torch(torch: Any) -> None:
    """Check that a PyTorch module is exported for one sample, and keeps its mode afterwards."""
    model = StandInForModule()
    graph = onnx.load_from_string(as_onnx()).graph
    expected = runtime.quantize(as_onnx(), X).content
    for given in (X, X.astype(np.float64), {graph.input[0].name: X}):
        assert systola.quantize(model, given).content == expected
        assert model.training

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("one line\nand another")

    torch.onnx.export = fails
    with pytest.raises(ModelError, match=r"^PyTorch cannot export it: one line and another$"):
        systola.quantize(model, X)
    assert model.training


@pytest.mark.parametrize("model", [3, None, print])
def test_other_things(model: object) -> None:
    with pytest.raises(ModelError, match=r"a Keras model or a torch\.nn\.Module, not \w+$"):
        systola.quantize(model, X)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'systola' has no attribute 'quantise'"):
        _ = systola.quantise


def test_no_samples(torch: Any) -> None:
    with pytest.raises(ModelError, match="no samples to calibrate with"):
        systola.quantize(StandInForModule(), X[:0])


def test_pytorch_itself() -> None:
    """Check a classifier from PyTorch itself, from the module to the results of the machine."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    torch.manual_seed(random_seed() % 1000)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 6, 3),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(6, 10),
    )
    images = X.reshape(-1, 1, 8, 8)
    made = systola.quantize(model, torch.from_numpy(images))
    assert made.comparison.signal_to_noise[0] > 20
    expected = onnx_writer.interpret(made.content, images[:, np.newaxis])
    y = runtime.compile(made.content, preset="8x8", batch=4).run(images, backend="iss").y
    assert np.abs(y - expected.reshape(y.shape)).max() < 0.1


def test_keras_itself() -> None:
    """Check a classifier from Keras itself, from the model to the results of the machine.

    Keras has the back end that the user has chosen.
    """
    try:
        keras = pytest.importorskip("keras")
    # Keras raises a ValueError if it has no back end.
    except ValueError:
        pytest.skip("Keras has no back end")
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((8, 8, 1)), layers.Conv2D(6, 3), layers.Flatten(), layers.Dense(10)]
    )
    images = X.reshape(-1, 8, 8, 1)
    made = systola.quantize(model, images)
    assert made.comparison.signal_to_noise[0] > 20
    y = runtime.compile(made.content, preset="8x8", batch=4).run(images, backend="iss").y
    assert y.shape == (len(images), 10)
