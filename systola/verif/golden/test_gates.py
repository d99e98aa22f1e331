# SPDX-License-Identifier: Apache-2.0
"""Tests of SIGMOID and TANH against gemmlowp and plain integers, and of reciprocals.

SIGMOID and TANH of every int16 are compared with results of gemmlowp, reciprocals with floating
point.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from systola.golden.gates import inverse_root, reciprocal, sigmoid, tanh
from systola.verif.golden import gemmlowp
from systola.verif.kit.seeds import random_seed

ALL = np.arange(-32768, 32768, dtype=np.int16)
Gate = Callable[[NDArray[np.int16]], NDArray[np.int16]]
GATES: list[tuple[str, Gate, Callable[[int], int], int]] = [
    ("sigmoid", sigmoid, lambda a: gemmlowp.logistic(a, 3), 2310271886),
    ("tanh0", lambda x: tanh(x, 0), lambda a: gemmlowp.tanh(a, 0), 2739460856),
    ("tanh1", lambda x: tanh(x, 1), lambda a: gemmlowp.tanh(a, 1), 3380206877),
    ("tanh2", lambda x: tanh(x, 2), lambda a: gemmlowp.tanh(a, 2), 1949260215),
    ("tanh3", lambda x: tanh(x, 3), lambda a: gemmlowp.tanh(a, 3), 1890749950),
    ("tanh4", lambda x: tanh(x, 4), lambda a: gemmlowp.tanh(a, 4), 558921650),
]
"""Gates: name, golden model, a function in plain integers, and the CRC-32 of gemmlowp's results.

The results are little-endian int16, for arguments from -32768 on. A program with gemmlowp (C++,
scalar int16) has computed the results.
"""
gates = pytest.mark.parametrize(("name", "gate", "plain", "crc"), GATES, ids=[g[0] for g in GATES])


@gates
def test_every_value(name: str, gate: Gate, plain: Callable[[int], int], crc: int) -> None:
    result = gate(ALL)
    assert result.dtype == np.int16
    assert zlib.crc32(result.astype("<i2").tobytes()) == crc


@gates
def test_plain_integers(name: str, gate: Gate, plain: Callable[[int], int], crc: int) -> None:
    rng = random.Random(random_seed())
    powers = [sign * (1 << bit) + step for bit in range(15) for sign in (1, -1) for step in (-1, 0)]
    cases = [0, 1, -1, 32767, -32767, -32768, *powers]
    cases += [rng.randint(-32768, 32767) for _ in range(1500)]
    got = gate(np.array(cases, np.int16)).tolist()
    assert got == [plain(case) for case in cases]


def test_close_to_the_functions() -> None:
    x = ALL.astype(np.float64)
    assert np.abs(sigmoid(ALL) / 32768 - 1 / (1 + np.exp(-x / 4096))).max() < 7 / 32768
    for bits in range(5):
        exact = np.tanh(x / (1 << (15 - bits)))
        assert np.abs(tanh(ALL, bits) / 32768 - exact).max() < 13 / 32768


def test_reciprocals() -> None:
    x = np.maximum(np.abs(ALL.astype(np.float64)), 1) / 32768
    cases = ((inverse_root, 16384 / np.sqrt(x), 1.6), (reciprocal, 8192 / x, 3.3))
    for function, exact, most in cases:
        result = function(ALL)
        assert result.dtype == np.int16
        assert np.abs(result - np.minimum(exact, 32767)).max() < most
        assert np.array_equal(result[x <= 0.25], np.full(16385, 32767))
        assert np.array_equal(result[1:], function(-ALL[1:]))


def test_symmetry() -> None:
    x = ALL[1:]
    assert np.array_equal(sigmoid(x)[x != 0], 32767 - sigmoid(-x)[x != 0])
    for bits in range(5):
        assert np.array_equal(tanh(x, bits), -tanh(-x, bits))


def test_shapes_are_kept() -> None:
    x = ALL.reshape(16, 2, -1)
    assert np.array_equal(sigmoid(x).ravel(), sigmoid(ALL))
    assert tanh(x, 4).shape == x.shape
