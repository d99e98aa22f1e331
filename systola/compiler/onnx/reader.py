# SPDX-License-Identifier: Apache-2.0
"""The reader of ONNX models.

The package `onnx` reads the file and checks it. It is imported only when it is needed, because its
import takes long. The reader itself finds errors that the package does not check for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from systola.compiler.errors import ModelError, located
from systola.compiler.onnx.model import Attribute, Constant, OnnxInput, OnnxModel, OnnxNode
from systola.compiler.printable import printable

DOMAINS = ("", "ai.onnx", "com.microsoft")
LEAST_OPSET = 10
"""First version of ONNX's standard operators that has QuantizeLinear; older models are refused."""
_MAX_DIMENSIONS = 8
_MAX_SIZE = 1 << 31
_NAME_LENGTH = 200
_DAMAGED = "the model is damaged or cut short"

_FIELDS: Mapping[str, str] = {
    "FLOAT": "float_data",
    "DOUBLE": "double_data",
    "INT64": "int64_data",
    "INT32": "int32_data",
    "INT8": "int32_data",
    "UINT8": "int32_data",
    "BOOL": "int32_data",
}
"""Names of the fields that hold the elements of a tensor, by ONNX's name of the element type.

Only tensors without raw bytes in the file use these fields.
"""
ELEMENT_TYPES: Mapping[str, str] = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "INT64": "int64",
    "INT32": "int32",
    "INT8": "int8",
    "UINT8": "uint8",
    "BOOL": "bool",
}
"""numpy's name of each supported element type, by ONNX's name of the same type."""


def read_onnx(content: bytes) -> OnnxModel:
    """Return the model in the content of an .onnx file.

    Raises ModelError if the content is no ONNX model, is damaged, or keeps its weights in other
    files. Functions, sparse tensors, and inputs of unknown size beyond the first dimension are
    refused, too.
    """
    # The package `onnx` has no types for pyright, so its objects are declared as Any.
    onnx: Any = import_module("onnx")
    decode_error: type[Exception] = import_module("google.protobuf.message").DecodeError
    try:
        model: Any = onnx.ModelProto.FromString(content)
    except decode_error:
        raise ModelError(_DAMAGED) from None
    graph = model.graph
    if not graph.node:
        raise ModelError("not an ONNX model, or one without nodes")
    if model.functions or graph.sparse_initializer:
        raise ModelError("functions and sparse tensors are not supported")
    for tensor in _all_tensors(graph):
        if tensor.external_data or tensor.data_location:
            raise ModelError(f"tensor '{_printable(tensor.name)}' lies outside the file")
    try:
        onnx.checker.check_model(model)
    except UnicodeDecodeError:
        # The error's message would quote a name that is no valid text, so the message is not shown.
        raise ModelError(_DAMAGED) from None
    except onnx.checker.ValidationError as error:
        reason = _printable(str(error).strip().split("\n")[0])
        raise ModelError(f"the model is not valid: {reason}") from None
    opsets = {_text(entry.domain): int(entry.version) for entry in model.opset_import}
    opset = opsets.get("", opsets.get("ai.onnx", 0))
    if opset < LEAST_OPSET:
        raise ModelError(f"version {opset} of the operators is not supported")
    reader = _Reader(onnx)
    constants = {_text(tensor.name): reader.constant(tensor) for tensor in graph.initializer}
    inputs = tuple(reader.input(each) for each in graph.input if _text(each.name) not in constants)
    nodes = tuple(reader.node(index, node) for index, node in enumerate(graph.node))
    return OnnxModel(
        opset, inputs, tuple(_text(each.name) for each in graph.output), constants, nodes
    )


def inferred_shapes(content: bytes) -> dict[str, tuple[int, ...]]:
    """Return shapes of results by name, as far as the package `onnx` can infer them.

    `content` is the content of a file that read_onnx has accepted.
    """
    onnx: Any = import_module("onnx")
    try:
        graph = onnx.shape_inference.infer_shapes(onnx.ModelProto.FromString(content)).graph
    except onnx.shape_inference.InferenceError:
        return {}
    shapes = {each.name: each.type.tensor_type.shape.dim for each in graph.value_info}
    shapes |= {each.name: each.type.tensor_type.shape.dim for each in graph.output}
    return {
        _text(name): tuple(int(size.dim_value) for size in sizes)
        for name, sizes in shapes.items()
        if sizes and all(size.dim_value > 0 for size in sizes)
    }


