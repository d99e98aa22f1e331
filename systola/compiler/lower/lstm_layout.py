# SPDX-License-Identifier: Apache-2.0
"""The positions of an LSTM's cells in weight tiles, for an LSTM that runs block by block of its
cells.

The method, with blocks, mixed cells and quarters, is described in compiler/lower/lstm_by_blocks.py.
Tiles along N are tiles for different columns of results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.compiler.lower.channels import Channels
from systola.compiler.lower.entries import Entries, channel_entries
from systola.compiler.operations import Gate, Lstm, Requantisation

GATES = 4
FORGET, INPUT, CELL, OUTPUT = range(GATES)
"""Numbers of the gates. In a block of cells, a gate's number is also the number of its tile,
counted from 0 among the block's four tiles.
"""
SPREAD = (FORGET, INPUT, OUTPUT, CELL)
"""Order of the mixed cells' gates when each gate has its own vector; the three SIGMOID gates come
first, so one instruction suffices for them.
"""
LATE = 1
"""Number of last blocks of the state that the first products of a step in time leave out.

The lanes make these blocks last.
"""


@dataclass(frozen=True)
class Layout:
    """A rule that gives each gate of each cell of an LSTM a column of a weight tile."""

    cells: int
    size: int
    """Number of rows of a tile, and also of its columns."""

    @property
    def rest(self) -> int:
        """Number of mixed cells, which share a tile for all their gates; 0 if there are none."""
        rest = self.cells % self.size
        return rest if rest * GATES <= self.size else 0

    @property
    def mixed(self) -> int:
        """Number of mixed tiles, 0 or 1, which hold all gates of the mixed cells."""
        return int(self.rest > 0)

    @property
    def blocks(self) -> int:
        """Number of blocks of cells that are not mixed; the last block may be partly empty."""
        return self.cells // self.size if self.mixed else -(-self.cells // self.size)

    @property
    def quarter(self) -> int:
        """Number of columns for each gate in a mixed tile."""
        return self.size // GATES

    @property
    def tiles(self) -> int:
        """Number of tiles along N: a mixed tile, if there is one, and then four for each block."""
        return self.mixed + GATES * self.blocks

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return two arrays, tiles along N x columns of a tile: the gate and the cell of each
        column.

        Cells count from 0. The cell is -1 for a column without a cell.
        """
        gates = np.tile(np.arange(GATES), (self.blocks, 1)).reshape(-1, 1)
        firsts = np.repeat(np.arange(self.blocks) * self.size, GATES)[:, np.newaxis]
        cells = firsts + np.arange(self.size)
        gates = np.broadcast_to(gates, cells.shape)
        cells = np.where(cells < self.cells, cells, -1)
        if self.mixed:
            place = np.arange(self.size)
            inside = place % self.quarter < self.rest
            inside &= place < GATES * self.quarter
            first = self.blocks * self.size
            mixed = np.where(inside, first + place % self.quarter, -1)
            gates = np.vstack([np.minimum(place // self.quarter, OUTPUT), gates])
            cells = np.vstack([mixed, cells])
        return gates, cells


@dataclass(frozen=True)
class Weights:
    """The weight tiles of an LSTM, each of size x size, int8."""

    inputs: NDArray[np.int8]
    """Weights of the input x: tiles along N x tiles along K."""
    recurrent: NDArray[np.int8]
    """Weights of the hidden state, without the mixed cells' state: tiles along N x blocks of the
    state.
    """
    rest: NDArray[np.int8]
    """Weight tiles that multiply the state of the mixed cells; empty if there are no mixed cells.

    The first tile is for the gates of the mixed cells. One tile for each block of cells follows.
    """
    spread: NDArray[np.int8]
    """Weight tiles that spread the sums of the mixed tile, one for each gate in the order of
    SPREAD.

    A tile copies the gate's sums from the gate's quarter to all quarters.
    """


def scratch_lines(layout: Layout, steps: int) -> Iterator[int]:
    """Yield the number of lines of each region of the buffer that an LSTM needs while it runs.

    The regions are, in this order: inputs, states, quarters, cells, mixed and spread. Places in
    lstm_by_blocks describes them.
    """
    yield 2 * steps * layout.tiles
    yield (steps + 1) * layout.blocks
    yield (steps + 1) * GATES * layout.mixed
    yield 2 * (layout.blocks + layout.mixed)
    yield 2 * layout.mixed
    yield 2 * GATES * layout.mixed


def tiles_of(layout: Layout, gates: tuple[Gate, ...], source: Channels) -> Weights:
    """Return the weights of an LSTM, cut into tiles.

    `gates` has the gates in the order FORGET, INPUT, CELL, OUTPUT. `source` lays out the channels
    of the input x.
    """
    size, blocks, mixed = layout.size, layout.blocks, layout.mixed
    of_gate, of_cell = layout.columns()

    def columns(rows: list[NDArray[np.int8]]) -> NDArray[np.int8]:
        """Return weights as an array, tiles along N x rows x columns, in the columns of the layout.

        `rows` has for each gate an array of weights, cells x rows.
        """
        stacked = np.stack(rows)
        found = stacked[of_gate, :, of_cell]
        return np.where(of_cell[..., np.newaxis] < 0, 0, found).swapaxes(1, 2).astype(np.int8)

    inputs = columns([gate.input_weights for gate in gates])
    by_slot = np.zeros((layout.tiles, source.blocks * source.block, size), np.int8)
    by_slot[:, source.slots] = inputs
    recurrent = columns([gate.recurrent_weights for gate in gates])
    full = np.zeros((layout.tiles, blocks * size, size), np.int8)
    plain = min(layout.cells, blocks * size)
    full[:, :plain] = recurrent[:, :plain]
    rest = np.zeros(((1 + blocks) * mixed, size, size), np.int8)
    spread = np.zeros((GATES * mixed, size, size), np.int8)
    if mixed:
        last, quarter = recurrent[:, plain:], layout.quarter
        rest[0, : layout.rest] = last[0]
        for place in range(GATES):
            begin = place * quarter
            rest[1:, begin : begin + layout.rest] = last[1 + place :: GATES]
        for number, place in enumerate(SPREAD):
            for cell in range(layout.rest):
                spread[number, place * quarter + cell, cell : GATES * quarter : quarter] = 1
    return Weights(
        inputs=by_slot.reshape(layout.tiles, source.blocks, source.block, size),
        recurrent=full.reshape(layout.tiles, blocks, size, size),
        rest=rest,
        spread=spread,
    )


def tiles_of_a_step(layout: Layout, weights: Weights) -> NDArray[np.int8]:
    """Return the weight tiles of a step in time, in the order in which the array uses them."""
    mixed, size = layout.mixed, layout.size
    first = weights.recurrent[: mixed + GATES]
    parts = [weights.rest[: 2 * mixed], first[:, :-LATE], first[:, -LATE:]]
    for block in range(1, layout.blocks):
        begin = mixed + GATES * block
        parts += [weights.rest[mixed + block :][:mixed]]
        parts += [weights.recurrent[begin : begin + GATES]]
        parts += [weights.spread] if block == 1 else []
    return np.concatenate([part.reshape(-1, size, size) for part in parts])


def away_of(layout: Layout, weights: Weights) -> NDArray[np.int64]:
    """Return sums of weights that only meet zero points, as an array: tiles along N x columns.

    Only tiles for the mixed cells' state have such weights: a quarter of the rows belongs to each
    gate. Each line of this state has the state in the rows of one gate. In the rows of the other
    gates it has the zero point. So the caller subtracts these sums, times the zero point, from the
    biases.
    """
    away = np.zeros((layout.tiles, layout.size), np.int64)
    if layout.mixed:
        sums = weights.rest[1:].sum(axis=1, dtype=np.int64)
        for place in range(GATES):
            begin = place * layout.quarter
            own = weights.rest[1:, begin : begin + layout.quarter].sum(axis=1, dtype=np.int64)
            away[1 + place :: GATES] = sums - own
    return away


def tile_entries(
    config: Config, layout: Layout, sums: list[Requantisation], less: NDArray[np.int64]
) -> Entries:
    """Return a parameter entry for each tile along N.

    `sums` has the requantisation of each gate's sums. `less`, tiles along N x columns, is
    subtracted from the biases.
    """
    of_gate, of_cell = layout.columns()

    def columns(values: list[NDArray[np.int32]]) -> NDArray[np.int64]:
        every = np.stack([np.broadcast_to(each, layout.cells) for each in values])
        return np.where(of_cell < 0, 0, every[of_gate, of_cell]).astype(np.int64)

    bias = columns([each.bias for each in sums]) - less
    output = Requantisation(
        bias=bias.reshape(-1).astype(np.int32),
        multiplier=columns([each.multiplier for each in sums]).reshape(-1).astype(np.int32),
        shift=columns([each.shift for each in sums]).reshape(-1).astype(np.int32),
    )
    return channel_entries(config, output, Channels((of_cell.size,), layout.size))


def start_lines(layout: Layout, node: Lstm) -> NDArray[np.int8]:
    """Return the constant lines that an LSTM starts with: the hidden states before the first step
    in time, then zeros for the cells.
    """
    size, blocks, mixed = layout.size, layout.blocks, layout.mixed
    lines = np.zeros((blocks + GATES * mixed + 2 * (blocks + mixed), size), np.int8)
    lines[:blocks] = node.start
    if mixed:
        quarters = lines[blocks : blocks + GATES]
        quarters[:] = node.hidden.zero_point
        for number in range(GATES):
            begin = number * layout.quarter
            quarters[number, begin : begin + layout.quarter] = node.start
    return lines


def packed(config: Config, tiles: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Return weight tiles as they lie in weight memory: an array of tiles x bytes of a tile."""
    size = tiles.shape[-1]
    flat = tiles.reshape(-1, size, size)
    packed = np.zeros((len(flat), config.rows, config.weight_row_pitch), np.int8)
    packed[:, :size, :size] = flat
    return packed.reshape(len(flat), config.tile_bytes).view(np.uint8)
