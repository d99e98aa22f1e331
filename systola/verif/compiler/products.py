# SPDX-License-Identifier: Apache-2.0
"""Random layers, and their results in numpy by the formulae of the instruction set's text."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config, preset
from systola.arch.isa import Function, Rounding
from systola.compiler.layer import Layer

ARRAYS = ("2x2", "tiny", "small", "14x14", "base", "32x32", "6x10", "9x4")
"""Sizes of arrays, S x S or rectangular, on which matrix products are tested.

Products of all M, K and N from 1 to 4 S + 1 must work on the square sizes.
"""


def small_machine(rng: np.random.Generator) -> Config:
    """Return a machine with memories so small that nearly every product must be cut."""
    rows, cols = (int(rng.integers(2, 6)) for _ in range(2))
    return dataclasses.replace(
        preset(f"{rows}x{cols}"),
        buffer_lines=4 * int(rng.integers(4, 20)),
        accumulator_rows=2 * int(rng.integers(1, 12)),
        parameter_entries=int(rng.integers(1, 9)),
        tables=int(rng.integers(1, 3)),
        host_bus_bytes=int(rng.choice([4, 8])),
        weight_bus_bytes=int(rng.choice([4, 16])),
    )


def random_layer(rng: np.random.Generator, k: int, n: int) -> Layer:
    """Return a layer of k inputs and n outputs with random weights, function and rounding."""
    function = Function(int(rng.integers(4)))
    table = rng.integers(0, 256, 256, dtype=np.uint8).tobytes()
    return Layer(
        weights=rng.integers(-128, 128, (k, n), dtype=np.int8),
        bias=rng.integers(-(1 << 12), 1 << 12, n, dtype=np.int32),
        multiplier=rng.integers(1 << 30, (1 << 31) - 1, n, dtype=np.int32),
        shift=rng.integers(-10, -6, n, dtype=np.int32),
        rounding=Rounding(int(rng.integers(2))),
        zero_point=int(rng.integers(-128, 128)),
        function=function,
        ceiling=int(rng.integers(-128, 128)),
        table=table if function == Function.TABLE else None,
    )


def product(a: NDArray[np.int8], layer: Layer) -> NDArray[np.int8]:
    """Return the results of `layer` for inputs `a`, by the instruction set's formulae in int64."""
    # The sums are exact in float64, in which numpy multiplies matrices faster than in integers.
    x = (a.astype(np.float64) @ layer.weights.astype(np.float64)).astype(np.int64) + layer.bias
    q, r = layer.multiplier.astype(np.int64), -layer.shift.astype(np.int64)
    if layer.rounding == Rounding.SINGLE:
        y = (x * q + (1 << (30 + r))) >> (31 + r)
    else:
        high = (x * q + (1 << 30)) >> 31
        y = (high + (1 << (r - 1)) - (high < 0)) >> r
    v = y + layer.zero_point
    low, top = -128, 127
    if layer.function in (Function.RELU, Function.RELU6):
        low = layer.zero_point
    if layer.function == Function.RELU6:
        top = layer.ceiling
    v = np.minimum(np.maximum(v, low), top)
    if layer.table is not None:
        v = np.frombuffer(layer.table, np.int8)[v & 0xFF]
    return v.astype(np.int8)
