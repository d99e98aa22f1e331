# SPDX-License-Identifier: Apache-2.0
"""The reader of TensorFlow Lite models.

The package `tflite` has a class for each kind of table in such a file, made from the schema by the
FlatBuffers compiler. These schema classes check nothing, so any exception in them means that the
file is damaged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systola.compiler.errors import ModelError
from systola.compiler.printable import printable
from systola.compiler.tflite.graph import NUMPY_TYPES, Graph, Operator, Tensor
from systola.compiler.tflite.variables import OPENING, without_variables

IDENTIFIER = b"TFL3"
_BUILTIN_CODE = 10
"""Byte offset of the entry for `builtin_code` in the field table of an OperatorCode."""
_NO_OFFSET = 1
"""Offset in the file that a large model states for an empty buffer; small models state 0."""
_CUT = "the model is damaged or cut short"
_MAX_DIMENSIONS = 8
_NAME_LENGTH = 200
_DAMAGED = (
    AttributeError,
    IndexError,
    KeyError,
    MemoryError,
    OverflowError,
    TypeError,
    ValueError,
    struct.error,
)
"""Exceptions that the schema classes raise if an offset points outside the file."""

# The package `tflite` has no type information, so its objects have the type Any in this file.
_schema: Any = import_module("tflite")


def read_tflite(content: bytes, *, main: bool = False) -> Graph:
    """Return the network in the content of a .tflite file.

    With `main`, the first subgraph is returned unchanged, and all other subgraphs are ignored.
    Without `main`, variables become inputs and outputs, and a second subgraph may only give the
    variables their first values. Raises ModelError for other subgraphs, and for content that is
    damaged or is no TensorFlow Lite model.
    """
    if content[4:8] != IDENTIFIER:
        raise ModelError("not a TensorFlow Lite model")
    try:
        return _Reader(content).graph(main=main)
    except ModelError:
        raise
    except _DAMAGED:
        raise ModelError(_CUT) from None


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._model: Any = _schema.Model.GetRootAs(content, 0)
        self._kinds = _names(_schema.BuiltinOperator)
        self._types = _names(_schema.TensorType)

    def graph(self, *, main: bool) -> Graph:
        model = self._model
        # Buffers that no tensor uses are read, too: an error here shows that the file is cut short.
        for number in self._numbers(model.BuffersLength()):
            self._content_of(model.Buffers(number))
        for number in self._numbers(model.MetadataLength()):
            model.Metadata(number).Name()
        model.Description()
        count = model.SubgraphsLength()
        if not count:
            raise ModelError("the model has 0 subgraphs, not one")
        graph = self._subgraph(0)
        if count == 1 or main:
            return graph
        if all(operator.kind != OPENING for operator in graph.operators):
            raise ModelError(f"the model has {count} subgraphs, not one")
        return without_variables(graph, self._subgraph)

    def _subgraph(self, number: int) -> Graph:
        if not 0 <= number < self._model.SubgraphsLength():
            raise ModelError(f"the model is damaged: there is no subgraph {number}")
        subgraph = self._model.Subgraphs(number)
        subgraph.Name()
        tensors = tuple(
            self._tensor(subgraph.Tensors(number))
            for number in self._numbers(subgraph.TensorsLength())
        )
        operators = tuple(
            self._operator(number, subgraph.Operators(number), len(tensors))
            for number in self._numbers(subgraph.OperatorsLength())
        )
        return Graph(
            tensors,
            operators,
            self._references(subgraph.InputsLength(), subgraph.Inputs, len(tensors)),
            self._references(subgraph.OutputsLength(), subgraph.Outputs, len(tensors)),
        )

    def _numbers(self, length: int) -> range:
        """Return the indexes, from 0 on, of the `length` items of a list in the file.

        An item takes at least four bytes, so ModelError is raised if the file is smaller than
        4 * length bytes.
        """
        if length * 4 > len(self._content):
            raise ModelError(_CUT)
        return range(length)

    def _references(
        self, length: int, item: Callable[[int], int], tensors: int, *, optional: bool = False
    ) -> tuple[int, ...]:
        result = tuple(int(item(number)) for number in self._numbers(length))
        for reference in result:
            if not (-1 if optional else 0) <= reference < tensors:
                raise ModelError(f"the model is damaged: there is no tensor {reference}")
        return result

    def _tensor(self, tensor: Any) -> Tensor:
        name = _printable(tensor.Name())
        rank = tensor.ShapeLength()
        if rank > _MAX_DIMENSIONS:
            raise ModelError(f"tensor '{name}' has {rank} dimensions")
        shape = tuple(int(tensor.Shape(axis)) for axis in range(rank))
        if any(size < 0 for size in shape):
            raise ModelError(f"tensor '{name}' has the shape {shape}")
        dtype = self._types.get(tensor.Type(), f"type {tensor.Type()}").lower()
        if tensor.Sparsity() is not None:
            raise ModelError(f"tensor '{name}' is sparse, which is not supported")
        scales, zero_points, axis = np.empty(0, np.float32), np.empty(0, np.int64), 0
        quantization = tensor.Quantization()
        if quantization is not None and quantization.ScaleLength():
            scales = np.array(quantization.ScaleAsNumpy(), np.float32)
            zero_points = np.zeros(len(scales), np.int64)
            if quantization.ZeroPointLength():
                zero_points = np.array(quantization.ZeroPointAsNumpy(), np.int64)
            axis = int(quantization.QuantizedDimension())
            if len(zero_points) != len(scales):
                raise ModelError(f"tensor '{name}' has not as many zero points as scales")
        data = self._data(name, tensor.Buffer(), dtype, shape)
        signature = (int(tensor.ShapeSignature(n)) for n in range(tensor.ShapeSignatureLength()))
        return Tensor(
            name, shape, dtype, scales, zero_points, axis, data, open=any(n < 0 for n in signature)
        )

    def _data(
        self, name: str, number: int, dtype: str, shape: tuple[int, ...]
    ) -> NDArray[Any] | None:
        """Return the content of the file's buffer `number` as an array of the given type and shape.

        Returns None if the buffer is empty, or if numpy lacks the type.
        """
        if number >= self._model.BuffersLength():
            raise ModelError(f"the model is damaged: there is no buffer {number}")
        buffer = self._model.Buffers(number)
        if dtype not in NUMPY_TYPES:
            return None
        content = self._content_of(buffer)
        if not content.size:
            return None
        item = np.dtype(dtype).newbyteorder("<")
        size = int(np.prod(shape, dtype=np.float64)) * item.itemsize
        if content.size != size:
            raise ModelError(f"tensor '{name}' should have {size} bytes, it has {content.size}")
        return content.view(item).reshape(shape)

    def _content_of(self, buffer: Any) -> NDArray[np.uint8]:
        """Return the bytes of a buffer.

        The bytes lie in the buffer's own table, or, in large models, after all tables in the file.
        """
        if buffer.DataLength():
            return np.array(buffer.DataAsNumpy(), np.uint8)
        first, size = int(buffer.Offset()), int(buffer.Size())
        if first <= _NO_OFFSET:
            return np.empty(0, np.uint8)
        if first + size > len(self._content):
            raise ModelError(_CUT)
        return np.frombuffer(self._content, np.uint8, size, first)

    def _operator(self, index: int, operator: Any, tensors: int) -> Operator:
        code = self._model.OperatorCodes(operator.OpcodeIndex())
        # The file gives the kind of an operator in two fields. The older field holds codes up to
        # 127 only, and the interpreter takes the larger of the two codes. BuiltinCode() of the
        # package `tflite` ignores the newer field if its code is below 127, so it is read here.
        offset = code._tab.Offset(_BUILTIN_CODE)
        newer = struct.unpack_from("<i", self._content, code._tab.Pos + offset)[0] if offset else 0
        number = max(code.DeprecatedBuiltinCode(), newer)
        kind = self._kinds.get(number, f"builtin {number}")
        if kind == "CUSTOM":
            kind = f"CUSTOM {_printable(code.CustomCode())}"
        return Operator(
            index,
            kind,
            self._references(operator.InputsLength(), operator.Inputs, tensors, optional=True),
            self._references(operator.OutputsLength(), operator.Outputs, tensors),
            _options(kind, operator),
            self._references(operator.IntermediatesLength(), operator.Intermediates, tensors),
        )


def _printable(name: bytes | None) -> str:
    """Return the first _NAME_LENGTH characters of a name from the file, in printable form."""
    return printable((name or b"").decode(errors="replace")[:_NAME_LENGTH])


_OPTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "FULLY_CONNECTED": (
        "FullyConnectedOptions",
        ("FusedActivationFunction", "WeightsFormat", "KeepNumDims", "QuantizedBiasType"),
    ),
    "SOFTMAX": ("SoftmaxOptions", ("Beta",)),
    "CONV_2D": (
        "Conv2DOptions",
        (
            "FusedActivationFunction",
            "Padding",
            "StrideH",
            "StrideW",
            "DilationHFactor",
            "DilationWFactor",
            "QuantizedBiasType",
        ),
    ),
    "TRANSPOSE_CONV": (
        "TransposeConvOptions",
        ("FusedActivationFunction", "Padding", "StrideH", "StrideW", "QuantizedBiasType"),
    ),
    "DEPTHWISE_CONV_2D": (
        "DepthwiseConv2DOptions",
        (
            "FusedActivationFunction",
            "Padding",
            "StrideH",
            "StrideW",
            "DilationHFactor",
            "DilationWFactor",
        ),
    ),
    **dict.fromkeys(
        ("AVERAGE_POOL_2D", "MAX_POOL_2D"),
        (
            "Pool2DOptions",
            (
                "FusedActivationFunction",
                "Padding",
                "StrideH",
                "StrideW",
                "FilterHeight",
                "FilterWidth",
            ),
        ),
    ),
    "ADD": ("AddOptions", ("FusedActivationFunction", "PotScaleInt16")),
    "SUB": ("SubOptions", ("FusedActivationFunction", "PotScaleInt16")),
    "MUL": ("MulOptions", ("FusedActivationFunction",)),
    "LEAKY_RELU": ("LeakyReluOptions", ("Alpha",)),
    "RESHAPE": ("ReshapeOptions", ("NewShape",)),
    "SQUEEZE": ("SqueezeOptions", ("SqueezeDims",)),
    **dict.fromkeys(
        ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"),
        ("ReducerOptions", ("KeepDims",)),
    ),
    "CONCATENATION": ("ConcatenationOptions", ("FusedActivationFunction", "Axis")),
    "BATCH_MATMUL": ("BatchMatMulOptions", ("AdjX", "AdjY")),
    "UNPACK": ("UnpackOptions", ("Axis",)),
    "PACK": ("PackOptions", ("Axis",)),
    "GATHER": ("GatherOptions", ("Axis", "BatchDims")),
    "MIRROR_PAD": ("MirrorPadOptions", ("Mode",)),
    "SPACE_TO_DEPTH": ("SpaceToDepthOptions", ("BlockSize",)),
    "DEPTH_TO_SPACE": ("DepthToSpaceOptions", ("BlockSize",)),
    "RESIZE_NEAREST_NEIGHBOR": (
        "ResizeNearestNeighborOptions",
        ("AlignCorners", "HalfPixelCenters"),
    ),
    "RESIZE_BILINEAR": ("ResizeBilinearOptions", ("AlignCorners", "HalfPixelCenters")),
    "GELU": ("GeluOptions", ("Approximate",)),
    "STRIDED_SLICE": (
        "StridedSliceOptions",
        ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask", "Offset"),
    ),
    "CALL_ONCE": ("CallOnceOptions", ("InitSubgraphIndex",)),
    "VAR_HANDLE": ("VarHandleOptions", ("Container", "SharedName")),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        "UnidirectionalSequenceLSTMOptions",
        (
            "FusedActivationFunction",
            "CellClip",
            "ProjClip",
            "TimeMajor",
            "DiagonalRecurrentTensors",
        ),
    ),
}
"""Map from a kind of operator to the schema class of its options and the options that are read,
all given by their names.
"""


def _options(kind: str, operator: Any) -> Mapping[str, Any]:
    """Return a map from the schema's name of each option that is read to the option's value.

    The map is empty if the file has no options for the operator. Fused activations, kinds of
    padding and types of biases are strings, such as "RELU".
    """
    union = operator.BuiltinOptions()
    if kind not in _OPTIONS or union is None:
        return {}
    name, fields = _OPTIONS[kind]
    if operator.BuiltinOptionsType() != getattr(_schema.BuiltinOptions, name):
        return {}
    options: Any = getattr(_schema, name)()
    options.Init(union.Bytes, union.Pos)
    values = {field: _option(options, field) for field in fields}
    for field, enumeration in (
        ("FusedActivationFunction", _schema.ActivationFunctionType),
        ("Padding", _schema.Padding),
        ("QuantizedBiasType", _schema.TensorType),
    ):
        if field in values:
            number = values[field]
            values[field] = _names(enumeration).get(number, f"{field} {number}")
    return values


def _option(options: Any, field: str) -> Any:
    """Return the value of option `field`, or a tuple of whole numbers if the option is a list.

    Raises ModelError if the list has more than _MAX_DIMENSIONS numbers.
    """
    length = getattr(options, f"{field}Length", None)
    if length is None:
        return getattr(options, field)()
    if length() > _MAX_DIMENSIONS:
        raise ModelError(f"an operator has a shape of {length()} dimensions")
    return tuple(int(getattr(options, field)(number)) for number in range(length()))


def _names(enumeration: type) -> dict[int, str]:
    """Return a map from the value to the name of each constant of a schema class."""
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}
