# SPDX-License-Identifier: Apache-2.0
"""Products of int16 vectors and int8 weights, with results of int16."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Opcode
from systola.compiler.lower.channels import Channels
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import Entries, channel_entries, window_tiles
from systola.compiler.lower.feature_map import FeatureMap
from systola.compiler.lower.step import MapStep
from systola.compiler.lower.vector import check_wide
from systola.compiler.operations import Requantisation, WideProduct, identity

LINES = 2
"""Number of lines of a vector of int16: one of low bytes, then one of high bytes."""
UPPER_SHIFT = 1 - 16
"""Shift, in bits, that turns a sum of 32 bits into its upper 16 bits, with the multiplier of
`identity`.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class WideProductStep(MapStep):
    """A step that multiplies the vectors of int16 of a map by a matrix of weights.

    A vector has two lines. Weight tiles with only zeros are left out. With `sums`, the results are
    the sums of 32 bits, as two halves. The step first writes the upper half. Then products subtract
    the upper half, times 65536, from the accumulators, which leaves the lower half.
    """

    weights: NDArray[np.int8]
    output: Requantisation
    sums: bool
    sum_entries: Entries

    @property
    def entries(self) -> tuple[Entries, ...]:
        return (self.sum_entries,) if self.sums else (self.output_entries,)

    @property
    def tables(self) -> tuple[bytes, ...]:
        return () if self.output.table is None else (self.output.table,)

    def emit(self, emitter: Emitter) -> None:
        config, source, target = emitter.config, self.source, self.target
        kernel = self.weights[np.newaxis, np.newaxis]
        tiles = window_tiles(config, kernel, source.channels, target.channels)
        rows = source.pixels // LINES
        for block in range(target.channels.blocks):
            used = _runs(np.flatnonzero(tiles[block].any(axis=1)).tolist() or [0])
            places = [emitter.store_weights(tiles[block, run.start : run.stop]) for run in used]
            for first in range(0, rows, config.accumulator_rows):
                count = min(config.accumulator_rows, rows - first)
                accumulator = emitter.accumulators(count)
                for run, place in zip(used, places, strict=True):
                    self._emit_sums(
                        emitter,
                        run,
                        place,
                        first=first,
                        rows=count,
                        accumulator=accumulator,
                        accumulate=run is not used[0],
                    )
                self._emit_results(emitter, block, first, count, accumulator)

    def _emit_results(
        self, emitter: Emitter, block: int, first: int, rows: int, accumulator: int
    ) -> None:
        """Emit the instructions that turn the sums of `rows` vectors into results, for one block of
        channels.

        `first` is the number of the first of these vectors, counted from 0 in the map.
        """
        line = emitter.line(self.target.lines, self.target.block(block))
        if not self.sums:
            parameter = emitter.parameters(self.output_entries, block, 1)
            self._activate(emitter, accumulator, line + LINES * first, rows, parameter)
            return
        # The accumulators never hold the bias. So the parameter entries of both halves add it.
        upper = emitter.parameters(self.sum_entries, 2 * block, 1)
        self._activate(emitter, accumulator, line + LINES * first, rows, upper)
        tile = emitter.store_weights(_minus_32768(emitter.config))
        for _ in range(2):
            emitter.use_weights(tile, 2)
            emitter.emit(
                Opcode.MATRIX_MULTIPLY,
                buffer=line + LINES * first,
                accumulator=accumulator,
                rows=rows,
                k_tiles=1,
                n_tiles=1,
                accumulate=1,
                wide_vectors=1,
                wide_weights=1,
            )
        lower = emitter.parameters(self.sum_entries, 2 * block + 1, 1)
        below = self.source.pixels // LINES
        self._activate(emitter, accumulator, line + LINES * (below + first), rows, lower)

    def _activate(
        self, emitter: Emitter, accumulator: int, line: int, rows: int, parameter: int
    ) -> None:
        table = 0 if self.output.table is None else emitter.table(self.output.table)
        emitter.emit(
            Opcode.ACTIVATE,
            accumulator=accumulator,
            buffer=line,
            rows=rows,
            n_tiles=1,
            parameter=parameter,
            rounding=self.output.rounding,
            function=self.output.function,
            table=table,
            wide=1,
        )

    def _emit_sums(
        self,
        emitter: Emitter,
        run: range,
        place: int,
        *,
        first: int,
        rows: int,
        accumulator: int,
        accumulate: bool,
    ) -> None:
        """Emit the products of `rows` vectors with the weights for `run`, a range of the source's
        blocks of channels.

        `place` is the number of the first weight tile for these blocks, counted from 0 in weight
        memory. `first` is the number of the first of the vectors, counted from 0 in the map. With
        `accumulate` the products are added to the accumulators, otherwise they overwrite them.
        """
        source = self.source
        # If `rows` is the number of all vectors of the map, the lines of one block follow the lines
        # of the block before it. Then one instruction covers all blocks. Otherwise each block takes
        # one.
        whole = rows * LINES == source.plane
        parts = [run] if whole else [range(block, block + 1) for block in run]
        for part in parts:
            emitter.use_weights(place + part.start - run.start, len(part))
            emitter.emit(
                Opcode.MATRIX_MULTIPLY,
                buffer=emitter.line(source.lines, source.block(part.start) + LINES * first),
                accumulator=accumulator,
                rows=rows,
                k_tiles=len(part),
                n_tiles=1,
                accumulate=int(accumulate or part is not parts[0]),
                wide_vectors=1,
            )


