# SPDX-License-Identifier: Apache-2.0
"""ONNX's interface of back ends, onnx.backend.base, for the simulated machine.

`systola.onnx_backend.prepare(model).run(inputs)` runs a model of which the machine takes at least
an operator; ONNX Runtime runs the others. A model of which the machine takes nothing, as one of
float32 throughout, is refused with ModelError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep

from systola.compiler.errors import CompileError, ModelError, Refusal

from .onnxruntime import InferenceSession

Inputs = Sequence[Any] | Mapping[str, Any] | NDArray[Any]
"""Arrays in the order of the model's inputs, or by their names, or a single array."""


class PreparedModel(BackendRep):
    """A model that can be run many times."""

    def __init__(self, model: onnx.ModelProto, **options: Any) -> None:
        """Compile `model`; `options` are the keyword arguments of InferenceSession.

        A model that has its weights as inputs is compiled when it runs: programs need the weights.
        """
        self._model = model
        self._options = options
        self._session: InferenceSession | None = None
        self._error: Refusal | None = None
        """The reason why the model needs values of its inputs."""
        constants = {each.name for each in model.graph.initializer}
        self._names = [each.name for each in model.graph.input if each.name not in constants]
        try:
            self._session = InferenceSession(model.SerializeToString(), **options)
        except (CompileError, ModelError) as error:
            if len(self._names) < 2:
                raise
            self._error = error

    @property
    def needs_values(self) -> bool:
        """Whether inputs other than the first have to be constants."""
        return self._session is None

    def run(self, inputs: Inputs, **_: Any) -> tuple[NDArray[Any], ...]:
        """Return the outputs. Raises ModelError where they cannot be had, ValueError for others."""
        if isinstance(inputs, Mapping):
            feed = dict(inputs)
        else:
            arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            feed = dict(zip(self._names, arrays, strict=False))
        if self._session:
            return tuple(self._session.run(None, feed))
        assert self._error is not None
        first = self._names[0]
        values = {name: value for name, value in feed.items() if name != first}
        if first not in feed or not all(isinstance(each, np.ndarray) for each in values.values()):
            raise self._error
        try:
            session = InferenceSession(_bound(self._model, values), **self._options)
        except (CompileError, ModelError) as error:
            raise ModelError(f"{error}, with all inputs but the first as constants") from None
        return tuple(session.run(None, {first: feed[first]}))


class SystolaBackend(Backend):
    """The simulated machine as one of ONNX's back ends."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether there is such a device: the machine is the one called CPU."""
        return device == "CPU"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Return whether the machine takes a part of `model` as it stands."""
        try:
            return not cls.prepare(model, device, **kwargs).needs_values
        except (CompileError, ModelError):
            return False

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """Compile a model; `kwargs` are the keyword arguments of InferenceSession.

        Raises ModelError or CompileError, with the reason, for a model that is not supported.
        """
        if not cls.supports_device(device):
            raise ModelError(f"there is no device '{device}' (known: CPU)")
        return PreparedModel(model, **kwargs)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Inputs, device: str = "CPU", **kwargs: Any
    ) -> tuple[NDArray[Any], ...]:
        """Compile and run a model."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Sequence[NDArray[Any]],
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[NDArray[Any], ...]:
        """Run a single operator, of the version `opset_version`, on arrays for its inputs.

        `outputs_info` has type and shape of each output, None where ONNX can infer them.
        """
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = [name for name in node.input if name]
        sources = [
            helper.make_tensor_value_info(name, _element_type(each.dtype), each.shape)
            for name, each in zip(names, inputs, strict=True)
        ]
        results = [onnx.ValueInfoProto(name=name) for name in node.output]
        if outputs_info:
            results = [
                helper.make_tensor_value_info(name, _element_type(dtype), shape)
                for name, (dtype, shape) in zip(node.output, outputs_info, strict=True)
            ]
        graph = helper.make_graph([node], "node", sources, results)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
        return cls.run_model(onnx.shape_inference.infer_shapes(model), inputs, device, **kwargs)


def _bound(model: onnx.ModelProto, values: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the file of a model with constants in place of some of its inputs."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    # Before, each constant had to be an input, too.
    result.ir_version = max(result.ir_version, 4)
    graph = result.graph
    left = [each for each in graph.input if each.name not in values]
    del graph.input[:]
    graph.input.extend(left)
    graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in values.items())
    return result.SerializeToString()


def _element_type(dtype: np.dtype[Any]) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


is_compatible = SystolaBackend.is_compatible
prepare = SystolaBackend.prepare
run_model = SystolaBackend.run_model
run_node = SystolaBackend.run_node
supports_device = SystolaBackend.supports_device
