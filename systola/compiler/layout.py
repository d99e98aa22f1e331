# SPDX-License-Identifier: Apache-2.0
"""The layout of matrices, weights and parameters in host and weight memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import PARAMETER_PLANES
from systola.compiler.layer import Layer


def tiles(length: int, block: int) -> int:
    """Return the number of blocks of `block` elements that hold `length` elements."""
    return -(-length // block)


@dataclass(frozen=True, kw_only=True)
class HostMatrix:
    """A matrix of int8 in host memory: rows one after another, each cut into blocks.

    A block has room for `block` elements and takes `pitch` bytes; the bytes after its elements are
    padding. This is the format of Read_Host_Memory and Write_Host_Memory.
    """

    offset: int
    """Offset of the matrix in the host window, in bytes."""
    rows: int
    columns: int
    block: int
    pitch: int

    @property
    def blocks(self) -> int:
        """Number of blocks of `block` elements in a row."""
        return tiles(self.columns, self.block)

    @property
    def stride(self) -> int:
        """Number of bytes from the start of one row to the start of the next."""
        return self.blocks * self.pitch

    @property
    def operands(self) -> str:
        """Operands of Read_Host_Memory and Write_Host_Memory that move the matrix, in assembly."""
        return (
            f"host={self.offset}, rows={self.rows}, stride={self.stride}, blocks={self.blocks}, "
            f"tail={self.tail(0, self.blocks)}"
        )

    @property
    def size(self) -> int:
        """Size of the whole matrix in bytes, padding included."""
        return self.rows * self.stride

    def tail(self, first: int, count: int) -> int:
        """Return the number of elements in the last block of `count` blocks of a row.

        The blocks begin with block `first`, counted from 0.
        """
        return min(self.block, self.columns - (first + count - 1) * self.block)

    def at(self, row: int, block: int) -> int:
        """Return the offset in the host window, in bytes, of a block; row and block are counted
        from 0.
        """
        return self.offset + row * self.stride + block * self.pitch

    def store(self, host: NDArray[np.uint8], matrix: NDArray[np.int8]) -> None:
        """Write `matrix`, rows x columns, into the host window `host`; padding stays as it is."""
        blocks = self._view(host)
        whole = self.columns // self.block
        body = matrix[:, : whole * self.block].reshape(self.rows, whole, self.block)
        blocks[:, :whole, : self.block] = body
        if whole < self.blocks:
            rest = matrix[:, whole * self.block :]
            blocks[:, whole, : rest.shape[1]] = rest

    def load(self, host: NDArray[np.uint8]) -> NDArray[np.int8]:
        """Return the matrix, rows x columns, from the host window `host`."""
        blocks = self._view(host)[:, :, : self.block]
        return blocks.reshape(self.rows, self.blocks * self.block)[:, : self.columns].copy()

    def _view(self, host: NDArray[np.uint8]) -> NDArray[np.int8]:
        part = host[self.offset : self.offset + self.size].view(np.int8)
        return part.reshape(self.rows, self.blocks, self.pitch)


def pack_tiles(
    config: Config, weights: NDArray[np.int8], k_block: int, n_block: int
) -> NDArray[np.uint8]:
    """Return weight tiles in the format of weight memory: N tiles x K tiles x bytes of a tile.

    `weights` is K x N. A tile covers `k_block` input elements and `n_block` output elements. These
    may be fewer than the rows and columns of the array; the rest of a tile is zero.
    """
    k, n = weights.shape
    k_tiles, n_tiles = tiles(k, k_block), tiles(n, n_block)
    padded = np.zeros((k_tiles * k_block, n_tiles * n_block), np.int8)
    padded[:k, :n] = weights
    packed = np.zeros((n_tiles, k_tiles, config.rows, config.weight_row_pitch), np.int8)
    packed[:, :, :k_block, :n_block] = padded.reshape(k_tiles, k_block, n_tiles, n_block).transpose(
        2, 0, 1, 3
    )
    return packed.reshape(n_tiles, k_tiles, config.tile_bytes).view(np.uint8)


def pack_parameters(config: Config, layer: Layer, n_block: int) -> NDArray[np.uint8]:
    """Return the parameter entries of a layer, in the format that pack_entries describes.

    There is one entry for each `n_block` output elements.
    """
    return pack_entries(config, layer.bias, layer.multiplier, layer.shift, n_block)


def pack_entries(
    config: Config,
    bias: NDArray[np.int32],
    multiplier: NDArray[np.int32],
    shift: NDArray[np.int32],
    n_block: int,
) -> NDArray[np.uint8]:
    """Return parameter entries in the format of Load_Parameters, as an array of bytes.

    There is one entry for each `n_block` output elements. Channels of the last entry that have no
    output element get multiplier 0. The arrays `bias`, `multiplier` and `shift` have one value for
    each output element, as in Layer.
    """
    n = bias.size
    n_tiles = tiles(n, n_block)
    planes = np.zeros((n_tiles * n_block, PARAMETER_PLANES), np.uint8)
    planes[:n, 0:4] = bias.astype("<i4").view(np.uint8).reshape(n, 4)
    planes[:n, 4:8] = multiplier.astype("<i4").view(np.uint8).reshape(n, 4)
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    planes[:n, 8] = (left << 5) | right
    packed = np.zeros((n_tiles, PARAMETER_PLANES, config.output_pitch), np.uint8)
    packed[:, :, :n_block] = planes.reshape(n_tiles, n_block, PARAMETER_PLANES).transpose(0, 2, 1)
    return packed.reshape(-1)


def entry_bytes(config: Config) -> int:
    """Return the number of bytes that one parameter entry takes in host memory."""
    return PARAMETER_PLANES * config.output_pitch
