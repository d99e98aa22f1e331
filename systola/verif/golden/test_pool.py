# SPDX-License-Identifier: Apache-2.0
"""Tests of the instruction Pool against loops over windows and taps."""

from __future__ import annotations

import random

import pytest

from systola.arch.config import Config
from systola.arch.isa import Opcode, Reduction, Rounding, encode
from systola.verif.golden import scalar
from systola.verif.golden.rig import HALT, SHAPES, SQUARE, Rig
from systola.verif.golden.windows import Windows, random_windows
from systola.verif.kit.seeds import random_seed


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: config.name)
def test_against_loops(config: Config) -> None:
    rng = random.Random(random_seed())
    rig = Rig(config)
    for _ in range(80):
        w = random_windows(rng)
        blocks = rng.randint(1, 3)
        reduction, rounding = rng.choice(list(Reduction)), rng.choice(list(Rounding))
        entries = w.taps if reduction == Reduction.AVERAGE else 1
        source, result = blocks * w.lines, blocks * w.outputs
        first, gap = rng.randrange(20), rng.choice((0, 0, 7))
        behind = rng.random() < 0.5
        at = {
            "buffer": first if behind else first + result + gap,
            "destination": first + source + gap if behind else first,
            "blocks": blocks,
            "parameter": rng.randint(0, config.parameter_entries - entries),
            "zero_point": rng.randint(-128, 127),
            "floor": rng.choice((-128, rng.randint(-128, 127))),
            "ceiling": rng.choice((127, rng.randint(-128, 127))),
        }
        rig.randomise(rng)
        lines = rig.lines()
        expected = rig.lines()
        for b in range(blocks):
            for number, (p, q) in enumerate(w.positions()):
                inside = [
                    lines[at["buffer"] + b * w.lines + pixel]
                    for i, j in w.kernel()
                    if (pixel := w.line(p, q, i, j)) is not None
                ]
                line = [0] * config.line_bytes
                for c in range(config.cols):
                    taps = [pixel[c] for pixel in inside]
                    s = max(taps, default=-128) if reduction == Reduction.MAX else sum(taps)
                    entry = at["parameter"]
                    if reduction == Reduction.AVERAGE:
                        entry += max(len(taps), 1) - 1
                    y = rig.entry(entry, c).requantised(s, rounding)
                    line[c] = scalar.clamped(y + at["zero_point"], at["floor"], at["ceiling"])
                expected[at["destination"] + b * w.outputs + number] = line
        word = encode(Opcode.POOL, **at, reduction=reduction, rounding=rounding)
        rig.complete(w.word, word, HALT)
        assert rig.lines() == expected, (w, at, reduction, rounding)


def test_average_counts_the_taps_inside() -> None:
    """Check that AVERAGE divides by the number of taps inside the map.

    Windows of 2x2 taps on 3x3 pixels, with stride 2, have four, two, one and no tap inside.
    """
    rig = Rig(SQUARE)
    for taps in (1, 2, 3, 4):
        # A multiplier of 2^31 / taps divides the sum by the number of taps.
        multiplier = min(2**31 // taps, 2**31 - 1)
        rig.set_entry(4 + taps, 0, scalar.Entry(bias=0, multiplier=multiplier, left=0, right=0))
        rig.set_entry(4 + taps, 1, scalar.Entry(bias=taps, multiplier=2**30, left=1, right=0))
    rig.machine.buffer[:9, 0] = [10, 20, 31, 40, 50, 60, 71, 80, -90]
    w = Windows(
        **{"height": 3, "width": 3, "pitch": 3, "kernel_height": 2, "kernel_width": 2},
        **{"stride_y": 2, "stride_x": 2, "out_height": 2, "out_width": 3},
    )
    at = {"buffer": 0, "destination": 9, "blocks": 1, "parameter": 5, "reduction": 1}
    rig.complete(w.word, encode(Opcode.POOL, **at), HALT)
    # The second channel is zero, so each result is the bias of the entry that was used. The bias of
    # each entry is its number of taps.
    assert rig.machine.buffer[9:15, :2].tolist() == [
        [30, 4],
        [46, 2],  # 91 / 2, rounded away from zero
        [0, 1],
        [76, 2],
        [-90, 1],
        [0, 1],
    ]


def test_large_windows() -> None:
    """Check global pooling: one window of 20x20 pixels."""
    rig = Rig(SQUARE)
    rig.set_entry(0, 0, scalar.Entry(bias=0, multiplier=2**31 // 400 * 2, left=0, right=1))
    rig.machine.buffer[:400, 0] = 100
    rig.machine.buffer[:400, 1] = -128
    rig.set_entry(0, 1, scalar.Entry(bias=0, multiplier=2**30, left=1, right=0))
    w = Windows(height=20, width=20, pitch=20, kernel_height=20, kernel_width=20)
    at = {"buffer": 0, "destination": 400, "blocks": 1, "parameter": 0}
    rig.complete(w.word, encode(Opcode.POOL, **at, reduction=Reduction.SUM), HALT)
    assert rig.machine.buffer[400].tolist() == [100, -128, 0, 0]