def _all_tensors(graph: Any) -> Iterable[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


class _Reader:
    def __init__(self, onnx: Any) -> None:
        self._types = {number: name for name, number in onnx.TensorProto.DataType.items()}
        self._kinds = {number: name for name, number in onnx.AttributeProto.AttributeType.items()}

    def constant(self, tensor: Any) -> Constant:
        """Return the elements of a constant tensor as an array.

        Raises ModelError if the tensor is damaged or of an unsupported type or shape.
        """
        name = _printable(tensor.name)
        kind = self._types.get(tensor.data_type, f"type {tensor.data_type}")
        if kind not in ELEMENT_TYPES:
            raise ModelError(f"tensor '{name}' is of type {kind}, which is not supported")
        shape = tuple(int(size) for size in tensor.dims)
        if len(shape) > _MAX_DIMENSIONS or any(not 0 <= size < _MAX_SIZE for size in shape):
            raise ModelError(f"tensor '{name}' has the shape {shape}")
        dtype = np.dtype(ELEMENT_TYPES[kind])
        size = int(np.prod(shape, dtype=object)) if shape else 1
        if tensor.HasField("raw_data"):
            data = np.frombuffer(tensor.raw_data, np.uint8)
            if data.size != size * dtype.itemsize:
                raise ModelError(f"tensor '{name}' should have {size * dtype.itemsize} bytes")
            return data.view(dtype.newbyteorder("<")).astype(dtype).reshape(shape)
        data = getattr(tensor, _FIELDS[kind])
        if len(data) != size:
            raise ModelError(f"tensor '{name}' should have {size} elements, it has {len(data)}")
        # Without this line, numpy would warn when it converts some kinds of not-a-number.
        with np.errstate(invalid="ignore"):
            values = np.array(data, np.float64 if dtype.kind == "f" else np.int64)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if bool(((values < limits.min) | (values > limits.max)).any()):
                raise ModelError(f"tensor '{name}' has values that are no {dtype}")
        with np.errstate(invalid="ignore"):
            return values.astype(dtype).reshape(shape)

    def input(self, value: Any) -> OnnxInput:
        """Return an input of the model; raise ModelError if its type or shape is not supported."""
        name = _printable(value.name)
        tensor = value.type.tensor_type
        kind = self._types.get(tensor.elem_type, f"type {tensor.elem_type}")
        if not value.type.HasField("tensor_type") or kind not in ELEMENT_TYPES:
            raise ModelError(f"the input '{name}' is of type {kind}, which is not supported")
        if not tensor.HasField("shape") or len(tensor.shape.dim) > _MAX_DIMENSIONS:
            raise ModelError(f"the input '{name}' has no shape")
        shape: list[int] = []
        for axis, dimension in enumerate(tensor.shape.dim):
            size = int(dimension.dim_value) if dimension.HasField("dim_value") else 0
            if size < 1 and axis == 0:
                size = 1
            if not 1 <= size < _MAX_SIZE:
                raise ModelError(f"the size of dimension {axis} of the input '{name}' is not known")
            shape.append(size)
        return OnnxInput(_text(value.name), ELEMENT_TYPES[kind], tuple(shape))

    def node(self, index: int, node: Any) -> OnnxNode:
        """Return a node; attributes of types that no supported operator has are left out."""
        attributes: dict[str, Attribute] = {}
        result = OnnxNode(
            index,
            _printable(node.op_type),
            _printable(node.name),
            tuple(_text(name) for name in node.input),
            tuple(_text(name) for name in node.output),
            attributes,
        )
        with located(result, ModelError):
            if _text(node.domain) not in DOMAINS:
                raise ModelError(f"the domain {_printable(node.domain)} is not supported")
            for each in node.attribute:
                value = self._attribute(each)
                if value is not None:
                    attributes[_text(each.name)] = value
        return result

    def _attribute(self, attribute: Any) -> Attribute | None:
        match self._kinds.get(attribute.type):
            case "INT":
                return int(attribute.i)
            case "FLOAT":
                return float(attribute.f)
            case "STRING":
                return _printable(attribute.s)
            case "INTS":
                return tuple(int(value) for value in attribute.ints)
            case "FLOATS":
                return tuple(float(value) for value in attribute.floats)
            case "TENSOR":
                return self.constant(attribute.t)
            case _:
                return None


def _text(name: str | bytes) -> str:
    """Return a name in the file as text; the package gives bytes for a name that is no text."""
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _printable(name: str | bytes) -> str:
    """Return at most _NAME_LENGTH characters of a name in the file, in printable form."""
    return printable(_text(name)[:_NAME_LENGTH])
