# SPDX-License-Identifier: Apache-2.0
"""Random LSTM operators in TensorFlow Lite's format."""

from __future__ import annotations

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from systola.verif.compiler.model_writer import ModelWriter

GATES = 4


def add_lstm(
    rng: np.random.Generator,
    writer: ModelWriter,
    source: int,
    source_scale: float,
    sizes: tuple[int, int, int],
    cell_bits: int = 11,
    clip: float = 10.0,
    **changes: object,
) -> int:
    """Adds an LSTM of steps, inputs and cells; its result, of any scale.

    Cells have `cell_bits` fractional bits. `changes` make it an unusual one.
    """
    steps, inputs, cells = sizes
    hidden_scale = float(np.float32(rng.uniform(0.003, 0.02)))
    hidden_zero_point = int(rng.integers(-20, 21))
    result = writer.tensor((1, steps, cells), "int8", hidden_scale, hidden_zero_point)

    def weights(k: int, scale: float) -> int:
        # So that the arguments of gates spread over about -4 to 4.
        weight_scale = float(np.float32(rng.uniform(2, 6) / (5500 * scale * np.sqrt(k))))
        values = rng.integers(-127, 128, (cells, k), dtype=np.int8)
        return writer.tensor((cells, k), "int8", weight_scale, data=values)

    def bias() -> int:
        values = rng.integers(-3000, 3000, cells, dtype=np.int32)
        return writer.tensor((cells,), "int32", 1e-4, data=values)

    operands = [-1] * 24
    operands[0] = source
    operands[1:5] = [weights(inputs, source_scale) for _ in range(GATES)]
    operands[5:9] = [weights(cells, hidden_scale) for _ in range(GATES)]
    operands[12:16] = [bias() for _ in range(GATES)]
    operands[18] = writer.tensor((1, cells), "int8", hidden_scale, hidden_zero_point, variable=True)
    operands[19] = writer.tensor((1, cells), "int16", 2.0**-cell_bits, variable=True)
    if changes.get("peephole"):
        values = np.ones(cells, np.int16)
        operands[10] = writer.tensor((cells,), "int16", 2.0**-11, data=values)
    if changes.get("no_input_gate"):
        operands[1] = operands[5] = operands[12] = -1
    intermediates = [writer.tensor((0,), "float32") for _ in range(GATES)]
    inner = float(str(changes.get("inner_scale", hidden_scale)))
    intermediates.append(writer.tensor((0,), "int8", inner, hidden_zero_point))
    writer.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        operands,
        [result],
        intermediates,
        fusedActivationFunction=changes.get("activation", schema.ActivationFunctionType.TANH),
        cellClip=clip,
        timeMajor=bool(changes.get("time_major")),
    )
    return result
