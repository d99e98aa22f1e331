# SPDX-License-Identifier: Apache-2.0
"""Tests of PyTorch modules on the machine, by systola.torch.compile and by torch.compile."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import numpy as np
import pytest

from systola.compiler.errors import ModelError
from systola.verif.compiler import onnx_writer
from systola.verif.compiler.float_digits import digits
from systola.verif.kit.seeds import random_seed

IMAGES = digits()["x"].reshape(-1, 1, 8, 8)[:40]


@pytest.fixture
def torch() -> Any:
    """Return PyTorch with its random numbers seeded; skip the test if PyTorch is missing."""
    pytest.importorskip("onnxscript")
    module = pytest.importorskip("torch")
    module.manual_seed(random_seed() % 1000)
    return module


def classifier(torch: Any) -> Any:
    """Return a small convolutional classifier with PyTorch's usual head."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 6, 3),
        torch.nn.BatchNorm2d(6),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(6, 10),
    )


def test_entry_point() -> None:
    """Check that PyTorch finds the back end "systola" by an entry point of the package."""
    (found,) = entry_points(group="torch_dynamo_backends", name="systola")
    assert found.value == "systola.torch:dynamo_backend"


def test_without_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "systola.torch", raising=False)
    with pytest.raises(ImportError, match="pip install torch onnxscript"):
        import_module("systola.torch")


def test_compile(torch: Any) -> None:
    """Check that a compiled module returns the int8 network's results for any number of samples.

    The int8 results are close to the float results of the module itself.
    """
    from systola.torch import compile

    module = classifier(torch).train()
    run = compile(module, IMAGES, preset="8x8")
    assert module.training
    with torch.no_grad():
        exact = module.eval()(torch.from_numpy(IMAGES))
    for count in (1, 3, 40):
        y = run(torch.from_numpy(IMAGES[:count]))
        assert isinstance(y, torch.Tensor) and y.shape == (count, 10)
        expected = onnx_writer.interpret(run.quantized.content, IMAGES[:count, np.newaxis])
        assert np.abs(y.numpy() - expected.reshape(y.shape)).max() < 0.05
        assert ((y - exact[:count]) ** 2).mean() < 0.01 * (exact**2).mean()
    assert run.last_run is not None and run.last_run.samples == 40
    with pytest.raises(ModelError, match="does not fit the model"):
        run(torch.zeros(2, 1, 8, 9))


def test_structure_of_results(torch: Any) -> None:
    """Check a compiled module that takes several arguments and returns a dictionary."""
    from systola.torch import compile

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = torch.nn.Linear(8, 4), torch.nn.Linear(6, 4)

        def forward(self, x: Any, y: Any) -> Any:
            return {"sum": self.one(x) + self.other(y), "one": torch.relu(self.one(x))}

    module = Two()
    x, y = torch.randn(30, 8), torch.randn(30, 6)
    results = compile(module, x, y, preset="8x8")(x, y)
    with torch.no_grad():
        exact = module(x, y)
    assert list(results) == list(exact)
    for name in exact:
        assert ((results[name] - exact[name]) ** 2).mean() < 0.01 * (exact[name] ** 2).mean()


def test_back_end_of_pytorch(torch: Any) -> None:
    """Check that torch.compile runs a module on the machine, calibrated on the first arguments."""
    module = classifier(torch).eval()
    run = torch.compile(module, backend="systola", dynamic=False, options={"preset": "8x8"})
    x = torch.from_numpy(IMAGES[:16])
    with torch.no_grad():
        exact = module(x)
        for _ in range(2):
            y = run(x)
            assert y.shape == exact.shape and not torch.equal(y, exact)
            assert ((y - exact) ** 2).mean() < 0.01 * (exact**2).mean()


def test_graph_of_which_the_machine_takes_nothing(torch: Any) -> None:
    """Check that a refused graph runs in PyTorch with a warning, and a wrong option is an error."""
    from systola.torch import dynamo_backend

    torch._dynamo.reset()
    run = torch.compile(lambda x: x + 1, backend="systola", dynamic=False)
    with pytest.warns(UserWarning, match="systola: a graph runs in PyTorch: "):
        assert torch.equal(run(torch.tensor([[1, 2]])), torch.tensor([[2, 3]]))
    with pytest.raises(ValueError, match=r"unknown option 'size' \(known: backend, preset\)"):
        dynamo_backend(None, [], options={"size": 3})
