# SPDX-License-Identifier: Apache-2.0
"""Small float32 networks in ONNX, and the quantised networks that ONNX Runtime makes of them."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from systola.verif.compiler.onnx_writer import OPSET, OnnxWriter

WORDS = 50
"""Number of words that the embedding of the network `words` has a row for."""

Build = Callable[["FloatNetwork"], tuple[str, tuple[int | str, ...]]]


class FloatNetwork(OnnxWriter):
    """A writer of a float32 ONNX network, with layers that have random weights."""

    def __init__(self, rng: np.random.Generator, opset: int = OPSET) -> None:
        super().__init__(opset)
        self.rng = rng

    def weights(self, *shape: int) -> str:
        """Add random weights that keep results about as large as inputs; return their name."""
        inputs = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        scale = 1.5 / np.sqrt(inputs)
        return self.constant((scale * self.rng.standard_normal(shape)).astype(np.float32))

    def bias(self, count: int) -> str:
        return self.constant((0.1 * self.rng.standard_normal(count)).astype(np.float32))

    def conv(self, x: str, shape: tuple[int, ...], **attributes: Any) -> str:
        return self.node("Conv", x, self.weights(*shape), self.bias(shape[0]), **attributes)

    def gemm(self, x: str, k: int, n: int) -> str:
        return self.node("Gemm", x, self.weights(k, n), self.bias(n))


def lenet(net: FloatNetwork) -> tuple[str, tuple[int | str, ...]]:
    """Add a network like LeNet: convolutions, average pooling, tanh, and a softmax."""
    x = net.input(("batch", 1, 16, 16), "float32")
    x = net.node("Tanh", net.conv(x, (6, 1, 5, 5), pads=[2, 2, 2, 2]))
    x = net.node("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2])
    x = net.node("Tanh", net.conv(x, (12, 6, 3, 3)))
    x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Flatten", x)
    x = net.node("Relu", net.gemm(x, 48, 20))
    return net.node("Softmax", net.gemm(x, 20, 10)), ("batch", 10)


def residual(net: FloatNetwork) -> tuple[str, tuple[int | str, ...]]:
    """Add a network with two residual blocks and a global mean.

    The second block has a stride, and a convolution of 1 x 1 in its shortcut.
    """
    x = net.input((1, 3, 12, 12), "float32")
    x = net.node("Relu", net.conv(x, (8, 3, 3, 3), pads=[1, 1, 1, 1]))
    y = net.node("Relu", net.conv(x, (8, 8, 3, 3), pads=[1, 1, 1, 1]))
    y = net.conv(y, (8, 8, 3, 3), pads=[1, 1, 1, 1])
    x = net.node("Relu", net.node("Add", x, y))
    y = net.conv(x, (16, 8, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    x = net.node("Add", net.conv(x, (16, 8, 1, 1), strides=[2, 2]), y)
    x = net.node("GlobalAveragePool", net.node("Relu", x))
    x = net.node("Reshape", x, net.constant(np.array([1, -1], np.int64)))
    return net.gemm(x, 16, 10), (1, 10)


def inverted(net: FloatNetwork) -> tuple[str, tuple[int | str, ...]]:
    """Add a network of depthwise-separable convolutions, with a gate for each channel.

    It has ReLU6 in the form of Clip. The gates are made from the means of the channels.
    """
    low, high = (net.constant(np.float32(bound)) for bound in (0, 6))
    x = net.input((1, 4, 10, 10), "float32")
    x = net.node("Clip", net.conv(x, (12, 4, 1, 1)), low, high)
    attributes = {"group": 12, "pads": [0, 0, 1, 1], "strides": [2, 2]}
    x = net.node("Clip", net.conv(x, (12, 1, 3, 3), **attributes), low, high)
    x = net.conv(x, (6, 12, 1, 1))
    squeezed = net.node("GlobalAveragePool", x)
    gate = net.node("Sigmoid", net.conv(squeezed, (6, 6, 1, 1)))
    x = net.node("Mul", x, gate)
    x = net.node("LeakyRelu", net.conv(x, (8, 3, 3, 3), group=2), alpha=0.1)
    x = net.node("ReduceMean", x, axes=[2, 3], keepdims=0)
    return net.gemm(x, 8, 5), (1, 5)


def branches(net: FloatNetwork) -> tuple[str, tuple[int | str, ...]]:
    """Add a network that sends the halves of the channels through two operators, and joins them."""
    x = net.input((1, 2, 9, 7), "float32")
    x = net.node("Relu", net.conv(x, (32, 2, 3, 3), auto_pad="SAME_UPPER"))
    halves = net.constant(np.array([16, 16], np.int64))
    a, b = net.node("Split", x, halves, axis=1, results=2)
    a = net.node("Relu", net.conv(a, (16, 16, 1, 1)))
    b = net.node("MaxPool", b, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x = net.node("Concat", a, b, axis=1)
    x = net.node("HardSigmoid", net.conv(x, (5, 32, 2, 2)))
    x = net.node("Transpose", x, perm=[0, 2, 3, 1])
    x = net.node("Reshape", x, net.constant(np.array([1, 48, 5], np.int64)))
    return net.node("MatMul", x, net.weights(5, 7)), (1, 48, 7)


def sequence(net: FloatNetwork) -> tuple[str, tuple[int | str, ...]]:
    """Add a network of convolutions along one dimension."""
    x = net.input((1, 3, 40), "float32")
    x = net.node("Relu", net.conv(x, (16, 3, 5), strides=[2], pads=[2, 2]))
    x = net.node("MaxPool", x, kernel_shape=[2], strides=[2])
    x = net.node("Relu", net.conv(x, (24, 16, 3), dilations=[2]))
    x = net.node("GlobalAveragePool", x)
    x = net.node("Squeeze", x, net.constant(np.array([2], np.int64)))
    return net.node("Add", net.node("MatMul", x, net.weights(24, 6)), net.bias(6)), (1, 6)


def words(net: FloatNetwork) -> tuple[str, tuple[int | str, ...]]:
    """Add a network with an embedding of words, and a reshape by a shape read at run time."""
    x = net.input((1, 12), "int64")
    x = net.node("Gather", net.weights(WORDS, 16), x)
    x = net.node("HardSwish", net.node("MatMul", x, net.weights(16, 16)))
    first = net.node("Gather", net.node("Shape", x), net.constant(np.array(0, np.int64)))
    zero, rest = (net.constant(np.array(each, np.int64)) for each in ([0], [-1]))
    shape = net.node("Concat", net.node("Unsqueeze", first, zero), rest, axis=0)
    x = net.node("Reshape", x, shape)
    return net.node("Sigmoid", net.gemm(x, 192, 3)), (1, 3)


NETWORKS: dict[str, Build] = {
    "lenet": lenet,
    "residual": residual,
    "inverted": inverted,
    "branches": branches,
    "sequence": sequence,
    "words": words,
}

FORMS: dict[str, dict[str, Any]] = {
    "qdq_s8s8_channels": {
        "quant_format": QuantFormat.QDQ,
        "activation_type": QuantType.QInt8,
        "weight_type": QuantType.QInt8,
        "per_channel": True,
    },
    "qdq_u8s8": {
        "quant_format": QuantFormat.QDQ,
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QInt8,
        "reduce_range": True,
    },
    "qdq_u8u8": {
        "quant_format": QuantFormat.QDQ,
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QUInt8,
    },
    "qdq_symmetric": {
        "quant_format": QuantFormat.QDQ,
        "activation_type": QuantType.QInt8,
        "weight_type": QuantType.QInt8,
        "extra_options": {"ActivationSymmetric": True},
    },
    "qop_u8s8_channels": {
        "quant_format": QuantFormat.QOperator,
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QInt8,
        "per_channel": True,
        "reduce_range": True,
    },
    "qop_u8u8": {
        "quant_format": QuantFormat.QOperator,
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QUInt8,
    },
    "qop_s8s8": {
        "quant_format": QuantFormat.QOperator,
        "activation_type": QuantType.QInt8,
        "weight_type": QuantType.QInt8,
    },
}
"""Settings of ONNX Runtime's quantiser.

