# SPDX-License-Identifier: Apache-2.0
"""Products of two calculated matrices of int8: weight tiles from the unified buffer.

    sum (a - za) (b - zb) = sum a b - zb sum a - za sum b + K za zb

The array adds up the first three terms. The second has tiles of constants -zb, from the weight
queue. The third has vectors of constants -za. A constant of more than 8 bits is a sum of several.
The last term is the bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Opcode
from systola.compiler.errors import CompileError
from systola.compiler.lower.channels import Channels
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import common_entry, window_tiles
from systola.compiler.lower.feature_map import FeatureMap, Lines, new_map
from systola.compiler.lower.step import MapStep, Step
from systola.compiler.lower.vector import constant_map, copy_step
from systola.compiler.operations import CalculatedProduct, Requantisation
from systola.compiler.wide_weights import weight_parts


@dataclass(frozen=True, kw_only=True, eq=False)
class CalculatedProductStep(MapStep):
    """A step that multiplies the vectors of a map by the tiles that another map holds."""

    matrix: FeatureMap
    """A map with whole tiles in each block: its pixels are a multiple of the array's rows."""
    vectors: tuple[FeatureMap, ...]
    """Maps of constants that add up to the source's zero point, with its sign changed.

    Each has one block, with a line for each vector of the source.
    """
    tiles: tuple[NDArray[np.uint8], ...]
    """Tiles of constants that add up to the zero point of the matrix, with its sign changed.

    Each array has a tile for each block of the source.
    """
    output: Requantisation

    @property
    def reads(self) -> tuple[Lines, ...]:
        return (self.source.lines, self.matrix.lines, *(each.lines for each in self.vectors))

    def emit(self, emitter: Emitter) -> None:
        output, rows, most = self.output, self.source.pixels, emitter.config.accumulator_rows
        for block in range(self.target.channels.blocks):
            for first in range(0, rows, most):
                count = min(most, rows - first)
                accumulator = emitter.accumulators(count)
                self._emit_sums(emitter, block, first, count, accumulator)
                emitter.emit(
                    Opcode.ACTIVATE,
                    accumulator=accumulator,
                    buffer=emitter.line(self.target.lines, self.target.block(block) + first),
                    rows=count,
                    n_tiles=1,
                    parameter=emitter.parameters(self.output_entries),
                    rounding=output.rounding,
                    zero_point=output.zero_point,
                    ceiling=output.ceiling,
                )

    def _emit_sums(
        self, emitter: Emitter, block: int, first: int, rows: int, accumulator: int
    ) -> None:
        """Emit the products of `rows` vectors for a block of the result, from vector `first` on.

        Tiles of constants come first, as none may be in the queue when tiles of the buffer are
        used.
        """
        source, size = self.source, emitter.config.rows
        blocks = range(source.channels.blocks)
        lines = [emitter.line(source.lines, source.block(k) + first) for k in blocks]
        tiles = [
            emitter.line(self.matrix.lines, self.matrix.block(block) + k * size) for k in blocks
        ]
        how = {"accumulator": accumulator, "rows": rows, "k_tiles": 1, "n_tiles": 1}
        accumulate = 0
        for constants in self.tiles:
            for tile, line in enumerate(lines, start=emitter.store_weights(constants)):
                emitter.use_weights(tile, 1)
                emitter.emit(Opcode.MATRIX_MULTIPLY, buffer=line, accumulate=accumulate, **how)
                accumulate = 1
        emitter.empty_queue()
        constant = [emitter.line(each.lines) for each in self.vectors]
        for tile, line in zip(tiles, lines, strict=True):
            for vectors in (line, *constant):
                emitter.emit(
                    Opcode.MATRIX_MULTIPLY,
                    buffer=vectors,
                    accumulate=accumulate,
                    from_buffer=1,
                    weights=tile,
                    **how,
                )
                accumulate = 1
        emitter.empty_queue()


def calculated_product_steps(
    config: Config, node: CalculatedProduct, sources: Sequence[FeatureMap], target: FeatureMap
) -> list[Step]:
    """Return the steps that multiply two calculated matrices.

    A matrix without whole tiles in its blocks is copied first, with lines of zeros after it.
    Raises CompileError if the machine takes no weights from the buffer. Raises it for channels in
    several parts, too, as blocks of the source would not meet their tiles.
    """
    if not config.training:
        raise CompileError(
            f"the machine '{config.name}' has no weights from the buffer, as machines with training"
        )
    if any(len(each.channels.parts) > 1 for each in (*sources, target)):
        raise CompileError("the channels of its matrices lie in several parts")
    source, matrix = sources
    steps: list[Step] = []
    k, name = matrix.pixels, node.operator
    if rest := -k % config.rows:
        whole = new_map(f"tiles of {name}", 1, k + rest, matrix.channels)
        empty = whole.part(k, rest)
        zeros = np.zeros((rest, matrix.channels.count), np.int8)
        steps = [
            copy_step(config, name, matrix.grid(1, k), whole.part(0, k)),
            copy_step(config, name, constant_map(f"zeros of {name}", zeros, empty, 1), empty),
        ]
        matrix = whole
    zero_a, zero_b = node.zero_points
    factors = weight_parts(np.full((source.channels.count, config.cols), -zero_b, np.int64))
    one_block = Channels((config.cols,), config.cols)
    vectors = weight_parts(np.full((source.pixels, config.rows), -zero_a, np.int64))
    like = new_map(
        f"zero points of {name}", 1, source.pixels, Channels((config.rows,), config.rows)
    )
    steps.append(
        CalculatedProductStep(
            operator=name,
            source=source,
            matrix=matrix,
            target=target,
            vectors=tuple(constant_map(like.lines.name, each, like, 1) for each in vectors)
            if zero_a
            else (),
            tiles=tuple(
                window_tiles(config, each[np.newaxis, np.newaxis], source.channels, one_block)[0]
                for each in factors
            )
            if zero_b
            else (),
            output=node.output,
            output_entries=common_entry(config, node.output),
        )
    )
    return steps
