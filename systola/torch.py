# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules on the simulated machine, quantised on the way.

`systola.torch.compile(module, samples)` returns a function that runs on the machine. With the
package installed, `torch.compile(module, backend="systola")` does so, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import DEFAULT_PRESET, Config
from systola.compiler.errors import CompileError, ModelError
from systola.runtime.api import configuration
from systola.runtime.compile_content import ReadModel, read_for
from systola.runtime.compiled_model import CompiledModel, even_batch
from systola.runtime.make_backend import make_backend
from systola.runtime.quantiser.exported import export_module
from systola.runtime.quantiser.quantize import (
    QuantizedModel,
    quantize,
    quantize_float,
    read_float,
)
from systola.runtime.run_result import RunResult

__all__ = ["CompiledModule", "compile", "dynamo_backend"]

try:
    # Optional: from here on its objects are Any.
    torch: Any = import_module("torch")
except ModuleNotFoundError:
    raise ImportError("systola.torch takes PyTorch: pip install torch onnxscript") from None


class CompiledModule:
    """A module that has been quantised and runs on a machine."""

    def __init__(
        self, quantized: QuantizedModel, tree: Any, preset: str | Config, backend: str
    ) -> None:
        """Compile a network; `tree` has the structure of the module's results, see pytree."""
        self.quantized = quantized
        """The int8 network in ONNX, and how near it is to the module."""
        config = configuration(preset)
        self._backend = make_backend(backend, config)
        self._tree = tree
        self._read: ReadModel = read_for(config, quantized.content, None)
        self._models: dict[int, CompiledModel] = {1: self._read.compile(1)}
        self.last_run: RunResult | None = None
        """Cycles and layers of the last call."""

    def __call__(self, *x: Any) -> Any:
        """Return the module's results for tensors with samples along their first axis.

        Raises ModelError where these do not fit the module.
        """
        arrays = [_array(each) for each in x]
        inputs = self._models[1].inputs
        whole = not arrays or arrays[0].shape == inputs[0].shape
        batch = 1 if whole else even_batch(max(1, len(arrays[0])))
        if batch not in self._models:
            self._models[batch] = self._read.compile(batch)
        self.last_run = self._models[batch].run(*arrays, backend=self._backend)
        device = x[0].device if x and isinstance(x[0], torch.Tensor) else None
        results = [torch.from_numpy(each).to(device) for each in self.last_run.outputs]
        return torch.utils._pytree.tree_unflatten(results, self._tree)


def compile(
    module: Any, *samples: Any, preset: str | Config = DEFAULT_PRESET, backend: str = "iss"
) -> CompiledModule:
    """Quantise a module on samples, and return a function that runs it on a machine.

    `samples` has a tensor or array for each argument of the module, samples along the first axis:
    some hundreds that are typical of the use. `preset` is the machine, and `backend` is "iss", its
    golden model, or "rtl", the simulated RTL. The module computes as after `eval()`, without
    gradients. Raises ModelError or CompileError for a module that is not supported.
    """
    quantized = quantize(module, *(_array(each) for each in samples))
    first = [torch.from_numpy(_array(each)[:1].copy()) for each in samples]
    training = module.training
    with torch.no_grad():
        results = module.eval()(*first)
    module.train(training)
    return CompiledModule(quantized, _structure(results), preset, backend)


def dynamo_backend(
    graph: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph for torch.compile, quantised on the arguments of the first call.

    `options` may have `preset` and `backend`, as for compile. A graph of which the machine takes
    nothing runs in PyTorch, with a warning that has the reason.
    """
    settings: dict[str, Any] = {"preset": DEFAULT_PRESET, "backend": "iss", **(options or {})}
    if unknown := settings.keys() - {"preset", "backend"}:
        raise ValueError(f"unknown option '{min(unknown)}' (known: backend, preset)")
    try:
        return _compiled_graph(graph, example_inputs, **settings)
    except (CompileError, ModelError) as error:
        warnings.warn(f"systola: a graph runs in PyTorch: {error}", stacklevel=2)
        return graph


def _compiled_graph(
    graph: Any, example_inputs: Sequence[Any], preset: str | Config, backend: str
) -> Callable[..., Any]:
    """Return the function of a graph. Raises ModelError or CompileError for one that is refused."""
    if not all(isinstance(each, torch.Tensor) for each in example_inputs):
        raise ModelError("sizes change from call to call: torch.compile(..., dynamic=False)")
    places = [n for n, each in enumerate(example_inputs) if not _is_constant(each)]
    module = _with_constants(graph, example_inputs, places)
    with torch.no_grad():
        results = module(*(example_inputs[n] for n in places))
    arrays = [_array(example_inputs[n]) for n in places]
    content = export_module(module, arrays, {})
    quantized = quantize_float(read_float(content), [each[np.newaxis] for each in arrays])
    compiled = CompiledModule(quantized, _structure(results), preset, backend)

    def run(*arguments: Any) -> Any:
        """Run the graph on arguments, of which the constants do not matter."""
        return compiled(*(arguments[n] for n in places))

    return run


def _is_constant(tensor: Any) -> bool:
    """Return whether an argument of a graph is a parameter or buffer of the module."""
    return isinstance(tensor, torch.nn.Parameter) or hasattr(tensor, "_dynamo_static_input_type")


def _with_constants(graph: Any, inputs: Sequence[Any], places: Sequence[int]) -> Any:
    """Return a module with arguments for `places` only; its buffers stand for the others."""

    def forward(self: Any, *arguments: Any) -> Any:
        given = dict(zip(places, arguments, strict=True))
        return self.graph(
            *(
                given[number] if number in given else getattr(self, f"constant_{number}")
                for number in range(len(inputs))
            )
        )

    bound: Any = type("Bound", (torch.nn.Module,), {"forward": forward})()
    bound.graph = graph
    for number, each in enumerate(inputs):
        if number not in places:
            bound.register_buffer(f"constant_{number}", each.detach())
    return bound


def _structure(results: Any) -> Any:
    """Return the structure of a module's results."""
    return torch.utils._pytree.tree_flatten(results)[1]


def _array(tensor: Any) -> NDArray[Any]:
    """Return a tensor's values, without its gradient."""
    return np.asarray(tensor.detach().cpu() if isinstance(tensor, torch.Tensor) else tensor)
