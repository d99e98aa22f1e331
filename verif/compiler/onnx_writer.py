# SPDX-License-Identifier: Apache-2.0
"""Writes small ONNX models, and runs them on ONNX Runtime, the referee."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from systola.verif.compiler.onnx_session import optimised_kinds, run_samples

_WITHOUT = ("Pad_Fusion",)
"""It would put the pads of a Pad into a pool that refuses pads as large as its window."""

OPSET = 17
IR_VERSION = 9


class OnnxWriter:
    """A model. Tensors are named as they come; nodes are added in the order of execution."""

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
        """Adds an input of the model; its name."""
        name = self._name()
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def constant(self, value: NDArray[Any] | np.generic) -> str:
        """Adds an initialiser; its name."""
        name = self._name()
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, results: int = 1, **attributes: Any) -> Any:
        """Adds a node; the name of its result, or a list of the names of several."""
        names = [self._name() for _ in range(results)]
        domain = "com.microsoft" if kind.startswith("QLinear") or kind == "QGemm" else ""
        if kind in ("QLinearConv", "QLinearMatMul"):
            domain = ""
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        return names[0] if results == 1 else names

    def choice(self, flag: str, then: str, otherwise: str, source: str) -> str:
        """Add an If between two kinds of nodes of one input, which it takes from outside."""
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
        """Adds a scale and a zero point, or one for each channel; their names."""
        scales = np.asarray(scale, np.float32)
        return self.constant(scales), self.constant(
            np.broadcast_to(np.asarray(zero_point, dtype), scales.shape).copy()
        )

    def dequantise(self, codes: str, scale: Any, zero_point: Any, dtype: str, **more: Any) -> str:
        """Adds a DequantizeLinear."""
        return self.node("DequantizeLinear", codes, *self.scale(scale, zero_point, dtype), **more)

    def quantise(self, numbers: str, scale: Any, zero_point: Any, dtype: str) -> str:
        """Adds a QuantizeLinear."""
        return self.node("QuantizeLinear", numbers, *self.scale(scale, zero_point, dtype))

    def content(self, *outputs: tuple[str, str, tuple[int | str, ...] | None]) -> bytes:
        """The model as the content of a file; outputs have a name, a type and a shape."""
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
    """Outputs for samples of each input, each of the model's shape, with all optimisations or none.

    Optimised, DequantizeLinear, an operator and QuantizeLinear become one QLinear operator.
    """
    return run_samples(content, inputs, optimised=optimised, without=_WITHOUT)[0]


def executed_kinds(content: bytes) -> set[str]:
    """The operators that `interpret` executes, optimised."""
    return optimised_kinds(content, without=_WITHOUT)
