# SPDX-License-Identifier: Apache-2.0
"""Tests of the sizes of the preset configurations."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest

from systola.arch.config import DEFAULT_PRESET, PRESETS, ConfigError, preset


def test_arrays() -> None:
    sizes = {name: (config.rows, config.cols) for name, config in PRESETS.items()}
    assert sizes == {"tiny": (4, 4), "small": (8, 8), "base": (16, 16), "v1": (256, 256)}
    assert DEFAULT_PRESET == "base"


def test_v1_has_the_sizes_of_the_original() -> None:
    v1 = preset("v1")
    assert v1.peak_macs == 65536
    assert v1.buffer_lines * v1.line_bytes == 24 * 2**20
    assert v1.accumulator_rows == 4096
    assert v1.accumulator_rows * v1.cols * 4 == 4 * 2**20
    assert v1.weight_fifo_tiles == 4
    assert v1.tile_bytes == 64 * 2**10
    rate = v1.weight_bus_bytes * Fraction(*v1.weight_throttle)
    assert rate == Fraction(34 * 10**9, 700 * 10**6)


def test_base_has_ports_of_sixteen_bytes() -> None:
    base = preset("base")
    assert (base.host_bus_bytes, base.weight_bus_bytes, base.weight_throttle) == (16, 16, (1, 1))


def test_tiny_is_built_without_depthwise_lanes_and_16_bit_modes() -> None:
    parts = {name: (c.tables > 0, c.depthwise, c.wide) for name, c in PRESETS.items()}
    everything = (True, True, True)
    assert parts == {
        "tiny": (True, False, False),
        "small": everything,
        "base": everything,
        "v1": everything,
    }


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tables": 17}, "tables must be 0 to 16"),
        ({"attention": True}, "attention needs 16-bit modes, 5 tables, and a lane for each column"),
        ({"instruction_buffer": 48}, "instruction_buffer must be a power of two from 32 to 1024"),
        ({"instruction_buffer": 16}, "instruction_buffer must be a power of two from 32 to 1024"),
    ],
)
def test_refused(changes: dict[str, int], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        dataclasses.replace(preset("tiny"), **changes)
    assert dataclasses.replace(preset("tiny"), tables=0).tables == 0


@pytest.mark.parametrize(
    ("name", "line", "input_pitch", "output_pitch", "tile"),
    [
        ("tiny", 4, 4, 4, 16),
        ("14x14", 14, 16, 16, 14 * 16),
        ("6x10", 10, 16, 16, 6 * 16),
        ("3x2", 3, 4, 4, 3 * 4),
        ("2x100", 100, 64, 128, 2 * 128),
        ("256x256", 256, 256, 256, 65536),
    ],
)
def test_derived_sizes(
    name: str, line: int, input_pitch: int, output_pitch: int, tile: int
) -> None:
    config = preset(name)
    got = (config.line_bytes, config.input_pitch, config.output_pitch, config.tile_bytes)
    assert got == (line, input_pitch, output_pitch, tile)


@pytest.mark.parametrize("name", ["", "huge", "1x4", "4x257", "4x", "0x0", "99999x4"])
def test_unknown_presets(name: str) -> None:
    with pytest.raises(ConfigError):
        preset(name)
