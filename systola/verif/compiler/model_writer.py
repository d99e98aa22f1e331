# SPDX-License-Identifier: Apache-2.0
"""A writer of small TensorFlow Lite models, with the schema of the reference interpreter."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

VERSIONS = {"FULLY_CONNECTED": 4, "TRANSPOSE_CONV": 3}
"""Version of each kind of operator; kinds that are not listed have version 1."""
OPTIONS = {
    "ADD": "AddOptions",
    "ARG_MAX": "ArgMaxOptions",
    "ARG_MIN": "ArgMinOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "CALL_ONCE": "CallOnceOptions",
    "CONCATENATION": "ConcatenationOptions",
    "CONV_2D": "Conv2DOptions",
    "DIV": "DivOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "DEPTH_TO_SPACE": "DepthToSpaceOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "GATHER": "GatherOptions",
    "GELU": "GeluOptions",
    "IF": "IfOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "SUM": "ReducerOptions",
    "MIRROR_PAD": "MirrorPadOptions",
    "MUL": "MulOptions",
    "PACK": "PackOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "SHAPE": "ShapeOptions",
    "SOFTMAX": "SoftmaxOptions",
    "SPACE_TO_DEPTH": "SpaceToDepthOptions",
    "SQUEEZE": "SqueezeOptions",
    "SPLIT": "SplitOptions",
    "SPLIT_V": "SplitVOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
    "SUB": "SubOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTMOptions",
    "UNPACK": "UnpackOptions",
    "VAR_HANDLE": "VarHandleOptions",
    "WHILE": "WhileOptions",
}
"""Class of the schema for the options of each kind of operator that has options."""


class ModelWriter:
    """A writer of a TensorFlow Lite model; operators are added in the order of their execution."""

    def __init__(self) -> None:
        self._graph = schema.SubGraphT()
        self._graph.tensors, self._graph.operators = [], []
        self._graph.inputs, self._graph.outputs = [], []
        self._model = schema.ModelT()
        self._model.version = 3
        self._model.subgraphs = [self._graph]
        self._model.buffers, self._model.operatorCodes = [schema.BufferT()], []

    def tensor(
        self,
        shape: tuple[int, ...],
        dtype: str = "int8",
        scale: Any = None,
        zero_point: int | None = 0,
        data: NDArray[Any] | None = None,
        axis: int = 0,
        variable: bool = False,
        signature: tuple[int, ...] | None = None,
    ) -> int:
        """Add a tensor and return its number in the subgraph, counted from 0.

        `scale` is None, a number, or an array with a scale for each channel along `axis`.

        If `zero_point` is None, a tensor with scales lacks its zero points, which is an error.
        `signature` is the shape with -1 for each size that is only a placeholder in `shape`.
        """
        tensor = schema.TensorT()
        tensor.shape, tensor.type = list(shape), getattr(schema.TensorType, dtype.upper())
        tensor.name = f"t{len(self._graph.tensors)}".encode()
        tensor.buffer, tensor.isVariable = 0, variable
        tensor.shapeSignature = None if signature is None else list(signature)
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            tensor.buffer = len(self._model.buffers)
            self._model.buffers.append(buffer)
        if scale is not None:
            quantization = schema.QuantizationParametersT()
            quantization.scale = np.atleast_1d(np.asarray(scale, np.float32))
            zero_points = 0 if zero_point is None else len(quantization.scale)
            quantization.zeroPoint = np.full(zero_points, zero_point or 0, np.int64)
            quantization.quantizedDimension = axis
            tensor.quantization = quantization
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1

    def quantization(self, tensor: int) -> tuple[float, int]:
        """Return the only scale and zero point of a tensor, which is not quantised by channel."""
        parameters = self._graph.tensors[tensor].quantization
        return float(parameters.scale[0]), int(parameters.zeroPoint[0])

    def operator(
        self,
        kind: str,
        inputs: list[int],
        outputs: list[int],
        intermediates: list[int] | None = None,
        **options: Any,
    ) -> None:
        """Add an operator of a kind, such as ADD; `options` are fields of the schema's options."""
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = VERSIONS.get(kind, 1)
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self._model.operatorCodes)
        operator.inputs, operator.outputs = inputs, outputs
        operator.intermediates = intermediates
        if kind in OPTIONS:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, OPTIONS[kind])
            operator.builtinOptions = getattr(schema, f"{OPTIONS[kind]}T")()
            for name, value in options.items():
                setattr(operator.builtinOptions, name, value)
        self._model.operatorCodes.append(code)
        self._graph.operators.append(operator)

    def custom_operator(
        self, name: str, inputs: list[int], outputs: list[int], options: bytes
    ) -> None:
        """Add a custom operator with a name, and with its options as bytes."""
        self.operator("CUSTOM", inputs, outputs)
        self._model.operatorCodes[-1].customCode = name
        self._graph.operators[-1].customOptions = np.frombuffer(options, np.uint8)

    def variable(self, name: str) -> int:
        """Add a VAR_HANDLE for the variable with this name; return the tensor of its result."""
        handle = self.tensor((), "resource")
        self.operator("VAR_HANDLE", [], [handle], sharedName=name)
        return handle

    def begin_subgraph(self) -> None:
        """Begin a new subgraph, which gets the tensors and operators that are added from now on.

        Its tensors are numbered from 0.
        """
        self._graph = schema.SubGraphT()
        self._graph.tensors, self._graph.operators = [], []
        self._model.subgraphs.append(self._graph)

    def end_subgraph(self, inputs: list[int], outputs: list[int]) -> None:
        """End the present subgraph; later tensors and operators go to the first subgraph."""
        self._graph.inputs, self._graph.outputs = inputs, outputs
        self._graph = self._model.subgraphs[0]

    def fully_connected(
        self,
        source: int,
        result: int,
        weights: NDArray[np.int8],
        bias: NDArray[np.int32] | None,
        weight_scale: Any,
        activation: str = "NONE",
    ) -> None:
        """Add a FULLY_CONNECTED; its weights have a row for each result."""
        self.weighted(
            "FULLY_CONNECTED",
            source,
            result,
            weights,
            bias,
            weight_scale,
            0,
            fusedActivationFunction=getattr(schema.ActivationFunctionType, activation),
            keepNumDims=True,
        )

    def weighted(
        self,
        kind: str,
        source: int,
        result: int,
        weights: NDArray[np.int8],
        bias: NDArray[np.int32] | None,
        weight_scale: Any,
        axis: int,
        **options: Any,
    ) -> None:
        """Add an operator with a bias, and with weights that count their channels along `axis`."""
        inputs = [source, self.tensor(weights.shape, "int8", weight_scale, data=weights, axis=axis)]
        if bias is not None:
            # The scale of the bias follows from the scales of the source and the weights. The
            # interpreter checks it.
            source_scale = self._graph.tensors[source].quantization.scale[0]
            scale = source_scale * np.asarray(weight_scale, np.float32)
            inputs.append(self.tensor(bias.shape, "int32", scale, data=bias))
        self.operator(kind, inputs, [result], **options)

    def content(self, inputs: list[int], outputs: list[int]) -> bytes:
        """Return the model as the content of a file."""
        self._graph.inputs, self._graph.outputs = inputs, outputs
        builder = flatbuffers.Builder(1024)
        builder.Finish(self._model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def sign(self, key: str, inputs: dict[str, int], outputs: dict[str, int]) -> None:
        """Add a signature: names for the inputs and outputs besides the names of their tensors."""
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = key, 0
        signature.inputs, signature.outputs = [], []
        for names, entries in ((inputs, signature.inputs), (outputs, signature.outputs)):
            for name, tensor in names.items():
                entry = schema.TensorMapT()
                entry.name, entry.tensorIndex = name, tensor
                entries.append(entry)
        self._model.signatureDefs = [signature]

    def content_with_weights_behind(self, inputs: list[int], outputs: list[int]) -> bytes:
        """Return the model as a file with its weights after the flatbuffer, as large models have.

        ai-edge-quantizer and the converter for models over 2 GB write files in this form.
        """
        given = [buffer for buffer in self._model.buffers if buffer.data is not None]
        contents = [bytes(buffer.data) for buffer in given]
        for buffer, content in zip(given, contents, strict=True):
            buffer.data, buffer.offset, buffer.size = None, 1 << 20, len(content)
        file = bytearray(self.content(inputs, outputs))
        for buffer, content in zip(given, contents, strict=True):
            file += bytes(-len(file) % 16)
            buffer.offset = len(file)
            file += content
        head = self.content(inputs, outputs)
        return head + bytes(file[len(head) :])


def interpret(model: bytes, *inputs: NDArray[Any]) -> NDArray[Any]:
    """Return the output of the interpreter's reference kernels for samples of each input.

    Samples have the shape of the model's input.
    """
    interpreter = Interpreter(
        model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    sources = [details["index"] for details in interpreter.get_input_details()]
    result = interpreter.get_output_details()[0]["index"]
    outputs = []
    for sample in zip(*inputs, strict=True):
        # Without a reset, the state of an LSTM would go on from sample to sample.
        interpreter.reset_all_variables()
        for source, value in zip(sources, sample, strict=True):
            interpreter.set_tensor(source, value)
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(result).copy())
    return np.array(outputs)
