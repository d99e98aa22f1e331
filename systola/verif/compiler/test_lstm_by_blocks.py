# SPDX-License-Identifier: Apache-2.0
"""Tests of LSTMs that run block by block: their results, and the tiles that each step reads.

A block has as many cells as the array has columns. Cells beyond the last full block are mixed if
their four gates fit in the columns of one tile.
"""

from __future__ import annotations

import numpy as np
import pytest

from systola.arch.config import preset
from systola.arch.isa import Opcode, decode
from systola.compiler.lower import lstm_choice
from systola.compiler.lower.lstm_layout import GATES, Layout
from systola.runtime.iss import GoldenBackend
from systola.verif.compiler.model_writer import interpret
from systola.verif.compiler.test_few_channels import program_of
from systola.verif.compiler.test_lstm import lstm_model
from systola.verif.compiler.test_networks import network_of
from systola.verif.kit.run_network import run_network
from systola.verif.kit.seeds import random_seed


@pytest.mark.parametrize(
    ("machine", "cells", "cell_bits", "clip"),
    [
        ("base", 36, 11, 10.0),  # The last four cells are mixed.
        ("base", 33, 13, 0.5),
        ("base", 37, 12, 0.0),  # The last five cells are a block of their own.
        ("base", 32, 16, 10.0),
        ("small", 26, 18, 10.0),
        ("small", 17, 7, 10.0),  # LiteRT has no tanh for cells with 7 fraction bits.
    ],
)
def test_every_byte(machine: str, cells: int, cell_bits: int, clip: float) -> None:
    rng = np.random.default_rng(random_seed())
    steps, inputs = int(rng.integers(2, 7)), int(rng.integers(1, 40))
    content = lstm_model(rng, steps, inputs, cells, cell_bits=cell_bits, clip=clip)
    x = rng.integers(-128, 128, (2, 1, steps, inputs), dtype=np.int8)
    run = run_network(GoldenBackend(preset(machine)), network_of(content), x, batch=1)
    assert np.array_equal(run.y, interpret(content, x))


def tiles_of_a_step(content: bytes) -> int:
    """Return the number of tiles that an LSTM reads in each pass of the loop over its steps."""
    code = program_of(content).image.program
    instructions = [decode(code[n : n + 16]) for n in range(0, len(code), 16)]
    opcodes = [entry.opcode for entry, _ in filter(None, instructions)]
    end = opcodes.index(Opcode.END_LOOP)
    begin = end - opcodes[end::-1].index(Opcode.LOOP)
    return sum(
        operands["count"]
        for entry, operands in filter(None, instructions[begin:end])
        if entry.opcode == Opcode.READ_WEIGHTS
    )


@pytest.mark.parametrize(
    ("cells", "tiles"),
    [
        # Two blocks of cells need 8 tiles along N by 2 along K. Four mixed cells need one more tile
        # along N. Their state needs a tile for each of three groups of gates: the two blocks and
        # the mixed cells. Four more tiles spread the sums of the mixed cells.
        (32, 16),
        (36, 9 * 2 + 3 + 4),
        (37, 12 * 3),
    ],
)
def test_tiles_of_a_step(cells: int, tiles: int) -> None:
    rng = np.random.default_rng(1)
    assert tiles_of_a_step(lstm_model(rng, 5, 20, cells)) == tiles


def test_others_go_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that an LSTM with one step, or with one full block of cells, does not run by blocks."""
    monkeypatch.delattr(lstm_choice, "lstm_by_blocks")
    rng = np.random.default_rng(1)
    for steps, cells in ((1, 36), (4, 20)):
        program_of(lstm_model(rng, steps, 7, cells))


def test_layout() -> None:
    """Check the columns in which the gates and cells of an LSTM lie.

    With 16 columns, the last 4 of 36 cells are mixed. The last 5 of 37 cells are a third block.
    """
    layout = Layout(36, 16)
    gates, cells = layout.columns()
    assert (layout.mixed, layout.blocks, layout.tiles, layout.rest) == (1, 2, 9, 4)
    assert cells[0].tolist() == GATES * [32, 33, 34, 35]
    assert gates[0].tolist() == sorted(GATES * [0, 1, 2, 3])
    assert (cells[1:].reshape(2, GATES, -1)[1] == np.arange(16, 32)).all()
    assert Layout(37, 16).blocks == 3 and not Layout(37, 16).mixed
