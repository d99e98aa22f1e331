# SPDX-License-Identifier: Apache-2.0
"""Convolutions with few channels that put several pixels of their result side by side in a line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.compiler.lower.arrival import arrival
from systola.compiler.lower.convolution import ConvolutionStep, convolution_step
from systola.compiler.lower.feature_map import FeatureMap
from systola.compiler.operations import Requantisation, Window


def pixels_beside(config: Config, source: FeatureMap, weights: NDArray[np.int8]) -> int:
    """Return the number of pixels of a convolution's result that are to share a line; 1 for none.

    Lines go to host memory whole, so fewer lines take less time. But each further pixel in a line
    needs weight tiles of its own. The array waits for tiles if there are more than the weight queue
    holds. `weights` must be for windows of one pixel, without padding. `source` may be a map of
    many samples.
    """
    blocks, channels, lines = source.channels.blocks, weights.shape[-1], source.pixels
    beats = config.output_pitch // config.host_bus_bytes
    square = config.rows == config.cols == config.output_pitch
    if not square or channels > config.cols:
        return 1

    def cycles(count: int) -> int:
        fetched = count * blocks - config.weight_fifo_tiles
        array = max(blocks * lines, fetched * arrival(config))
        return array + lines // count * beats

    counts = [n for n in (1, 2, 4, 8, 16) if source.width % n == 0 and channels * n <= config.cols]
    return min((n for n in counts if config.cols % n == 0), key=cycles)


def beside_step(
    config: Config,
    operator: str,
    source: FeatureMap,
    target: FeatureMap,
    weights: NDArray[np.int8],
    output: Requantisation,
) -> ConvolutionStep:
    """Return a convolution's step that puts `target.beside` pixels of its result in one line.

    `weights` is 1 x 1 x channels of the source x channels of the result.
    """
    count, part = target.beside, config.cols // target.beside
    inputs, results = weights.shape[2:]
    wide = np.zeros((1, count, inputs, count, part), np.int8)
    for n in range(count):
        wide[0, n, :, n, :results] = weights[0, 0]

    def of_all(values: NDArray[np.int32]) -> NDArray[np.int32]:
        parts = np.zeros((count, part), np.int32)
        parts[:, :results] = values
        return parts.reshape(-1)

    return convolution_step(
        config,
        operator,
        source,
        target,
        wide.reshape(1, count, inputs, count * part),
        Window(kernel=(1, count), stride=(1, count), out=(target.height, target.width)),
        0,
        replace(
            output,
            bias=of_all(output.bias),
            multiplier=of_all(output.multiplier),
            shift=of_all(output.shift),
        ),
    )
