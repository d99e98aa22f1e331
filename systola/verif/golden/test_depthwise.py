# SPDX-License-Identifier: Apache-2.0
"""Tests of Depthwise against loops over windows and taps."""

from __future__ import annotations

import random

import pytest

from systola.arch.config import Config
from systola.arch.isa import Function, Opcode, Rounding, encode
from systola.verif.golden import scalar
from systola.verif.golden.rig import HALT, SHAPES, SQUARE, Rig
from systola.verif.golden.windows import Windows, random_windows
from systola.verif.kit.seeds import random_seed


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: config.name)
def test_against_loops(config: Config) -> None:
    rng = random.Random(random_seed())
    rig = Rig(config)
    for _ in range(60):
        w = random_windows(rng)
        blocks = rng.randint(1, 3)
        function = rng.choice((Function.NONE, Function.RELU, Function.RELU6))
        rounding = rng.choice(list(Rounding))
        # The feature map, kernels and results lie in the buffer in any order, with random gaps.
        sizes = {
            "buffer": blocks * w.lines,
            "taps": blocks * w.taps,
            "destination": blocks * w.outputs,
        }
        at: dict[str, int] = {}
        line = rng.randrange(20)
        for region in rng.sample(list(sizes), 3):
            at[region] = line
            line += sizes[region] + rng.choice((0, 0, 7))
        at |= {
            "blocks": blocks,
            "parameter": rng.randint(0, config.parameter_entries - blocks),
            "zero_point": rng.randint(-128, 127),
            "ceiling": rng.randint(-128, 127),
            "fill": rng.randint(-128, 127),
        }
        rig.randomise(rng)
        lines = rig.lines()
        expected = rig.lines()
        for b in range(blocks):
            for number, (p, q) in enumerate(w.positions()):
                result = [0] * config.line_bytes
                for c in range(config.cols):
                    s = 0
                    for tap, (i, j) in enumerate(w.kernel()):
                        pixel = w.line(p, q, i, j)
                        if pixel is None:
                            x = at["fill"]
                        else:
                            x = lines[at["buffer"] + b * w.lines + pixel][c]
                        s += x * lines[at["taps"] + b * w.taps + tap][c]
                    y = rig.entry(at["parameter"] + b, c).requantised(s, rounding)
                    result[c] = scalar.activated(y, function, at["zero_point"], at["ceiling"])
                expected[at["destination"] + b * w.outputs + number] = result
        word = encode(Opcode.DEPTHWISE, **at, function=function, rounding=rounding)
        rig.complete(w.word, word, HALT)
        assert rig.lines() == expected, (w, at, function, rounding)


def test_by_hand() -> None:
    """Check a kernel of three taps on a row of three pixels, with a padding of 10 on both sides."""
    rig = Rig(SQUARE)
    for c in range(4):
        rig.set_entry(0, c, scalar.Entry(bias=c, multiplier=2**30, left=1, right=0))
    rig.machine.buffer[0:3] = [[1, 1, -1, 0], [2, 1, -2, 0], [3, 1, -3, 0]]
    rig.machine.buffer[3:6] = [[1, 0, 1, 5], [2, 1, 1, 5], [3, 0, 1, 5]]
    w = Windows(width=3, pitch=3, kernel_width=3, left=-1, out_width=3)
    at = {"buffer": 0, "taps": 3, "destination": 6, "blocks": 1, "parameter": 0}
    rig.complete(w.word, encode(Opcode.DEPTHWISE, **at, fill=10, zero_point=1), HALT)
    assert rig.machine.buffer[6:9].tolist() == [
        [10 + 2 + 6 + 1, 1 + 2, 10 - 1 - 2 + 3, 50 + 4],
        [1 + 4 + 9 + 1, 1 + 2, -6 + 3, 0 + 4],
        [2 + 6 + 30 + 1, 1 + 2, -2 - 3 + 10 + 3, 50 + 4],
    ]


def test_as_many_taps_as_allowed() -> None:
    rig = Rig(SQUARE)
    rig.set_entry(0, 0, scalar.Entry(bias=0, multiplier=2**30, left=0, right=6))
    rig.machine.buffer[:128, 0] = 10
    w = Windows(height=8, width=8, pitch=8, kernel_height=8, kernel_width=8)
    at = {"buffer": 0, "taps": 64, "destination": 128, "blocks": 1, "parameter": 0}
    rig.complete(w.word, encode(Opcode.DEPTHWISE, **at), HALT)
    assert rig.machine.buffer[128].tolist() == [50, 0, 0, 0]
