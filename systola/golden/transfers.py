# SPDX-License-Identifier: Apache-2.0
"""Instructions that move data between host memory and the chip."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from systola.arch.isa import PARAMETER_PLANES, TABLE_BYTES
from systola.golden.state import State


class Transfers(State):
    """The host writer and the host reader, which also loads parameters and tables."""

    def read_host_memory(
        self, *, host: int, buffer: int, rows: int, stride: int, blocks: int, tail: int
    ) -> None:
        """Copy blocks of R bytes from host memory into buffer lines, padded with zeros."""
        lines = self._lines(buffer, blocks, rows)
        self._read_host(lines, host, stride, tail)

    def read_host_memory_alternate(
        self, *, host: int, buffer: int, rows: int, stride: int, blocks: int, tail: int
    ) -> None:
        """Copy blocks as Read_Host_Memory does, but a row's blocks into consecutive lines."""
        lines = self._lines(buffer, rows, blocks).transpose(1, 0, 2)
        self._read_host(lines, host, stride, tail)

    def write_host_memory(
        self, *, host: int, buffer: int, rows: int, stride: int, blocks: int, tail: int
    ) -> None:
        """Copy the first C bytes of buffer lines to host memory, block after block."""
        size = self.config.cols
        lines = self._lines(buffer, blocks, rows).view(np.uint8)
        for block in range(blocks):
            count = tail if block == blocks - 1 else size
            target = self._host_rows(host + block * self.config.output_pitch, rows, stride, count)
            if stride >= count:
                target[:] = lines[block, :, :count]
            else:
                # Rows overlap, so their order matters. numpy promises none within one assignment.
                for row in range(rows):
                    target[row] = lines[block, row, :count]

    def write_host_memory_alternate(
        self, *, host: int, buffer: int, rows: int, stride: int, blocks: int, tail: int
    ) -> None:
        """Copy the first C bytes of buffer lines to host memory, row after row."""
        size, pitch = self.config.cols, self.config.output_pitch
        lines = self._lines(buffer, rows, blocks).view(np.uint8)
        # If rows do not overlap, they may be written in any order.
        apart = stride >= blocks * pitch
        spans = [slice(0, rows)] if apart else [slice(row, row + 1) for row in range(rows)]
        for span in spans:
            for block in range(blocks):
                count = tail if block == blocks - 1 else size
                target = self._host_rows(host + block * pitch, rows, stride, count)
                target[span] = lines[span, block, :count]

    def load_parameters(self, *, host: int, parameter: int, count: int) -> None:
        """Copy `count` parameter entries from host memory."""
        pitch = self.config.output_pitch
        size = count * PARAMETER_PLANES * pitch
        planes = self._host[host : host + size].reshape(count, PARAMETER_PLANES, pitch)
        self.parameters[parameter : parameter + count] = planes[:, :, : self.config.cols]

    def load_table(self, *, host: int, table: int) -> None:
        """Copy one activation table from host memory."""
        self.tables[table] = self._host[host : host + TABLE_BYTES].view(np.int8)

    def _read_host(self, lines: NDArray[np.int8], host: int, stride: int, tail: int) -> None:
        """Fill lines (blocks, rows, line_bytes) from host memory."""
        blocks, rows, _ = lines.shape
        lines[:] = 0
        for block in range(blocks):
            count = tail if block == blocks - 1 else self.config.rows
            source = self._host_rows(host + block * self.config.input_pitch, rows, stride, count)
            lines[block, :, :count] = source.view(np.int8)

    def _host_rows(self, offset: int, rows: int, stride: int, count: int) -> NDArray[np.uint8]:
        """Return `count` bytes at every `stride` bytes of host memory, as a view: (rows, count)."""
        return as_strided(self._host[offset:], shape=(rows, count), strides=(stride, 1))
