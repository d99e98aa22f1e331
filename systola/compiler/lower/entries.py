# SPDX-License-Identifier: Apache-2.0
"""Parameter entries and weight tiles, as bytes in the machine's format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import PARAMETER_PLANES
from systola.compiler.lower.channels import Channels
from systola.compiler.operations import Requantisation


@dataclass(frozen=True)
class Entries:
    """A run of parameter entries, one after another in memory."""

    content: bytes
    """Bytes of the entries, in the order in which Load_Parameters reads them."""
    count: int


def common_entry(config: Config, output: Requantisation) -> Entries:
    """Return one parameter entry with the same values for all channels."""
    lanes = np.zeros(config.cols, np.int64)
    shift = output.shift + lanes
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    return _pack(config, output.bias + lanes, output.multiplier + lanes, left, right)


@lru_cache(maxsize=4096)
def channel_entries(config: Config, output: Requantisation, channels: Channels) -> Entries:
    """Return a parameter entry for each block of channels.

    Columns of the array without a channel get multiplier 0. Results are cached: each band of an
    operation, and each attempt to fit a network, asks for the same entries.
    """
    slots, block = channels.slots, channels.block
    # A block of channels may have fewer channels than the array has columns.
    places = slots // block * config.cols + slots % block
    values = np.zeros((4, channels.blocks * config.cols), np.int64)
    left, right = np.maximum(output.shift, 0), np.maximum(-output.shift, 0)
    for row, source in zip(values, (output.bias, output.multiplier, left, right), strict=True):
        row[places] = source
    return _pack(config, *values)


def masked_entry(config: Config, output: Requantisation, columns: range) -> Entries:
    """Return a parameter entry for `columns` only; all other columns get the zero point as
    result.
    """
    lanes = np.zeros(config.cols, np.int64)
    lanes[columns.start : columns.stop] = 1
    shift = output.shift + 0 * lanes
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    return _pack(config, output.bias * lanes, output.multiplier * lanes, left, right)


def division_entry(config: Config, bits: int) -> Entries:
    """Return one parameter entry that divides by 2^bits and rounds halves away from zero.

    The instruction must have DOUBLE rounding. The division is gemmlowp's RoundingDivideByPOT. The
    shift to the left by one and the multiplier of a half cancel out before the shift to the right
    rounds.
    """
    lanes = np.zeros(config.cols, np.int64)
    return _pack(config, lanes, lanes + (1 << 30), lanes + 1, lanes + bits)


def joined(*parts: Entries) -> Entries:
    """Return the entries of all `parts`, one after another."""
    return Entries(b"".join(part.content for part in parts), sum(part.count for part in parts))


def _pack(
    config: Config,
    bias: NDArray[np.int64],
    multiplier: NDArray[np.int64],
    left: NDArray[np.int64],
    right: NDArray[np.int64],
) -> Entries:
    """Return the entries made of arrays that have `config.cols` values for each entry.

    `left` and `right` are shifts in bits.
    """
    count = len(bias) // config.cols
    planes = np.zeros((len(bias), PARAMETER_PLANES), np.uint8)
    planes[:, 0:4] = bias.astype("<i4").view(np.uint8).reshape(-1, 4)
    planes[:, 4:8] = multiplier.astype("<i4").view(np.uint8).reshape(-1, 4)
    planes[:, 8] = (left << 5) | right
    packed = np.zeros((count, PARAMETER_PLANES, config.output_pitch), np.uint8)
    packed[:, :, : config.cols] = planes.reshape(count, config.cols, -1).transpose(0, 2, 1)
    return Entries(packed.tobytes(), count)


def window_tiles(
    config: Config, weights: NDArray[np.int8], source: Channels, target: Channels
) -> NDArray[np.uint8]:
    """Return weight tiles in the order of Convolve, as an array of blocks x tiles x bytes.

    The blocks are blocks of the target's channels. `weights` is kernel height x kernel width x
    channels of the source x channels of the target.
    """
    height, width = weights.shape[:2]
    k_block, n_block = source.block, target.block
    shape = (height, width, source.blocks * k_block, target.blocks * n_block)
    dense = np.zeros(shape, np.int8)
    dense[:, :, source.slots[:, np.newaxis], target.slots] = weights
    blocks = dense.reshape(height, width, source.blocks, k_block, target.blocks, n_block)
    packed = np.zeros(
        (target.blocks, height, width, source.blocks, config.rows, config.weight_row_pitch),
        np.int8,
    )
    packed[..., :k_block, :n_block] = blocks.transpose(4, 0, 1, 2, 3, 5)
    return packed.reshape(target.blocks, -1, config.tile_bytes).view(np.uint8)
