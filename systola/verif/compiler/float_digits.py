# SPDX-License-Identifier: Apache-2.0
"""A float32 classifier of handwritten digits, trained with numpy, as an ONNX and a .tflite file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from systola.verif.compiler.model_writer import ModelWriter, schema
from systola.verif.compiler.onnx_writer import OnnxWriter

HIDDEN, CLASSES = 32, 10
STEPS, RATE = 300, 0.5

Numbers = NDArray[np.float64]


@cache
def digits() -> dict[str, NDArray[np.float32]]:
    """Return arrays x, y, x_test and y_test: images of 64 pixels from 0 to 1, and digits."""
    with np.load(str(files("systola.models") / "digits.npz")) as data:
        return {name: data[name].astype(np.float32) for name in data.files}


@cache
def trained() -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Return weights and biases of both layers, after STEPS of gradient descent on all samples."""
    rng = np.random.default_rng(1)
    x, wanted = digits()["x"].astype(np.float64), np.eye(CLASSES)[digits()["y"].astype(int)]
    w1, b1 = rng.standard_normal((x.shape[1], HIDDEN)) / 8, np.zeros(HIDDEN)
    w2, b2 = rng.standard_normal((HIDDEN, CLASSES)) / 6, np.zeros(CLASSES)
    for _ in range(STEPS):
        hidden = np.maximum(x @ w1 + b1, 0)
        scores = np.exp(hidden @ w2 + b2)
        error = (scores / scores.sum(axis=1, keepdims=True) - wanted) / len(x)
        back = (error @ w2.T) * (hidden > 0)
        w2, b2 = w2 - RATE * hidden.T @ error, b2 - RATE * error.sum(axis=0)
        w1, b1 = w1 - RATE * x.T @ back, b1 - RATE * back.sum(axis=0)
    return w1, b1, w2, b2


def as_onnx() -> bytes:
    """Return the trained classifier as the content of an ONNX file."""
    net = OnnxWriter()
    w1, b1, w2, b2 = (net.constant(each.astype(np.float32)) for each in trained())
    hidden = net.node("Relu", net.node("Gemm", net.input(("batch", 64), "float32"), w1, b1))
    return net.content((net.node("Gemm", hidden, w2, b2), "float32", ("batch", CLASSES)))


def as_tflite() -> bytes:
    """Return the trained classifier as the content of a .tflite file."""
    net = ModelWriter()
    x = source = net.tensor((1, 64), "float32", signature=(-1, 64))
    w1, b1, w2, b2 = trained()
    kinds = schema.ActivationFunctionType
    for weights, bias, function in ((w1, b1, kinds.RELU), (w2, b2, kinds.NONE)):
        y = net.tensor((1, len(bias)), "float32", signature=(-1, len(bias)))
        constants = [
            net.tensor(each.shape, "float32", data=each.astype(np.float32))
            for each in (weights.T, bias)
        ]
        net.operator("FULLY_CONNECTED", [x, *constants], [y], fusedActivationFunction=function)
        x = y
    return net.content([source], [x])
