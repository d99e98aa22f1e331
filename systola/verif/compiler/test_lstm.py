# SPDX-License-Identifier: Apache-2.0
"""Tests of random LSTM operators on the golden model, against the reference interpreter."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from systola.arch.config import preset
from systola.compiler.errors import CompileError, ModelError
from systola.compiler.network import compile_network
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.lstm_operator import add_lstm
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed

MACHINES = ("base", "small", "6x10", "9x4", "3x3")


def lstm_model(
    rng: np.random.Generator,
    steps: int,
    inputs: int,
    cells: int,
    *,
    shape: tuple[int, int, int] | None = None,
    **options: Any,
) -> bytes:
    """Return a model of a single LSTM; `options` are arguments of `add_lstm`."""
    writer = ModelWriter()
    scale = float(np.float32(rng.uniform(0.003, 0.02)))
    zero_point = int(rng.integers(-128, 128))
    source = writer.tensor(shape or (1, steps, inputs), "int8", scale, zero_point)
    result = add_lstm(rng, writer, source, scale, (steps, inputs, cells), **options)
    return writer.content([source], [result])


def test_random_lstms() -> None:
    rng = np.random.default_rng(random_seed())
    for number in range(20):
        steps, inputs, cells = (int(size) for size in rng.integers(1, (9, 40, 30)))
        sequences, time_major = int(rng.choice([1, 1, 2, 3])), bool(rng.integers(2))
        shape = (steps, sequences, inputs) if time_major else (sequences, steps, inputs)
        content = lstm_model(
            rng,
            steps,
            inputs,
            cells,
            shape=shape,
            sequences=sequences,
            time_major=time_major,
            cell_bits=int(rng.choice([7, 8, *range(11, 19)])),
            clip=float(rng.choice([0, 0.5, 10])),
        )
        config = preset(str(rng.choice(MACHINES)))
        if number % 3 == 0:
            config = dataclasses.replace(config, parameter_entries=max(4, -(-cells // 3)))
        x = rng.integers(-128, 128, (3, *shape), dtype=np.int8)
        run = run_network(GoldenBackend(config), network_of(content), x)
        assert np.array_equal(run.y, interpret(content, x)), (number, config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peephole": True}, "peepholes in an LSTM"),
        ({"no_input_gate": True}, "input 1 is missing"),
        ({"activation": 0}, "other than TANH"),
        ({"shape": (2, 4, 3)}, "it makes shape"),
        ({"cell_bits": 10}, "cells with the scale"),
        ({"no_scale": True}, "its result has no scale"),
    ],
)
def test_unsupported_lstms(change: dict[str, Any], message: str) -> None:
    rng = np.random.default_rng(1)
    with pytest.raises(ModelError, match=rf"operator 0 \(UNIDIR.*{message}"):
        network_of(lstm_model(rng, 4, 3, 5, **change))


def test_without_wide_modes() -> None:
    network = network_of(lstm_model(np.random.default_rng(1), 4, 3, 5))
    with pytest.raises(CompileError, match=r"operator 0 \(UNIDIR.*no 16-bit modes"):
        compile_network(preset("tiny"), network, 1)
