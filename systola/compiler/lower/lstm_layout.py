# SPDX-License-Identifier: Apache-2.0
"""The positions of an LSTM's cells in weight tiles, for an LSTM that runs block by block of cells.

The method is described in compiler/lower/lstm_by_blocks.py.
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
"""Number of each gate's tile, from 0, among the four tiles of a block of cells."""
SPREAD = (FORGET, INPUT, OUTPUT, CELL)
"""Order of the mixed cells' gates when each gate has its own vector; SIGMOID gates come first."""
LATE = 1
"""Number of blocks at the end of the state that the first products of a step leave out, as the
lanes make these blocks last.
"""


@dataclass(frozen=True)
class Layout:
    """A layout of an LSTM's cells in weight tiles."""

    cells: int
    size: int
    """Number of rows and columns of a tile."""

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
        """Number of blocks of cells that are not mixed."""
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
        """Return two arrays, with the gate and the cell of each column of each tile along N.

        The cell is -1 for a column without a cell.
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
    """Tiles of the weights of the input x: tiles along N x tiles along K."""
    recurrent: NDArray[np.int8]
    """Tiles of the recurrent weights: tiles along N x blocks of the state."""
    rest: NDArray[np.int8]
    """Weight tiles that multiply the state of the mixed cells (see `Layout.rest`).

    The first one is for the gates of the mixed cells. A tile for the gates of each block follows.
    """
    spread: NDArray[np.int8]
    """Weight tiles that copy each gate of the mixed tile to all quarters, in the order of
    SPREAD.
    """


def scratch_lines(layout: Layout, steps: int) -> Iterator[int]:
    """Yield the number of buffer lines of each region of an LSTM's scratch memory.

    Regions come in the order of the first six fields of Places in lstm_by_blocks.
    """
    yield 2 * steps * layout.tiles
    yield (steps + 1) * layout.blocks
    yield (steps + 1) * GATES * layout.mixed
    yield 2 * (layout.blocks + layout.mixed)
    yield 2 * layout.mixed
    yield 2 * GATES * layout.mixed


def tiles_of(layout: Layout, gates: tuple[Gate, ...], source: Channels) -> Weights:
    """Return the weights of the `gates` cut into tiles.

    The gates are in the order FORGET, INPUT, CELL, OUTPUT. `source` lays out the channels of the
    input x.
    """
    size, blocks, mixed = layout.size, layout.blocks, layout.mixed
    of_gate, of_cell = layout.columns()

    def columns(rows: list[NDArray[np.int8]]) -> NDArray[np.int8]:
        """Return the gates' weights in the columns of the layout: tiles x rows x columns."""
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
    """Return the weight tiles of a step in time, one after another in the order of their use."""
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
    """Return for each column of each tile along N the sum of the weights for other gates.

    Only tiles for the mixed cells' state have such weights: a quarter of the rows belongs to each
    gate. A vector has the state in the rows of one gate, and the zero point in the rows of other
    gates. So the caller subtracts these sums, times the zero point, from the biases.
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
    """Return the parameter entries of all tiles along N, with `less` subtracted from the biases."""
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
    """Return the constant lines: the states before the first step in time, then zeros for the
    cells.
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
    """Return weight tiles in the format of weight memory."""
    size = tiles.shape[-1]
    flat = tiles.reshape(-1, size, size)
    packed = np.zeros((len(flat), config.rows, config.weight_row_pitch), np.int8)
    packed[:, :size, :size] = flat
    return packed.reshape(len(flat), config.tile_bytes).view(np.uint8)
