# SPDX-License-Identifier: Apache-2.0
"""The bytes, beats and bursts of a copy between host memory and the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from systola.arch.config import Config


@dataclass(frozen=True)
class Copy:
    """A copy that uses bytes `first` to `end` - 1 of the host window, possibly with gaps."""

    first: int
    end: int
    lines: int
    """Number of lines or parameter entries on the chip that are copied."""
    beats: int
    bursts: int

    @staticmethod
    def linear(config: Config, first: int, lines: int, beats: int) -> Copy:
        """Return the description of a transfer of `beats` beats, without gaps in host memory."""
        end = first + beats * config.host_bus_bytes
        return Copy(first, end, lines, beats, -(-beats // config.max_burst_beats))


def copy_of(config: Config, operands: Mapping[str, int], pitch: int, alternate: bool) -> Copy:
    """Return the copy of a Read_Host_Memory or Write_Host_Memory.

    Each line takes `pitch` bytes in host memory.
    """
    rows, blocks, stride = operands["rows"], operands["blocks"], operands["stride"]
    first, lines = operands["host"], rows * blocks
    line_beats = pitch // config.host_bus_bytes
    row_in_one = (alternate or blocks == 1) and stride == blocks * pitch
    if rows == 1 or row_in_one:
        return Copy.linear(config, first, lines, lines * line_beats)
    run_beats = line_beats * (blocks if alternate else 1)
    runs = rows if alternate else lines
    bursts = runs * -(-run_beats // config.max_burst_beats)
    end = first + (rows - 1) * stride + blocks * pitch
    return Copy(first, end, lines, lines * line_beats, bursts)
