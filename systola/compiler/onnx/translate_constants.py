# SPDX-License-Identifier: Apache-2.0
"""The translation of Constant and Shape, with results that are known without the model's inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from systola.compiler.errors import ModelError
from systola.compiler.onnx.model import OnnxNode
from systola.compiler.onnx.scope import Scope, entry_shape


def translate_constant(scope: Scope, node: OnnxNode) -> None:
    """Translate Constant of numbers to a constant tensor; a Constant of text is refused."""
    for name, dtype in (
        ("value_float", np.float32),
        ("value_floats", np.float32),
        ("value_int", np.int64),
        ("value_ints", np.int64),
    ):
        if name in node.attributes:
            scope.result(node, np.array(node.attributes[name], dtype))
            return
    value = node.attributes.get("value")
    if not isinstance(value, np.ndarray):
        raise ModelError("only numbers are supported")
    scope.result(node, value)


def translate_shape(scope: Scope, node: OnnxNode) -> None:
    """Translate Shape to a constant: all sizes of its input's dimensions, or some of them."""
    shape = list(entry_shape(scope.entry(node, 0)))
    if scope.repeat > 1 and shape and not isinstance(scope.entry(node, 0), np.ndarray):
        shape[0] *= scope.repeat
    start, end = node.integer("start", 0), node.integer("end", len(shape))
    scope.result(node, np.array(shape[start:end], np.int64))


Translator = Callable[[Scope, OnnxNode], None]
CONSTANTS: dict[str, Translator] = {
    "Constant": translate_constant,
    "Shape": translate_shape,
}
