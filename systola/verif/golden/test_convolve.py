# SPDX-License-Identifier: Apache-2.0
"""Tests of Convolve against loops over windows and taps, with whole pixels and packed channels."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from systola.arch.config import Config
from systola.arch.isa import Fault, Opcode, encode
from systola.verif.golden import scalar
from systola.verif.golden.rig import HALT, SHAPES, SQUARE, TALL, Rig
from systola.verif.golden.windows import Windows, random_windows
from systola.verif.kit.seeds import random_seed

TILES = 200
QUEUE = encode(Opcode.READ_WEIGHTS, tile=0, count=TILES)


def underflow_shows(rig: Rig, *words: bytes) -> int:
    """Return the number of weight tiles left in the queue after the instructions `words`.

    A product with too many tiles raises WEIGHT_UNDERFLOW, with the number of tiles left as the
    fault's address.
    """
    program = (
        *words,
        encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=1, k_tiles=999, n_tiles=1),
    )
    cause, _, left = rig.fault(*program)
    assert cause == Fault.WEIGHT_UNDERFLOW
    return left


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: config.name)
def test_whole_pixels_against_loops(config: Config) -> None:
    rng = random.Random(random_seed())
    rig = Rig(config, tiles=TILES)
    for _ in range(40):
        w = random_windows(rng)
        k_tiles, n_tiles = rng.randint(1, 3), rng.randint(1, 3)
        plane = rng.choice((w.lines, w.lines + 5, 0, 1))
        region = (k_tiles - 1) * plane + w.lines
        at = {
            "buffer": rng.randint(0, config.buffer_lines - region),
            "accumulator": rng.randint(0, config.accumulator_rows - n_tiles * w.outputs),
            "plane": plane,
            "k_tiles": k_tiles,
            "n_tiles": n_tiles,
            "accumulate": rng.randrange(2),
            "fill": rng.randint(-128, 127),
        }
        rig.randomise(rng)
        lines = rig.lines()
        sums: list[list[int]] = rig.machine.accumulators.tolist()
        outside = [at["fill"]] * config.rows
        tile = 0
        for n in range(n_tiles):
            first = True
            for i, j in w.kernel():
                for k in range(k_tiles):
                    for number, (p, q) in enumerate(w.positions()):
                        line = w.line(p, q, i, j)
                        x = outside if line is None else lines[at["buffer"] + k * plane + line]
                        row = sums[at["accumulator"] + n * w.outputs + number]
                        for c in range(config.cols):
                            start = 0 if first and not at["accumulate"] else row[c]
                            dot = sum(x[r] * rig.weight(tile, r, c) for r in range(config.rows))
                            row[c] = scalar.wrap32(start + dot)
                    tile += 1
                    first = False
        words = (w.word, QUEUE, encode(Opcode.CONVOLVE, **at))
        rig.complete(*words, HALT)
        assert rig.machine.accumulators.tolist() == sums, (w, at)
        assert rig.lines() == lines
        assert underflow_shows(rig, *words) == TILES - tile


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: config.name)
def test_packed_channels_against_loops(config: Config) -> None:
    """Check packed channels: a vector is the bytes of a kernel's row, and the bytes that follow."""
    rng = random.Random(random_seed())
    size = config.rows
    rig = Rig(config, tiles=TILES)
    for _ in range(60):
        channels = rng.randint(1, min(3, size))
        width = rng.randint(1, 9)
        w = dataclasses.replace(
            random_windows(rng),
            width=width,
            pitch=-(-width * channels // size) + rng.choice((0, 0, 2)),
            kernel_width=rng.randint(1, size // channels),
            stride_x=rng.randint(1, size // channels),
            dilation_x=1,
            left=rng.randint(-(size // channels), (size - 1) // channels),
        )
        n_tiles = rng.randint(1, 3)
        at = {
            "buffer": rng.randint(0, config.buffer_lines - w.lines),
            "accumulator": rng.randint(0, config.accumulator_rows - n_tiles * w.outputs),
            "plane": rng.getrandbits(20),
            "k_tiles": 1,
            "n_tiles": n_tiles,
            "accumulate": rng.randrange(2),
            "fill": rng.randint(-128, 127),
            "channels": channels,
        }
        rig.randomise(rng)
        lines = rig.lines()
        sums: list[list[int]] = rig.machine.accumulators.tolist()
        tile = 0
        for n in range(n_tiles):
            for i in range(w.kernel_height):
                for number, (p, q) in enumerate(w.positions()):
                    y = w.top + p * w.stride_y + i * w.dilation_y
                    x = [at["fill"]] * size
                    for e in range(size):
                        t = (w.left + q * w.stride_x) * channels + e
                        if 0 <= y < w.height and 0 <= t < w.width * channels:
                            x[e] = lines[at["buffer"] + y * w.pitch + t // size][t % size]
                    row = sums[at["accumulator"] + n * w.outputs + number]
                    for c in range(config.cols):
                        start = 0 if i == 0 and not at["accumulate"] else row[c]
                        dot = sum(x[r] * rig.weight(tile, r, c) for r in range(size))
                        row[c] = scalar.wrap32(start + dot)
                tile += 1
        words = (w.word, QUEUE, encode(Opcode.CONVOLVE, **at))
        rig.complete(*words, HALT)
        assert rig.machine.accumulators.tolist() == sums, (w, at)
        assert underflow_shows(rig, *words) == TILES - tile


def test_packed_and_whole_pixels_agree() -> None:
    """Check that packed channels and whole pixels give the same sums for one layer of a network.

    The layer has 5x6 pixels of 2 channels, a 3x3 kernel, padding SAME and stride 2.
    """
    rng = np.random.default_rng(random_seed())
    image = rng.integers(-128, 128, (5, 6, 2)).astype(np.int8)
    kernel = rng.integers(-128, 128, (3, 3, 2, 3)).astype(np.int8)
    w = Windows(
        **{"height": 5, "width": 6, "kernel_height": 3, "kernel_width": 3},
        **{"stride_y": 2, "stride_x": 2, "top": -1, "left": 0, "out_height": 3, "out_width": 3},
    )
    results: list[list[list[int]]] = []
    for channels in (0, 2):
        rig = Rig(TALL, tiles=9)  # a machine with six rows and three columns
        if channels:
            w = dataclasses.replace(w, pitch=2)
            rig.machine.buffer[:10] = image.reshape(10, 6)
            for i in range(3):
                rig.tile(i)[:, :3] = kernel[i].reshape(6, 3).view(np.uint8)
        else:
            w = dataclasses.replace(w, pitch=6)
            rig.machine.buffer[:30, :2] = image.reshape(30, 2)
            rig.machine.buffer[:30, 2:] = 55  # bytes that the product must not use
            for tap, weights in enumerate(kernel.reshape(9, 2, 3)):
                rig.tile(tap)[:2, :3] = weights.view(np.uint8)
        at = {"buffer": 0, "accumulator": 0, "plane": 0, "k_tiles": 1, "n_tiles": 1, "fill": -9}
        rig.complete(
            w.word,
            encode(Opcode.READ_WEIGHTS, tile=0, count=9),
            encode(Opcode.CONVOLVE, **at, channels=channels),
            HALT,
        )
        results.append(rig.machine.accumulators[:9].tolist())
    padded = np.full((7, 8, 2), -9, np.int64)
    padded[1:6, :6] = image
    expected = [
        np.einsum("ijc,ijcn->n", padded[2 * p : 2 * p + 3, 2 * q : 2 * q + 3], kernel).tolist()
        for p in range(3)
        for q in range(3)
    ]
    assert results == [expected, expected]


def test_sums_wrap_with_accumulate() -> None:
    rig = Rig(SQUARE, tiles=1)
    rig.tile(0)[:] = np.eye(4, dtype=np.uint8)
    rig.machine.buffer[0] = [1, 2, -3, 4]
    rig.machine.accumulators[6] = [2**31 - 1, 0, -(2**31), -1]
    at = {"buffer": 0, "accumulator": 6, "plane": 0, "k_tiles": 1, "n_tiles": 1, "accumulate": 1}
    rig.complete(
        Windows().word,
        encode(Opcode.READ_WEIGHTS, tile=0, count=1),
        encode(Opcode.CONVOLVE, **at),
        HALT,
    )
    assert rig.machine.accumulators[6].tolist() == [-(2**31), 2, 2**31 - 3, 3]
