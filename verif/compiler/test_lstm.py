# SPDX-License-Identifier: Apache-2.0
"""Random LSTM operators on the golden model, against the reference interpreter."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from systola.arch.config import preset
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.network import compile_network
from systola.runtime.iss import GoldenBackend
from systola.runtime.run import run_network
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.seeds import random_seed

GATES = 4
MACHINES = ("base", "small", "6x10", "9x4", "3x3")


def lstm_model(
    rng: np.random.Generator,
    steps: int,
    inputs: int,
    cells: int,
    *,
    cell_bits: int = 11,
    clip: float = 10.0,
    **changes: object,
) -> bytes:
    """One operator; cells have `cell_bits` fractional bits. `changes` make it an unusual one."""
    writer = ModelWriter()
    source_scale, hidden_scale = (float(np.float32(rng.uniform(0.003, 0.02))) for _ in range(2))
    hidden_zero_point = int(rng.integers(-20, 21))
    source = writer.tensor((1, steps, inputs), "int8", source_scale, int(rng.integers(-128, 128)))
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
    return writer.content([source], [result])


def test_random_lstms() -> None:
    rng = np.random.default_rng(random_seed())
    for number in range(20):
        steps, inputs, cells = (int(size) for size in rng.integers(1, (9, 40, 30)))
        content = lstm_model(
            rng,
            steps,
            inputs,
            cells,
            cell_bits=int(rng.integers(11, 16)),
            clip=float(rng.choice([0, 0.5, 10])),
        )
        config = preset(str(rng.choice(MACHINES)))
        if number % 3 == 0:
            config = dataclasses.replace(config, parameter_entries=max(4, -(-cells // 3)))
        x = rng.integers(-128, 128, (3, 1, steps, inputs), dtype=np.int8)
        run = run_network(GoldenBackend(config), network_of(content), x)
        assert np.array_equal(run.y, interpret(content, x)), (number, config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peephole": True}, "peepholes in an LSTM"),
        ({"no_input_gate": True}, "input 1 is missing"),
        ({"inner_scale": 0.5}, "must have the same scale"),
        ({"activation": 0}, "other than TANH"),
        ({"time_major": True}, "axis of the sequence"),
        ({"cell_bits": 8}, "cells with the scale"),
    ],
)
def test_unsupported_lstms(change: dict[str, object], message: str) -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(ModelError, match=rf"operator 0 \(UNIDIR.*{message}"):
        network_of(lstm_model(rng, 4, 3, 5, **change))  # pyright: ignore[reportArgumentType]


def test_without_wide_modes() -> None:
    network = network_of(lstm_model(np.random.default_rng(1), 4, 3, 5))
    with pytest.raises(CompileError, match=r"operator 0 \(UNIDIR.*no 16-bit modes"):
        compile_network(preset("tiny"), network, 1)
