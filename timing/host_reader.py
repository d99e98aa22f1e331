# SPDX-License-Identifier: Apache-2.0
"""Reads from host memory into buffer, parameters and tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from systola.arch.config import Config
from systola.arch.isa import PARAMETER_PLANES, TABLE_BYTES
from systola.timing.copies import Copy, copy_of
from systola.timing.host_read_port import HostReadPort
from systola.timing.regions import Regions, Space, last_overlap
from systola.timing.span import Span

WRITTEN = 1
"""Cycles from a line's last beat to its write."""


class HostReader:
    """Asks for the beats of one instruction after the other, and writes what comes."""

    def __init__(self, config: Config, regions: Regions, port: HostReadPort) -> None:
        self._config = config
        self._regions = regions
        self._port = port
        self._free = 0.0

    def read(self, operands: Mapping[str, int], issued: float, alternate: bool) -> Span:
        """A Read_Host_Memory or its alternate."""
        copy = copy_of(self._config, operands, self._config.input_pitch, alternate)
        first = operands["buffer"]
        lines = slice(first, first + copy.lines)
        beats = self._config.input_pitch // self._config.host_bus_bytes
        return self._fetch(copy, self._regions.buffer, lines, beats, 1, issued)

    def load_parameters(self, operands: Mapping[str, int], issued: float) -> Span:
        """A Load_Parameters."""
        config = self._config
        count = operands["count"]
        beats = PARAMETER_PLANES * (config.output_pitch // config.host_bus_bytes)
        copy = Copy.linear(config, operands["host"], count, count * beats)
        entries = slice(operands["parameter"], operands["parameter"] + count)
        return self._fetch(copy, self._regions.parameters, entries, beats, 1, issued)

    def load_table(self, operands: Mapping[str, int], issued: float) -> Span:
        """A Load_Table, which takes a byte a cycle."""
        bus = self._config.host_bus_bytes
        copy = Copy.linear(self._config, operands["host"], 1, TABLE_BYTES // bus)
        number = operands["table"]
        here = slice(number, number + 1)
        return self._fetch(copy, self._regions.tables, here, copy.beats, bus, issued)

    def _fetch(
        self, copy: Copy, space: Space, place: slice, beats: int, pace: int, issued: float
    ) -> Span:
        """Fills `place`, `beats` beats for each address, one every `pace` cycles at best."""
        written = last_overlap(self._regions.host_writes, copy.first, copy.end)
        begin = max(issued, float(space.used[place].max()), written, self._free) + 1
        transfer = self._port.data(begin, copy.beats, copy.bursts, pace)
        self._free = transfer.asked
        ends = np.arange(1, copy.lines + 1) * beats - 1
        space.written[place] = transfer.first + ends * transfer.beat + pace - 1 + WRITTEN
        end = transfer.end + pace - 1 + WRITTEN
        self._regions.host_reads[:] = [
            *self._regions.host_reads[-self._config.queue_depth + 1 :],
            (copy.first, copy.end, end),
        ]
        return Span(transfer.first, transfer.end, end, copy.beats * transfer.beat, copy.beats)

    def shift(self, cycles: float) -> None:
        """Moves everything that happened to later."""
        self._free += cycles
