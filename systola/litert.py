# SPDX-License-Identifier: Apache-2.0
"""LiteRT's Interpreter on the simulated machine: a script changes one line, its import.

`from systola.litert import Interpreter` stands for `from ai_edge_litert.interpreter import
Interpreter`, `tf.lite.Interpreter` or `tflite_runtime.interpreter.Interpreter`. LiteRT itself need
not be installed, except for networks of which the machine takes only a part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from systola.arch.config import DEFAULT_PRESET, Config
from systola.compiler.interpreted import InterpretedStage
from systola.compiler.tflite.details import read_details
from systola.compiler.tflite.graph import NUMPY_TYPES
from systola.compiler.tflite.reader import read_tflite
from systola.runtime.api import configuration
from systola.runtime.compile_content import ReadModel, read_for
from systola.runtime.compiled_model import CompiledModel, even_batch
from systola.runtime.make_backend import make_backend
from systola.runtime.run_result import RunResult
from systola.runtime.samples import output_shapes
from systola.runtime.state import State

__all__ = ["Interpreter", "SignatureRunner"]


class Interpreter:
    """A .tflite model on a simulated machine, with the interface of LiteRT's Interpreter.

    Results equal LiteRT's reference kernels, byte by byte. Values between operators stay on
    the machine, so `get_tensor` has inputs, outputs and constants only. `resize_tensor_input`
    changes the number of samples, the first size, and no other.
    """

    def __init__(
        self,
        model_path: str | PathLike[str] | None = None,
        model_content: bytes | None = None,
        experimental_delegates: object = None,
        num_threads: int | None = None,
        experimental_op_resolver_type: object = None,
        experimental_preserve_all_tensors: bool = False,
        experimental_disable_delegate_clustering: bool = False,
        experimental_default_delegate_latest_features: bool = False,
        experimental_compress_quantization_zero_points: bool = False,
        experimental_disable_delegate_node_fusion: bool = False,
        experimental_force_delegate_node_profiling: bool = False,
        *,
        preset: str | Config = DEFAULT_PRESET,
        backend: str = "iss",
    ) -> None:
        """Read the file `model_path`, or the content of one.

        `preset` is the machine, and `backend` is "iss", its golden model, or "rtl", the simulated
        RTL. Arguments that change only the speed of LiteRT have no effect: threads, delegates,
        kernels. Raises ValueError, as LiteRT does, for wrong arguments and damaged files.
        """
        if num_threads is not None:
            if not isinstance(num_threads, int):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError("type of num_threads should be int")
            if num_threads < 1:
                raise ValueError("num_threads should >= 1")
        if model_path and model_content:
            raise ValueError("Can't both provide `model_path` and `model_content`")
        if not model_path and not model_content:
            raise ValueError("`model_path` or `model_content` must be specified.")
        self._content = _read(model_path) if model_path else bytes(model_content or b"")
        self._config = configuration(preset)
        self._backend = make_backend(backend, self._config)
        self._graph = read_tflite(self._content, main=True)
        self._details = read_details(self._content)
        self._samples: dict[int, int] = {}
        """The number of samples of an input, where it was resized, by the number of its tensor."""
        self._values: dict[int, NDArray[Any]] = {}
        """Inputs and outputs by the numbers of their tensors; empty before allocate_tensors."""
        self._shapes: dict[int, tuple[int, ...]] = {}
        """Their shapes once they are allocated."""
        self._read: ReadModel | None = None
        self._models: dict[int, CompiledModel] = {}
        """Compiled models by the number of samples."""
        self._has_run = False
        self._before: list[list[NDArray[Any]]] = []
        """Inputs of all invocations so far, of a model with variables in an interpreter."""
        self._state: State | None = None
        """Values of the variables, if the machine has them all."""
        self.last_run: RunResult | None = None
        """Cycles and layers of the last invocation."""

    def allocate_tensors(self) -> None:
        """Compile the model for the shapes of its inputs.

        Raises ValueError where the machine does not take it, with the reason in one line.
        """
        model = self._model()
        count = self._count()
        given = [each.shape if count is None else (count, *each.shape[1:]) for each in model.inputs]
        results = output_shapes(model.inputs, model.outputs, given)
        self._shapes = {
            **dict(zip(self._graph.outputs, results, strict=True)),
            **dict(zip(self._graph.inputs, given, strict=True)),
        }
        self._values = {
            number: np.zeros(shape, self._graph.tensors[number].dtype)
            for number, shape in self._shapes.items()
        }

    def get_input_details(self) -> list[dict[str, Any]]:
        """Return a dictionary for each input, with the entries that LiteRT has."""
        return [self._describe(number) for number in self._graph.inputs]

    def get_output_details(self) -> list[dict[str, Any]]:
        """Return a dictionary for each output, with the entries that LiteRT has."""
        return [self._describe(number) for number in self._graph.outputs]

    def get_tensor_details(self, subgraph_index: int = 0) -> list[dict[str, Any]]:
        """Return a dictionary for each tensor of the file; shapes of results are as stored."""
        if subgraph_index != 0:
            raise ValueError(f"subgraph_index is out of range: {subgraph_index}")
        return [
            self._describe(number)
            for number, tensor in enumerate(self._graph.tensors)
            if tensor.dtype in NUMPY_TYPES
        ]

    def set_tensor(self, tensor_index: int, value: ArrayLike) -> None:
        """Set an input. Raises ValueError for another type, shape or tensor."""
        place = self._place(tensor_index)
        if tensor_index not in self._graph.inputs:
            raise ValueError(f"Cannot set tensor: tensor {tensor_index} is not an input")
        array = np.asarray(value)
        name = self._details.names[tensor_index]
        if array.dtype != place.dtype:
            raise ValueError(
                f"Cannot set tensor: Got value of type {array.dtype.name.upper()} but expected "
                f"type {place.dtype.name.upper()} for input {tensor_index}, name: {name}"
            )
        if array.ndim != place.ndim:
            raise ValueError(
                f"Cannot set tensor: Dimension mismatch. Got {array.ndim} but expected "
                f"{place.ndim} for input {tensor_index}."
            )
        for axis, (size, expected) in enumerate(zip(array.shape, place.shape, strict=True)):
            if size != expected:
                raise ValueError(
                    f"Cannot set tensor: Dimension mismatch. Got {size} but expected {expected} "
                    f"for dimension {axis} of input {tensor_index}."
                )
        place[...] = array

    def resize_tensor_input(
        self, input_index: int, tensor_size: Sequence[int], strict: bool = False
    ) -> None:
        """Change the first size of an input, the number of samples.

        `strict` allows this only where the file leaves that size open. Raises ValueError for any
        other size: programs of the machine are made for the sizes in the file.
        """
        if input_index not in self._graph.inputs:
            raise ValueError(f"tensor {input_index} is not an input")
        sizes = tuple(int(size) for size in tensor_size)
        stored = self._stored_shape(input_index)
        signature = self._details.shape_signatures[input_index] or stored
        if len(sizes) != len(stored) or sizes[1:] != stored[1:] or (sizes and sizes[0] < 1):
            raise ValueError(
                f"Cannot resize input {input_index} of shape {stored} to {sizes}: only the first "
                "size can change, the number of samples"
            )
        if sizes != stored and (stored[0] != 1 or (strict and signature[0] != -1)):
            raise ValueError(
                f"Cannot resize input {input_index}: its first size is fixed to {stored[0]}"
            )
        self._values = {}
        self._shapes[input_index] = sizes
        if sizes == stored:
            self._samples.pop(input_index, None)
        else:
            self._samples[input_index] = sizes[0]

    def invoke(self) -> None:
        """Run the model on the inputs that are set.

        A model with variables keeps their values. If an interpreter runs a part of it, it runs on
        the inputs of all invocations so far, and takes longer each time. All other state is new in
        each run of the machine. Raises RuntimeError
        before allocate_tensors. An operator with state, such as an LSTM, runs once between two
        calls of reset_all_variables; RuntimeError is raised otherwise.
        """
        if not self._values:
            raise RuntimeError("Invoke called on model that is not ready.")
        if self._details.has_state and self._has_run:
            raise RuntimeError(
                "The model has operators with state, with which each run of the machine begins "
                "anew: call reset_all_variables() first"
            )
        inputs = [self._values[number] for number in self._graph.inputs]
        model = self._model()
        interpreted = any(isinstance(each, InterpretedStage) for each in model.compiled.stages)
        if self._details.has_variables and interpreted:
            self._before.append([each.copy() for each in inputs])
            inputs = [np.concatenate(each) for each in zip(*self._before, strict=True)]
        if not interpreted:
            self._state = self._state or model.state()
        self.last_run = model.run(*inputs, backend=self._backend, state=self._state)
        self._has_run = True
        for number, result in zip(self._graph.outputs, self.last_run.outputs, strict=True):
            place = self._values[number]
            place[...] = result.reshape(-1, *place.shape)[-1]

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> NDArray[Any]:
        """Return a copy of an input, an output or a constant. Raises ValueError for others."""
        if subgraph_index != 0:
            raise ValueError(f"Invalid subgraph index {subgraph_index}")
        return self._place(tensor_index).copy()

    def tensor(self, tensor_index: int) -> Callable[[], NDArray[Any]]:
        """Return a function that returns the array of an input or output, not a copy."""
        return lambda: self._place(tensor_index)

    def reset_all_variables(self) -> None:
        """Begin with new state."""
        self._has_run = False

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Return the names of inputs and outputs of each signature, by its name."""
        return {
            key: {"inputs": list(each.inputs), "outputs": list(each.outputs)}
            for key, each in self._details.signatures.items()
        }

    def get_signature_runner(self, signature_key: str | None = None) -> SignatureRunner:
        """Return a function that runs the model with arguments by name.

        `signature_key` may be None where there is one signature. Raises ValueError for others.
        """
        signatures = self._details.signatures
        if signature_key is None:
            if len(signatures) != 1:
                raise ValueError(
                    "SignatureDef signature_key is None and model has "
                    f"{len(signatures)} Signatures. None is only allowed when the model has 1 "
                    "SignatureDef"
                )
            signature_key = next(iter(signatures))
        if signature_key not in signatures:
            raise ValueError(f'Invalid signature_key provided: "{signature_key}".')
        signature = signatures[signature_key]
        return SignatureRunner(self, self._describe, signature.inputs, signature.outputs)

    def _count(self) -> int | None:
        """Return the number of samples; None where no input was resized."""
        if not self._samples:
            return None
        counts = {self._samples.get(number, 1) for number in self._graph.inputs}
        if len(counts) > 1:
            raise RuntimeError("the inputs have different numbers of samples")
        return counts.pop()

    def _model(self) -> CompiledModel:
        """Return the model, compiled for as many samples as there are."""
        count = self._count() or 1
        if count not in self._models:
            if self._read is None:
                self._read = read_for(self._config, self._content, None)
            self._models[count] = self._read.compile(even_batch(count))
        return self._models[count]

    def _place(self, number: int) -> NDArray[Any]:
        """Return the array of a tensor. Raises ValueError where there is none."""
        tensors = self._graph.tensors
        if not 0 <= number < len(tensors):
            raise ValueError(
                f"Invalid tensor index {number} exceeds max tensor index {len(tensors)}"
            )
        data = tensors[number].data
        if data is not None:
            return data
        if number not in (*self._graph.inputs, *self._graph.outputs):
            raise ValueError(f"Tensor {number} stays on the machine: it is no input or output")
        if not self._values:
            raise ValueError("Tensor data is null. Run allocate_tensors() first")
        return self._values[number]

    def _stored_shape(self, number: int) -> tuple[int, ...]:
        return self._graph.tensors[number].shape

    def _describe(self, number: int) -> dict[str, Any]:
        """Return the details of a tensor, as LiteRT has them."""
        tensor = self._graph.tensors[number]
        shape = self._shapes.get(number, tensor.shape)
        scales = np.array(tensor.scales, np.float32)
        zero_points = np.array(tensor.zero_points, np.int32)
        single = len(scales) == 1
        return {
            "name": self._details.names[number],
            "index": number,
            "shape": np.array(shape, np.int32),
            "shape_signature": np.array(self._details.shape_signatures[number] or shape, np.int32),
            "dtype": np.dtype(tensor.dtype).type,
            "quantization": (float(scales[0]), int(zero_points[0])) if single else (0.0, 0),
            "quantization_parameters": {
                "scales": scales,
                "zero_points": zero_points,
                "quantized_dimension": tensor.axis,
                "block_size": 0,
            },
            "sparsity_parameters": {},
        }


