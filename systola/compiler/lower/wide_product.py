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
"""Shift that, with the multiplier of `identity`, turns a sum of 32 bits into its upper half."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WideProductStep(MapStep):
    """A step that multiplies the vectors of int16 of a map by a matrix; tiles of zeros are left
    out.

    A vector has two lines. With `sums` (see WideProduct), the step writes the upper half of the
    sums. Then a product subtracts this half from the accumulators, which leaves the lower half.
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

        `first` is the first of these vectors, counted from 0 in the map.
        """
        line = emitter.line(self.target.lines, self.target.block(block))
        if not self.sums:
            parameter = emitter.parameters(self.output_entries, block, 1)
            self._activate(emitter, accumulator, line + LINES * first, rows, parameter)
            return
        # The accumulators hold sums without the bias. So the parameter entries of both halves add
        # the bias.
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
        """Emit the products of `rows` vectors with the weights for the blocks `run` of the source.

        `place` is the first weight tile for these blocks in weight memory. `first` is the first of
        the vectors, counted from 0 in the map.
        """
        source = self.source
        # If the vectors are all vectors of the map, the lines of the blocks follow each other. Then
        # one instruction covers all blocks.
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
    """Return the runs of consecutive numbers in a rising list of numbers, as ranges."""
    begins = [number for number in numbers if number - 1 not in numbers]
    ends = [number + 1 for number in numbers if number + 1 not in numbers]
    return [range(begin, end) for begin, end in zip(begins, ends, strict=True)]


def _minus_32768(config: Config) -> NDArray[np.uint8]:
    """Return the weight tiles, of low and of high bytes, that multiply each element by -32768."""
    tiles = np.zeros((2, config.rows, config.weight_row_pitch), np.uint8)
    number = np.arange(min(config.rows, config.cols))
    tiles[1, number, number] = 0x80
    return tiles.reshape(2, -1)


def _sum_entries(config: Config, node: WideProduct, channels: Channels) -> Entries:
    """Return two parameter entries for each block: for the upper and the lower half of its sums."""
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
    """Return the step for a product of int16; raise CompileError if there are no 16-bit modes."""
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
