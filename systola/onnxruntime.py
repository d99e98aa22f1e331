# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's InferenceSession on the simulated machine: a script changes one line, its import.

`import systola.onnxruntime as ort` stands for `import onnxruntime as ort`. ONNX Runtime itself need
not be installed, except for networks of which the machine takes only a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from systola.arch.config import DEFAULT_PRESET, Config
from systola.compiler.errors import ModelError
from systola.compiler.operations import Value
from systola.compiler.semantics import Semantics
from systola.runtime.api import configuration
from systola.runtime.compile_content import read_for
from systola.runtime.compiled_model import CompiledModel, even_batch
from systola.runtime.make_backend import make_backend
from systola.runtime.run_result import RunResult

__all__ = [
    "GraphOptimizationLevel",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "SessionOptions",
    "get_available_providers",
]

PROVIDER = "SystolaExecutionProvider"
"""The name by which a session calls the machine."""
_NO_VERSION = 2**63 - 1
"""The version of a model that has none, in ONNX Runtime."""
_TYPES = {"float32": "float", "float64": "double"}
"""Names of types that ONNX Runtime and numpy do not have in common."""


class GraphOptimizationLevel(Enum):
    """Levels of ONNX Runtime, without effect here: results equal the highest level."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class SessionOptions:
    """Options of ONNX Runtime, such as `intra_op_num_threads`, without effect here."""

    def __init__(self) -> None:
        """Make options; any attribute can be set."""
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model."""

    name: str
    type: str
    """Type as ONNX Runtime spells it, such as tensor(float)."""
    shape: list[int | str | None]
    """Sizes; a name or None for an open one."""


@dataclass(frozen=True, kw_only=True)
class ModelMetadata:
    """Descriptions of a model."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict[str, str])


class InferenceSession:
    """A quantised .onnx model on a simulated machine, with the interface of ONNX Runtime's class.

    Results equal ONNX Runtime's on the CPU with all its optimisations, see docs/onnx.md.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | PathLike[str],
        sess_options: object = None,
        providers: Sequence[object] | None = None,
        provider_options: Sequence[object] | None = None,
        *,
        preset: str | Config = DEFAULT_PRESET,
        backend: str = "iss",
        **kwargs: object,
    ) -> None:
        """Read and compile the file at a path, or the content of one.

        `preset` is the machine, and `backend` is "iss", its golden model, or "rtl", the simulated
        RTL. All other arguments are accepted without effect, as ONNX Runtime does with `kwargs`.
        Raises OSError where there is no such file, and TypeError for anything but a path or bytes.
        A model that is damaged or not supported raises ValueError.
        """
        if isinstance(path_or_bytes, bytes):
            content = path_or_bytes
        elif isinstance(path_or_bytes, str | PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
            content = Path(path_or_bytes).read_bytes()
        else:
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        try:
            proto = onnx.load_from_string(content)
        except DecodeError:
            raise ModelError("Failed to load model because protobuf parsing failed.") from None
        config = configuration(preset)
        self._backend = make_backend(backend, config)
        self._read = read_for(config, content, Semantics.ONNX)
        model = self._read.compile(1)
        self._models: dict[int, CompiledModel] = {1: model}
        """Compiled models by the number of samples in a program."""
        self._options = sess_options if sess_options is not None else SessionOptions()
        constants = {each.name for each in proto.graph.initializer}
        inputs = [each for each in proto.graph.input if each.name not in constants]
        self._inputs = list(map(_node, inputs, model.inputs))
        self._outputs = list(map(_node, proto.graph.output, model.outputs))
        self._metadata = ModelMetadata(
            producer_name=proto.producer_name,
            graph_name=proto.graph.name,
            domain=proto.domain,
            description=proto.doc_string,
            graph_description=proto.graph.doc_string,
            version=proto.model_version if proto.HasField("model_version") else _NO_VERSION,
            custom_metadata_map={each.key: each.value for each in proto.metadata_props},
        )
        self.last_run: RunResult | None = None
        """Cycles and layers of the last run."""

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: object = None,
    ) -> list[NDArray[Any]]:
        """Return the outputs of some names, all for None, for arrays by the names of the inputs.

        Raises ValueError for a name that is missing or unknown, and for another type or shape.
        """
        if isinstance(output_names, str):
            raise TypeError("output names are a sequence of names, not one name")
        names = [each.name for each in self._outputs]
        wanted = list(output_names or names)
        for name in wanted:
            if name not in names:
                raise ValueError(f"Invalid output name:{name}")
        known = [each.name for each in self._inputs]
        if missing := [name for name in known if name not in input_feed]:
            raise ValueError(
                f"Required inputs ({missing}) are missing from input feed ({list(input_feed)})."
            )
        for name in input_feed:
            if name not in known:
                raise ValueError(f"Invalid input name: {name}")
        values = self._models[1].inputs
        arrays = [
            _array(node, value, input_feed[node.name])
            for node, value in zip(self._inputs, values, strict=True)
        ]
        first = arrays[0].shape if arrays else ()
        count = first[0] if first and arrays[0].shape != values[0].shape else 1
        if not count:
            raise ValueError("the inputs have no samples")
        self.last_run = self._model(count).run(*arrays, backend=self._backend)
        results = dict(zip(names, self.last_run.outputs, strict=True))
        return [results[name] for name in wanted]

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs."""
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs."""
        return self._outputs

    def get_providers(self) -> list[str]:
        """Return the name of the machine."""
        return get_available_providers()

    def get_session_options(self) -> object:
        """Return the options that were given."""
        return self._options

    def get_modelmeta(self) -> ModelMetadata:
        """Return the descriptions in the file."""
        return self._metadata

    def _model(self, count: int) -> CompiledModel:
        """Return the model, compiled for as many samples as there are."""
        batch = even_batch(count)
        if batch not in self._models:
            self._models[batch] = self._read.compile(batch)
        return self._models[batch]


def get_available_providers() -> list[str]:
    """Return the name of the machine."""
    return [PROVIDER]


def _node(info: onnx.ValueInfoProto, value: Value) -> NodeArg:
    """Return an input or output of a model, with the sizes of the file where it has them."""
    stored = info.type.tensor_type
    shape: list[int | str | None] = list(value.shape)
    if stored.HasField("shape"):
        shape = [
            each.dim_value if each.HasField("dim_value") else each.dim_param or None
            for each in stored.shape.dim
        ]
    return NodeArg(info.name, f"tensor({_TYPES.get(value.dtype, value.dtype)})", shape)


def _array(node: NodeArg, value: Value, given: Any) -> NDArray[Any]:
    """Return an input as an array. Raises ValueError for another type or shape."""
    listed = not isinstance(given, np.ndarray)
    array: NDArray[Any] = np.asarray(given, value.dtype if listed else None)
    if array.dtype != value.dtype:
        raise ValueError(
            f"Unexpected input data type. Actual: ({array.dtype}) , expected: ({node.type})"
        )
    if array.ndim != len(node.shape):
        raise ValueError(
            f"Invalid rank for input: {node.name} Got: {array.ndim} Expected: {len(node.shape)}"
        )
    for axis, (size, expected) in enumerate(zip(array.shape, node.shape, strict=True)):
        if isinstance(expected, int) and size != expected:
            raise ValueError(
                f"Got invalid dimensions for input: {node.name} for the following indices "
                f"index: {axis} Got: {size} Expected: {expected}"
            )
    return array
