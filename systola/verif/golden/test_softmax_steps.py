# SPDX-License-Identifier: Apache-2.0
"""Test of the steps of an int8 softmax, with one query in each lane, against LiteRT.

The machine computes all steps but the sums and their reciprocals, which the test computes.
docs/transformers.md has all steps.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.arch.config import preset
from systola.arch.isa import (
    LONG_TABLES,
    PARAMETER_PLANES,
    Function,
    Opcode,
    Operation,
    Reduction,
    Rounding,
    encode,
)
from systola.compiler.quantise import rounded_shift
from systola.compiler.softmax import exponentials, reciprocal
from systola.verif.compiler.model_writer import ModelWriter, interpret
from systola.verif.golden.rig import HALT, Rig
from systola.verif.kit.seeds import random_seed

CONFIG = preset("base-attention")
SCORES, LARGEST = 0, 1000
"""First line of the scores, which the results replace, and the line of the largest scores."""


def entry(multiplier: NDArray[np.int64] | int, left: int, right: NDArray[np.int64] | int) -> bytes:
    """Return a parameter entry with multipliers and shifts for all lanes, and no bias."""
    planes = np.zeros((PARAMETER_PLANES, CONFIG.output_pitch), np.uint8)
    lanes = np.zeros(CONFIG.cols, np.int64)
    planes[4:8, : CONFIG.cols] = (lanes + multiplier).astype("<u4").view(np.uint8).reshape(-1, 4).T
    planes[8, : CONFIG.cols] = left << 5 | (lanes + right)
    return planes.tobytes()


def maxima(keys: int) -> list[bytes]:
    """Return the instructions that find the largest of `keys` scores in each lane."""
    window = {"height": keys, "kernel_height": keys, "width": 1, "kernel_width": 1, "pitch": 1}
    ones = dict.fromkeys(("stride_y", "stride_x", "dilation_y", "dilation_x"), 1)
    place = {"buffer": SCORES, "destination": LARGEST, "blocks": 1, "parameter": 0}
    how = {"reduction": Reduction.MAX, "rounding": Rounding.SINGLE}
    return [
        encode(Opcode.SET_CONFIG_WINDOW, **window, **ones, out_height=1, out_width=1),
        encode(Opcode.POOL, **place, **how),
    ]


@pytest.mark.parametrize(
    ("keys", "scale", "beta"), [(1, 0.1, 1.0), (128, 0.1, 1.0), (197, 0.01, 1.0), (255, 0.7, 0.3)]
)
def test_against_litert(keys: int, scale: float, beta: float) -> None:
    rng = np.random.default_rng(random_seed())
    widths = rng.integers(1, 129, (CONFIG.cols, 1))
    scores = rng.integers(-widths, widths, (CONFIG.cols, keys)).astype(np.int8)
    scores[0] = [-128, *[127] * (keys - 1)]
    rig = Rig(CONFIG)
    rig.machine.buffer[SCORES : SCORES + keys, : CONFIG.cols] = scores.T
    content = entry(1 << 30, 1, 0)
    rig.host[: len(content)] = np.frombuffer(content, np.uint8)
    load = encode(Opcode.LOAD_PARAMETERS, host=0, parameter=0, count=1)
    rig.complete(load, *maxima(keys), HALT)

    largest = scores.max(axis=1).astype(np.int64)
    assert np.array_equal(rig.machine.buffer[LARGEST, : CONFIG.cols], largest)
    # The host's part of the softmax: the sums and their reciprocals.
    table = exponentials(np.float32(scale).item(), np.float32(beta).item())
    exponential = table[largest[:, np.newaxis] - scores]
    factor, shift = reciprocal(rounded_shift(exponential, 12).sum(axis=1))
    content = entry(factor, 0, shift)
    rig.host[: len(content)] = np.frombuffer(content, np.uint8)
    # The index of the table is a score minus the largest score, modulo 256. So entry 255 is for a
    # score that is 1 below the largest.
    numbers = np.roll(table[::-1], 1).astype("<i4").view(np.int8)
    rig.machine.tables[:LONG_TABLES] = numbers.reshape(LONG_TABLES, -1)
    result = encode(
        Opcode.VECTOR,
        operation=Operation.ADD,
        function=Function.QUOTIENT,
        buffer=SCORES,
        operand=LARGEST,
        destination=SCORES,
        rows=keys,
        parameter=0,
        zero_point=-128,
    )
    rig.complete(load, result, HALT)

    writer = ModelWriter()
    source = writer.tensor(scores.shape, "int8", np.float32(scale), -3)
    made = writer.tensor(scores.shape, "int8", 1 / 256, -128)
    writer.operator("SOFTMAX", [source], [made], beta=beta)
    expected = interpret(writer.content([source], [made]), scores[np.newaxis])[0]
    y = rig.machine.buffer[SCORES : SCORES + keys, : CONFIG.cols].T
    assert np.array_equal(y, expected)
