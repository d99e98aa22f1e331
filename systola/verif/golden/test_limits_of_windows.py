# SPDX-License-Identifier: Apache-2.0
"""Tests of Convolve, Depthwise and Pool at the last legal address, window or weight, and beyond."""

from __future__ import annotations

import dataclasses

import pytest

from systola.arch.isa import Fault, Reduction
from systola.verif.golden.rig import HALT, SQUARE, Rig
from systola.verif.golden.windows import Windows
from systola.verif.golden.words import convolve, depthwise, pool, weights

# A feature map with 5 rows of 4 pixels on 25 lines, 2x3 taps and 3x2 windows.
MAP = Windows(
    **{"height": 5, "width": 4, "pitch": 5, "kernel_height": 2, "kernel_width": 3},
    **{"out_height": 3, "out_width": 2},
)
# The map for packed channels: up to 4 channels to a pixel, and one column of taps.
PACKED = dataclasses.replace(MAP, kernel_width=1)
WINDOW_LIMITS: list[tuple[Windows, bytes, Windows, bytes, Fault, int]] = [
    # Columns: window and instruction at a limit, both beyond it, the fault's cause and address.
    (MAP, convolve(buffer=999), MAP, convolve(buffer=1000), Fault.BUFFER_RANGE, 1000),
    (
        MAP,
        convolve(buffer=979, plane=10, k_tiles=3, fill=1),
        MAP,
        convolve(buffer=979, plane=11, k_tiles=3),
        Fault.BUFFER_RANGE,
        979,
    ),
    (MAP, convolve(plane=2**20 - 1), MAP, convolve(plane=1000, k_tiles=2), Fault.BUFFER_RANGE, 0),
    (MAP, convolve(), MAP, convolve(plane=2**20 - 1, k_tiles=4095), Fault.BUFFER_RANGE, 0),
    (
        MAP,
        convolve(accumulator=238, n_tiles=3),
        MAP,
        convolve(accumulator=239, n_tiles=3),
        Fault.ACCUMULATOR_RANGE,
        239,
    ),
    (MAP, convolve(k_tiles=4), MAP, convolve(k_tiles=5), Fault.WEIGHT_UNDERFLOW, 24),
    (MAP, convolve(n_tiles=4), MAP, convolve(n_tiles=5), Fault.WEIGHT_UNDERFLOW, 24),
    (
        PACKED,
        convolve(channels=3, n_tiles=12),
        PACKED,
        convolve(channels=3, n_tiles=13),
        Fault.WEIGHT_UNDERFLOW,
        24,
    ),
    (
        dataclasses.replace(PACKED, kernel_width=4),
        convolve(channels=1, n_tiles=12),
        dataclasses.replace(PACKED, kernel_width=4),
        convolve(channels=1, n_tiles=13),
        Fault.WEIGHT_UNDERFLOW,
        24,
    ),
    # Packed channels must fit on the four rows of the array.
    (PACKED, convolve(channels=4), PACKED, convolve(channels=5), Fault.WINDOW, 0),
    (PACKED, convolve(channels=3), PACKED, convolve(channels=3, k_tiles=2), Fault.WINDOW, 0),
    (
        dataclasses.replace(PACKED, kernel_width=2),
        convolve(channels=2),
        dataclasses.replace(PACKED, kernel_width=3),
        convolve(channels=2),
        Fault.WINDOW,
        0,
    ),
    (
        dataclasses.replace(PACKED, stride_x=4),
        convolve(channels=1),
        dataclasses.replace(PACKED, stride_x=5),
        convolve(channels=1),
        Fault.WINDOW,
        0,
    ),
    (
        dataclasses.replace(PACKED, dilation_y=2),
        convolve(channels=1),
        dataclasses.replace(PACKED, dilation_x=2),
        convolve(channels=1),
        Fault.WINDOW,
        0,
    ),
    (
        dataclasses.replace(PACKED, left=-2),
        convolve(channels=2),
        dataclasses.replace(PACKED, left=-3),
        convolve(channels=2),
        Fault.WINDOW,
        0,
    ),
    (
        dataclasses.replace(PACKED, left=3),
        convolve(channels=1),
        dataclasses.replace(PACKED, left=4),
        convolve(channels=1),
        Fault.WINDOW,
        0,
    ),
    (
        dataclasses.replace(PACKED, left=1),
        convolve(channels=3),
        dataclasses.replace(PACKED, left=2),
        convolve(channels=2),
        Fault.WINDOW,
        0,
    ),
    (
        MAP,
        depthwise(buffer=974, blocks=2),
        MAP,
        depthwise(buffer=975, blocks=2),
        Fault.BUFFER_RANGE,
        975,
    ),
    (
        MAP,
        depthwise(taps=1012, blocks=2),
        MAP,
        depthwise(taps=1013, blocks=2),
        Fault.BUFFER_RANGE,
        1013,
    ),
    (
        MAP,
        depthwise(destination=1012, blocks=2),
        MAP,
        depthwise(destination=1013, blocks=2),
        Fault.BUFFER_RANGE,
        1013,
    ),
    (
        dataclasses.replace(MAP, kernel_height=4, kernel_width=16),
        depthwise(),
        dataclasses.replace(MAP, kernel_height=5, kernel_width=13),
        depthwise(),
        Fault.WINDOW,
        0,
    ),
    (MAP, depthwise(destination=25), MAP, depthwise(destination=24), Fault.OVERLAP, 24),
    (
        MAP,
        depthwise(buffer=6, destination=0),
        MAP,
        depthwise(buffer=5, destination=0),
        Fault.OVERLAP,
        0,
    ),
    (MAP, depthwise(destination=194), MAP, depthwise(destination=195), Fault.OVERLAP, 195),
    (MAP, depthwise(destination=206), MAP, depthwise(destination=205), Fault.OVERLAP, 205),
    (MAP, depthwise(taps=0), MAP, depthwise(destination=200), Fault.OVERLAP, 200),
    (
        MAP,
        depthwise(parameter=30, blocks=2),
        MAP,
        depthwise(parameter=30, blocks=3),
        Fault.PARAMETER_RANGE,
        30,
    ),
    (MAP, pool(buffer=974, blocks=2), MAP, pool(buffer=975, blocks=2), Fault.BUFFER_RANGE, 975),
    (
        MAP,
        pool(destination=1012, blocks=2),
        MAP,
        pool(destination=1013, blocks=2),
        Fault.BUFFER_RANGE,
        1013,
    ),
    (MAP, pool(destination=25), MAP, pool(destination=24), Fault.OVERLAP, 24),
    (MAP, pool(buffer=6, destination=0), MAP, pool(buffer=5, destination=0), Fault.OVERLAP, 0),
    # Results must not overwrite the map, not even if one window covers the whole map.
    (Windows(), pool(destination=1), Windows(), pool(destination=0), Fault.OVERLAP, 0),
    (MAP, pool(parameter=31, blocks=9), MAP, pool(parameter=32), Fault.PARAMETER_RANGE, 32),
    (
        MAP,
        pool(parameter=31, reduction=Reduction.SUM),
        MAP,
        pool(parameter=32, reduction=Reduction.SUM),
        Fault.PARAMETER_RANGE,
        32,
    ),
    (
        MAP,
        pool(parameter=26, reduction=Reduction.AVERAGE),
        MAP,
        pool(parameter=27, reduction=Reduction.AVERAGE),
        Fault.PARAMETER_RANGE,
        27,
    ),
    # Pool takes any number of taps.
    (
        dataclasses.replace(MAP, kernel_height=255, kernel_width=255),
        pool(),
        MAP,
        pool(buffer=1024),
        Fault.BUFFER_RANGE,
        1024,
    ),
]


@pytest.mark.parametrize(("good", "legal", "bad", "faulty", "cause", "address"), WINDOW_LIMITS)
def test_limits_of_windows(
    good: Windows, legal: bytes, bad: Windows, faulty: bytes, cause: Fault, address: int
) -> None:
    load = weights(0, 24)
    Rig(SQUARE, tiles=24).complete(load, good.word, legal, HALT)
    assert Rig(SQUARE, tiles=24).fault(load, bad.word, faulty, HALT) == (cause, 2, address)


@pytest.mark.parametrize("word", [convolve(), convolve(channels=1), depthwise(), pool()])
def test_a_window_must_have_been_set(word: bytes) -> None:
    assert Rig(SQUARE, tiles=1).fault(weights(), word) == (Fault.WINDOW, 1, 0)
    Rig(SQUARE, tiles=1).complete(weights(), Windows().word, word, HALT)
