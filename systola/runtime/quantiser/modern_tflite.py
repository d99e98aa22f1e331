# SPDX-License-Identifier: Apache-2.0
"""Changes to files in TensorFlow Lite's format that ai-edge-quantizer needs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.compiler.tflite.reader import IDENTIFIER
from systola.runtime.quantiser.libraries import library

SCHEMA = "ai_edge_litert.schema_py_generated"
BODY = "subgraph "
"""Start of the names of tensors in the bodies of control flow. These tensors stay float32."""
_NO_OFFSET = 1
"""Largest value of a buffer's offset that stands for a buffer in the flatbuffer itself."""


def modern(content: bytes) -> bytes:
    """Return a file in the newer form of the format, as ai-edge-quantizer needs it.

    - Each operator has its code in the newer of two fields. Converters until 2020 only wrote the
      older field, which the quantiser does not read.
    - Each tensor has a name of its own. In a model, bodies of loops may repeat the names of their
      arguments.
    - Weights of int8 between numbers of float32 (dynamic range) become float32, since the quantiser
      chooses their scales.
    """
    schema = library(SCHEMA)
    model = unpacked(content)
    codes = [each.builtinCode for each in model.operatorCodes]
    newer = [max(each.deprecatedBuiltinCode, each.builtinCode) for each in model.operatorCodes]
    narrow = [
        tensor
        for graph in model.subgraphs
        for tensor in graph.tensors
        if _is_coded(schema, model, tensor)
    ]
    names = [tensor.name for tensor in model.subgraphs[0].tensors]
    alike = len({*names}) < len(names)
    if codes == newer and len(model.subgraphs) == 1 and not narrow and not alike:
        return content
    for each, code in zip(model.operatorCodes, newer, strict=True):
        each.builtinCode = code
    taken: set[bytes] = set()
    for place, tensor in enumerate(model.subgraphs[0].tensors):
        if tensor.name in taken:
            tensor.name = f"{place} ".encode() + (tensor.name or b"")
        taken.add(tensor.name)
    for number, graph in enumerate(model.subgraphs[1:], 1):
        for place, tensor in enumerate(graph.tensors):
            tensor.name = f"{BODY}{number} {place} ".encode() + (tensor.name or b"")
    for tensor in narrow:
        numbers = _numbers(schema, model, tensor)
        tensor.type, tensor.quantization = schema.TensorType.FLOAT32, None
        _set_data(schema, model, tensor, numbers)
    for graph in model.subgraphs:
        graph.operators = [
            each for each in graph.operators if not _is_idle(schema, model, graph, each)
        ]
    return packed(model)


def _is_coded(schema: Any, model: Any, tensor: Any) -> bool:
    """Return whether a tensor is a constant of codes with a scale."""
    kinds = (schema.TensorType.INT8, schema.TensorType.UINT8)
    scaled = tensor.quantization is not None and tensor.quantization.scale is not None
    return tensor.type in kinds and scaled and model.buffers[tensor.buffer].data is not None


def _numbers(schema: Any, model: Any, tensor: Any) -> NDArray[np.float32]:
    """Return the numbers that codes with scales stand for."""
    dtype = np.int8 if tensor.type == schema.TensorType.INT8 else np.uint8
    stored = np.asarray(model.buffers[tensor.buffer].data, np.uint8).view(dtype)
    quantisation = tensor.quantization
    scales = np.asarray(quantisation.scale, np.float32)
    zeros = np.zeros(len(scales), np.int64)
    if quantisation.zeroPoint is not None:
        zeros = np.asarray(quantisation.zeroPoint, np.int64)
    shape = [1] * len(tensor.shape)
    if len(scales) > 1:
        shape[quantisation.quantizedDimension] = len(scales)
    codes = stored.astype(np.int64).reshape(tensor.shape) - zeros.reshape(shape)
    return (codes * scales.reshape(shape)).astype(np.float32)


def _is_idle(schema: Any, model: Any, graph: Any, operator: Any) -> bool:
    """Return whether an operator is a DEQUANTIZE of weights that are float32 now.

    The result of such an operator becomes a constant with these weights.
    """
    code = model.operatorCodes[operator.opcodeIndex].builtinCode
    if code != schema.BuiltinOperator.DEQUANTIZE:
        return False
    source, result = (graph.tensors[each[0]] for each in (operator.inputs, operator.outputs))
    data = model.buffers[source.buffer].data
    if source.type != schema.TensorType.FLOAT32 or data is None:
        return False
    _set_data(schema, model, result, np.asarray(data, np.uint8).view(np.float32))
    return True


def _set_data(schema: Any, model: Any, tensor: Any, numbers: NDArray[np.float32]) -> None:
    """Give a tensor a buffer of its own."""
    tensor.buffer = len(model.buffers)
    model.buffers.append(schema.BufferT())
    model.buffers[-1].data = np.ascontiguousarray(numbers).view(np.uint8).reshape(-1)


def replace_constant(model: Any, number: int, numbers: NDArray[np.float32]) -> None:
    """Give the tensor with this number in the first subgraph other content."""
    _set_data(library(SCHEMA), model, model.subgraphs[0].tensors[number], numbers)


def unpacked(content: bytes) -> Any:
    """Return a model in LiteRT's Python classes, in a form that can be packed again."""
    model = library(SCHEMA).ModelT.InitFromPackedBuf(content, 0)
    for buffer in model.buffers:
        # Weights that lie after the flatbuffer in the file would get lost.
        if buffer.offset > _NO_OFFSET:
            buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    return model


def packed(model: Any) -> bytes:
    """Return the content of the file of a model."""
    builder = library("flatbuffers").Builder(1024)
    builder.Finish(model.Pack(builder), IDENTIFIER)
    return bytes(builder.Output())


def widen(schema: Any, model: Any, subgraph: Any) -> None:
    """Replace each DEQUANTIZE of a float16 constant by a constant of float32."""
    operators: list[Any] = []
    for operator in subgraph.operators:
        ends = (operator.inputs, operator.outputs)
        # Operators on variables have no inputs, or no outputs.
        if any(each is None or not len(each) for each in ends):
            operators.append(operator)
            continue
        source, result = (subgraph.tensors[each[0]] for each in ends)
        data = model.buffers[source.buffer].data
        if source.type != schema.TensorType.FLOAT16 or data is None:
            operators.append(operator)
            continue
        wide = np.asarray(data, np.uint8).view(np.float16).astype(np.float32)
        _set_data(schema, model, result, wide)
    subgraph.operators = operators