class SignatureRunner:
    """A function of a model, with arguments and results by name."""

    def __init__(
        self,
        interpreter: Interpreter,
        describe: Callable[[int], dict[str, Any]],
        inputs: Mapping[str, int],
        outputs: Mapping[str, int],
    ) -> None:
        """Make the function; Interpreter.get_signature_runner calls this."""
        self._interpreter = interpreter
        self._describe = describe
        self._inputs = inputs
        self._outputs = outputs

    def __call__(self, **kwargs: ArrayLike) -> dict[str, NDArray[Any]]:
        """Return the results for arguments, with any number of samples as their first size."""
        if len(kwargs) != len(self._inputs):
            raise ValueError(
                "Invalid number of inputs provided for running a SignatureDef, expected "
                f"{len(self._inputs)} vs provided {len(kwargs)}"
            )
        arrays = {name: np.asarray(value) for name, value in kwargs.items()}
        for name, value in arrays.items():
            if name not in self._inputs:
                raise ValueError(f"Invalid Input name ({name}) for SignatureDef")
            self._interpreter.resize_tensor_input(self._inputs[name], value.shape)
        self._interpreter.allocate_tensors()
        for name, value in arrays.items():
            self._interpreter.set_tensor(self._inputs[name], value)
        self._interpreter.invoke()
        return {name: self._interpreter.get_tensor(n) for name, n in self._outputs.items()}

    def get_input_details(self) -> dict[str, dict[str, Any]]:
        """Return the details of each argument, by its name."""
        return {name: self._describe(number) for name, number in self._inputs.items()}

    def get_output_details(self) -> dict[str, dict[str, Any]]:
        """Return the details of each result, by its name."""
        return {name: self._describe(number) for name, number in self._outputs.items()}


def _read(path: str | PathLike[str]) -> bytes:
    """Return the content of a file. Raises ValueError where that fails, as LiteRT does."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"Could not open '{path}': {error.strerror or error}") from None
