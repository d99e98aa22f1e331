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
    sequences: int = 1,
    time_major: bool = False,
    **changes: object,
) -> int:
    """Add a random LSTM with `sizes` (steps, inputs, cells); return the tensor of its result.

    The state of a cell has `cell_bits` fractional bits. `changes` are the features of an unusual
    LSTM, such as `peephole`.
    """
    steps, inputs, cells = sizes
    (hidden_scale, hidden_zero_point), inner, outer = (
        (float(np.float32(rng.uniform(0.003, 0.02))), int(rng.integers(-20, 21))) for _ in range(3)
    )
    shape = (steps, sequences, cells) if time_major else (sequences, steps, cells)
    # The result may have another scale than the output state, and than the hidden tensor in the
    # operator's intermediates.
    result = writer.tensor(shape, "int8", *([] if changes.get("no_scale") else outer))

    def weights(k: int, scale: float) -> int:
        # With this scale of the weights the arguments of the gates spread over about -4 to 4.
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
    state = (sequences, cells)
    operands[18] = writer.tensor(state, "int8", hidden_scale, hidden_zero_point, variable=True)
    operands[19] = writer.tensor(state, "int16", 2.0**-cell_bits, variable=True)
    if changes.get("peephole"):
        values = np.ones(cells, np.int16)
        operands[10] = writer.tensor((cells,), "int16", 2.0**-11, data=values)
    if changes.get("no_input_gate"):
        operands[1] = operands[5] = operands[12] = -1
    intermediates = [writer.tensor((0,), "float32") for _ in range(GATES)]
    intermediates.append(writer.tensor((0,), "int8", *inner))
    writer.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        operands,
        [result],
        intermediates,
        fusedActivationFunction=changes.get("activation", schema.ActivationFunctionType.TANH),
        cellClip=clip,
        timeMajor=time_major,
    )
    return result
