# SPDX-License-Identifier: Apache-2.0
"""A writer of small ONNX models, and their results in ONNX Runtime, to which tests compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from systola.verif.compiler.onnx_session import optimised_kinds, run_samples

_WITHOUT = ("Pad_Fusion",)
"""Names of the optimisations of ONNX Runtime that stay off.

Pad_Fusion puts the pads of a Pad into a pool, which refuses pads as large as its window.
"""

OPSET = 17
IR_VERSION = 9


class OnnxWriter:
    """A writer of an ONNX model; its nodes are added in the order of their execution."""

    def __init__(self, opset: int = OPSET) -> None:
        self._opset = opset
        self._count = 0
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []
        self.nodes: list[onnx.NodeProto] = []

    def _name(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def input(self, shape: tuple[int | str, ...], dtype: str = "int8") -> str:
        """Add an input of the model and return its name."""
        name = self._name()
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, value: NDArray[Any] | np.generic) -> str:
        """Add a constant as an initialiser of the model, and return its name."""
        name = self._name()
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, results: int = 1, **attributes: Any) -> Any:
        """Add a node; return the name of its result, or a list of names for several results."""
        names = [self._name() for _ in range(results)]
        domain = "com.microsoft" if kind.startswith("QLinear") or kind == "QGemm" else ""
        if kind in ("QLinearConv", "QLinearMatMul"):
            domain = ""
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        return names[0] if results == 1 else names

    def choice(self, flag: str, then: str, otherwise: str, source: str) -> str:
        """Add an If on `flag`: a node of kind `then` or `otherwise` takes the tensor `source`."""
        graphs = [
            helper.make_graph(
                [helper.make_node(kind, [source], [kind])],
                kind,
                [],
                [onnx.ValueInfoProto(name=kind)],
            )
            for kind in (then, otherwise)
        ]
        return self.node("If", flag, then_branch=graphs[0], else_branch=graphs[1])

    def scale(self, scale: Any, zero_point: Any, dtype: str) -> tuple[str, str]:
        """Add a scale and a zero point as constants and return their names.

        If `scale` is an array, each constant has a value for each channel.
        """
        scales = np.asarray(scale, np.float32)
        return self.constant(scales), self.constant(
            np.broadcast_to(np.asarray(zero_point, dtype), scales.shape).copy()
        )

    def dequantise(self, codes: str, scale: Any, zero_point: Any, dtype: str, **more: Any) -> str:
        """Add a DequantizeLinear and return the name of its result."""
        return self.node("DequantizeLinear", codes, *self.scale(scale, zero_point, dtype), **more)

    def quantise(self, numbers: str, scale: Any, zero_point: Any, dtype: str) -> str:
        """Add a QuantizeLinear and return the name of its result."""
        return self.node("QuantizeLinear", numbers, *self.scale(scale, zero_point, dtype))

    def content(self, *outputs: tuple[str, str, tuple[int | str, ...] | None]) -> bytes:
        """Return the model as the content of a file; an output is given by name, type and shape."""
        results = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
            )
            for name, dtype, shape in outputs
        ]
        graph = helper.make_graph(self.nodes, "graph", self._inputs, results, self._constants)
        opsets = [helper.make_opsetid("", self._opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        return model.SerializeToString()


def interpret(content: bytes, *inputs: NDArray[Any], optimised: bool = True) -> NDArray[Any]:
    """Return a model's first output in ONNX Runtime; `inputs` have a row for each sample.

    With `optimised` all optimisations are on: DequantizeLinear, an operator and QuantizeLinear
    become one QLinear operator. Otherwise all are off.
    """
    return run_samples(content, inputs, optimised=optimised, without=_WITHOUT)[0]


def executed_kinds(content: bytes) -> set[str]:
    """Return the kinds of operators that `interpret` executes after it has optimised a model."""
    return optimised_kinds(content, without=_WITHOUT)
