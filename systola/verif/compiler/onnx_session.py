# SPDX-License-Identifier: Apache-2.0
"""Runs models in ONNX Runtime so that the results are the same on all processors.

On x86 processors without VNNI, ONNX Runtime adds pairs of products of uint8 and int8 in 16 bits,
where the sums saturate. Sums of products of uint8 and uint8 do not saturate.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper

_OPERANDS = {
    "QLinearConv": (2, 3, 5),
    "QLinearMatMul": (2, 3, 5),
    "QGemm": (2, 3, 5),
    "ConvInteger": (2, 1, 3),
    "MatMulInteger": (2, 1, 3),
}
"""Numbers of three inputs, from 0, for each kind of operator that multiplies quantised values.

The inputs are the zero point of the activations, the weights, and the weights' zero point.
"""


def run_samples(
    content: bytes,
    inputs: Sequence[NDArray[Any]],
    *,
    optimised: bool,
    without: Sequence[str] = (),
) -> list[NDArray[Any]]:
    """Return each output of a model in ONNX Runtime; `inputs` have a row for each sample.

    With `optimised` all optimisations are on, except the optimisations named in `without`.
    Otherwise all are off.
    """
    runtime = _session(content, optimised=optimised, without=without)
    names = [each.name for each in runtime.get_inputs()]
    samples = [
        runtime.run(None, dict(zip(names, sample, strict=True)))
        for sample in zip(*inputs, strict=True)
    ]
    return [np.array(each) for each in zip(*samples, strict=True)]


def optimised_kinds(content: bytes, *, without: Sequence[str] = ()) -> set[str]:
    """Return the kinds of operators that a model has after ONNX Runtime's optimisations.

    Optimisations that are named in `without` are off.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        _session(content, optimised=True, without=without, saved=path)
        return {node.op_type for node in onnx.load(path).graph.node}


def _session(
    content: bytes, *, optimised: bool, without: Sequence[str], saved: Path | None = None
) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session for a model.

    The session writes the optimised model to the file `saved`, if a file is given.
    """
    model = onnx.load_from_string(content)
    options = onnxruntime.SessionOptions()
    if saved:
        options.optimized_model_filepath = str(saved)
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if any(node.op_type in _OPERANDS for node in model.graph.node):
        # With x64quantprecision, ONNX Runtime has no kernels for int8 activations.
        _make_weights_uint8(model.graph)
    else:
        options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(
        model.SerializeToString(),
        options,
        ["CPUExecutionProvider"],
        disabled_optimizers=list(without),
    )


def _make_weights_uint8(graph: onnx.GraphProto) -> None:
    """Change int8 weights to uint8 in nodes with uint8 activations, by adding 128.

    The zero points of the weights grow by 128, too, so the products stay the same.
    """
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    for node in graph.node:
        if node.op_type not in _OPERANDS:
            continue
        places = _OPERANDS[node.op_type]
        names = dict(enumerate(node.input))
        of_activations, weights, zero_point = (names.get(place, "") for place in places)
        activations_type = constants[of_activations].dtype if of_activations else np.dtype(np.uint8)
        if activations_type != np.uint8 or constants[weights].dtype != np.int8:
            continue
        node.input.extend([""] * (max(places) + 1 - len(node.input)))
        zero = constants[zero_point] if zero_point else np.int8(0)
        for place, value in zip(places[1:], (constants[weights], zero), strict=True):
            name = f"{node.name or node.output[0]} {place} as uint8"
            moved = (np.asarray(value, np.int16) + 128).astype(np.uint8)
            graph.initializer.append(numpy_helper.from_array(moved, name))
            node.input[place] = name
