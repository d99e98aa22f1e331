# SPDX-License-Identifier: Apache-2.0
"""Instructions of the array: weights, products and convolutions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from systola.golden.requantise import Integers
from systola.golden.state import State
from systola.golden.wide import joined


class MatrixUnit(State):
    """The weight queue, the array, and the sums that it adds to the accumulators."""

    def read_weights(self, *, tile: int, count: int) -> None:
        """Queue `count` tiles from tile number `tile` on."""
        self._queue.append(range(tile, tile + count))

    def matrix_multiply(
        self,
        *,
        buffer: int,
        accumulator: int,
        rows: int,
        k_tiles: int,
        n_tiles: int,
        accumulate: int,
        wide_vectors: int,
        wide_weights: int,
        from_buffer: int,
        weights: int,
    ) -> None:
        """Multiply buffer lines by the next tiles of the queue, or by tiles from the buffer, into
        accumulator rows.
        """
        size = self.config.rows
        depth = k_tiles * size
        # Element (m, k * R + i) is byte i of line buffer + k * rows + m, or comes from a pair of
        # lines. A product is at most 2^30 and the depth is below 2^20. So float64 holds every
        # partial sum exactly, and BLAS is fast.
        vectors = (
            self._values(buffer, k_tiles, rows, bool(wide_vectors))[:, :, :size]
            .transpose(1, 0, 2)
            .reshape(rows, depth)
            .astype(np.float64)
        )
        for n in range(n_tiles):
            if from_buffer:
                first = weights + (n * depth << wide_weights)
                lines = self._values(first, 1, depth, bool(wide_weights))
                tiles: Integers = lines[0, :, : self.config.cols]
            elif wide_weights:
                pairs = self._next_tiles(2 * k_tiles).reshape(k_tiles, 2, -1)
                tiles = joined(pairs).reshape(depth, -1)
            else:
                tiles = self._next_tiles(k_tiles).reshape(depth, -1)
            product = (vectors @ tiles.astype(np.float64)).astype(np.int64).astype(np.int32)
            self._put(accumulator + n * rows, product, accumulate)

    def convolve(
        self,
        *,
        buffer: int,
        accumulator: int,
        plane: int,
        k_tiles: int,
        n_tiles: int,
        accumulate: int,
        channels: int,
        fill: int,
    ) -> None:
        """Multiply the pixels under the taps of each window by the next tiles."""
        window, cols = self._window, self.config.cols
        depth = k_tiles * self.config.rows
        if channels:
            steps = [(i, 0) for i in range(window.kernel_height)]
        else:
            steps = [divmod(tap, window.kernel_width) for tap in range(window.taps)]
        # The tiles of all N tiles lie side by side: (steps, depth, n_tiles * C).
        weights = (
            self._next_tiles(n_tiles * len(steps) * k_tiles)
            .reshape(n_tiles, len(steps), depth, cols)
            .transpose(1, 2, 0, 3)
            .reshape(len(steps), depth, n_tiles * cols)
        )
        # Sums stay below 2^14 * 2^8 * 2^12 * 2^16, so float64 is exact.
        product = np.zeros((window.windows, n_tiles * cols))
        for (i, j), tiles in zip(steps, weights, strict=True):
            if channels:
                vectors = self._packed_pixels(buffer, i, channels, fill)
            else:
                vectors = self._pixels(buffer, i, j, plane, k_tiles, fill)
            product += vectors.astype(np.float64) @ tiles.astype(np.float64)
        rows = product.astype(np.int64).astype(np.int32).reshape(-1, n_tiles, cols)
        rows = rows.transpose(1, 0, 2).reshape(-1, cols)
        self._put(accumulator, rows, accumulate)

    def _put(self, first: int, sums: NDArray[np.int32], accumulate: int) -> None:
        """Write (rows, C) sums to accumulator rows, or add them to the contents."""
        rows = self.accumulators[first : first + len(sums)]
        rows[:] = rows + sums if accumulate else sums

    def _next_tiles(self, count: int) -> NDArray[np.int8]:
        """Take `count` tiles from the queue: (count, R, C)."""
        parts: list[NDArray[np.uint8]] = []
        while count:
            span = self._queue.popleft()
            used, rest = span[:count], span[count:]
            if rest:
                self._queue.appendleft(rest)
            parts.append(self._tiles[used.start : used.stop, :, : self.config.cols])
            count -= len(used)
        return np.concatenate(parts).view(np.int8)

    def _pixels(
        self, buffer: int, i: int, j: int, plane: int, k_tiles: int, fill: int
    ) -> NDArray[np.int8]:
        """Return the pixels under tap (i, j) of each window, all blocks: (windows, k_tiles * R)."""
        lines, inside = self._window.tap_lines(i, j)
        blocks = buffer + plane * np.arange(k_tiles)
        pixels = self.buffer[lines[:, np.newaxis] + blocks, : self.config.rows]
        pixels[~inside] = fill
        return pixels.reshape(len(lines), -1)

    def _packed_pixels(self, buffer: int, i: int, channels: int, fill: int) -> NDArray[np.int8]:
        """Return the bytes under row i of the kernel in each window: (windows, R)."""
        lines, byte, inside = self._window.packed_bytes(i, channels, self.config.rows)
        return np.where(inside, self.buffer[buffer + lines, byte], np.int8(fill))