With uint8 activations, processors without VNNI need weights of 7 bits.
"""


def quantised(
    rng: np.random.Generator, network: str, form: str, samples: int
) -> tuple[bytes, NDArray[Any]]:
    """Return a network, quantised in one of FORMS, as the content of a file, and its samples.

    `network` is a name in NETWORKS.
    """
    net = FloatNetwork(rng)
    name, shape = NETWORKS[network](net)
    model = onnx.load_from_string(net.content((name, "float32", shape)))
    source = model.graph.input[0]
    sizes = [each.dim_value or 1 for each in source.type.tensor_type.shape.dim]
    x: NDArray[Any] = rng.standard_normal((samples, *sizes)).astype(np.float32)
    if source.type.tensor_type.elem_type == onnx.TensorProto.INT64:
        x = rng.integers(0, WORDS, (samples, *sizes))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder, "quantised.onnx")
        quantize_static(model, path, _Reader(source.name, x), **FORMS[form])
        return path.read_bytes(), x


class _Reader(CalibrationDataReader):
    """A reader that hands the quantiser the samples for its calibration."""

    def __init__(self, name: str, x: NDArray[Any]) -> None:
        self._samples: Iterator[dict[str, NDArray[Any]]] = ({name: each} for each in x)

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        return next(self._samples, None)