def _runs(numbers: list[int]) -> list[range]:
    """Return the runs of consecutive numbers in a rising list: [1, 2, 5] gives range(1, 3),
    range(5, 6).
    """
    begins = [number for number in numbers if number - 1 not in numbers]
    ends = [number + 1 for number in numbers if number + 1 not in numbers]
    return [range(begin, end) for begin, end in zip(begins, ends, strict=True)]


def _minus_32768(config: Config) -> NDArray[np.uint8]:
    """Return the two weight tiles that multiply each element by -32768.

    A weight has 16 bits. The first tile has the low bytes of all weights, the second the high
    bytes.
    """
    tiles = np.zeros((2, config.rows, config.weight_row_pitch), np.uint8)
    number = np.arange(min(config.rows, config.cols))
    tiles[1, number, number] = 0x80
    return tiles.reshape(2, -1)


def _sum_entries(config: Config, node: WideProduct, channels: Channels) -> Entries:
    """Return two parameter entries for each block of channels: for the upper and the lower half of
    sums.
    """
    halves = [
        channel_entries(
            config, replace(identity(), bias=node.output.bias, shift=np.array([shift])), channels
        )
        for shift in (UPPER_SHIFT, 1)
    ]
    length = len(halves[0].content) // halves[0].count
    places = [slice(block * length, (block + 1) * length) for block in range(halves[0].count)]
    content = b"".join(half.content[place] for place in places for half in halves)
    return Entries(content, 2 * len(places))


def wide_product_step(
    config: Config, node: WideProduct, source: FeatureMap, target: FeatureMap
) -> WideProductStep:
    """Return the step that multiplies vectors of int16 by weights.

    Raises CompileError if the machine has no 16-bit modes.
    """
    check_wide(config)
    return WideProductStep(
        operator=node.operator,
        source=source,
        target=target,
        weights=node.weights,
        output=node.output,
        output_entries=channel_entries(config, node.output, target.channels),
        sums=node.sums,
        sum_entries=_sum_entries(config, node, target.channels),
    )


def columns_of(node: WideProduct, channels: slice) -> WideProduct:
    """Return the operation `node` for some channels of its result only.

    The operation still has the whole result as its `result`.
    """
    bias, multiplier, shift = (
        each[channels] if len(each) > 1 else each
        for each in (node.output.bias, node.output.multiplier, node.output.shift)
    )
    output = replace(node.output, bias=bias, multiplier=multiplier, shift=shift)
    return replace(node, weights=node.weights[:, channels], output=output)
