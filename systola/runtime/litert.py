# SPDX-License-Identifier: Apache-2.0
"""The reference for whole networks: LiteRT's own interpreter, if it is installed."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

PACKAGE = "ai-edge-litert"
VERSION = "2.3.0"
"""Version of the interpreter that this project's results equal byte by byte."""


def reference_outputs(model: bytes, x: NDArray[Any]) -> NDArray[Any] | None:
    """Return the reference kernels' outputs for samples `x`, each of exactly the model's shape.

    The result is None if the interpreter is not installed in the right version.
    """
    try:
        if version(PACKAGE) != VERSION:
            return None
        # The interpreter is optional, and has no type information.
        litert: Any = import_module("ai_edge_litert.interpreter")
    except (PackageNotFoundError, ImportError):
        return None
    interpreter = litert.Interpreter(
        model_content=model, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    source = interpreter.get_input_details()[0]["index"]
    result = interpreter.get_output_details()[0]["index"]
    outputs: list[NDArray[Any]] = []
    for sample in x:
        # Without a reset the state of an LSTM would pass from sample to sample.
        interpreter.reset_all_variables()
        interpreter.set_tensor(source, sample)
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(result).copy())
    return np.array(outputs)
