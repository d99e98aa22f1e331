# SPDX-License-Identifier: Apache-2.0
"""The choice between two ways to lower an LSTM: block by block of its cells if possible, else gate
by gate.
"""

from __future__ import annotations

from systola.arch.config import Config
from systola.compiler.errors import CompileError
from systola.compiler.lower.entries import common_entry, division_entry, joined, masked_entry
from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.lstm import lstm_step
from systola.compiler.lower.lstm_by_blocks import LstmByBlocksStep
from systola.compiler.lower.lstm_layout import (
    GATES,
    Layout,
    away_of,
    scratch_lines,
    start_lines,
    tile_entries,
    tiles_of,
)
from systola.compiler.lower.step import Step
from systola.compiler.operations import Lstm, identity


def chosen_lstm(
    config: Config, node: Lstm, source: FeatureMap, hidden: FeatureMap, sequences: int
) -> Step:
    """Return the program step for an LSTM on `sequences` sequences.

    The LSTM runs block by block of its cells if possible, as this takes fewer weight tiles.
    Otherwise it runs gate by gate. Raises CompileError if the machine has no 16-bit modes.
    """
    if sequences == 1 and may_go_by_blocks(config, node, source, hidden):
        return lstm_by_blocks(config, node, source, hidden)
    return lstm_step(config, node, source, hidden, sequences)


def may_go_by_blocks(config: Config, node: Lstm, source: FeatureMap, hidden: FeatureMap) -> bool:
    """Return whether the LSTM `node` can run block by block of its cells.

    The machine must have room for the products of all steps in time at once.
    """
    size, steps = hidden.channels.block, source.pixels
    layout = Layout(node.cells, size)
    return (
        node.biases is None
        and config.rows == config.cols == size
        and len(hidden.channels.parts) == 1
        and not source.packed
        and steps > 1
        and layout.blocks > 1
        and 2 * GATES * steps <= config.accumulator_rows
        and 2 * sum(scratch_lines(layout, steps)) <= config.buffer_lines
    )


def lstm_by_blocks(
    config: Config, node: Lstm, source: FeatureMap, hidden: FeatureMap
) -> LstmByBlocksStep:
    """Return the program step that runs an LSTM block by block of its cells.

    The caller has checked `node` with may_go_by_blocks. Raises CompileError if the machine has no
    16-bit modes.
    """
    if not config.wide:
        raise CompileError(f"the machine '{config.name}' has no 16-bit modes")
    layout = Layout(node.cells, hidden.channels.block)
    gates = node.forget_gate, node.input_gate, node.cell_gate, node.output_gate
    weights = tiles_of(layout, gates, source.channels)
    away = away_of(layout, weights) * node.hidden.zero_point
    masks = [
        masked_entry(config, node.hidden, range(n * layout.quarter, (n + 1) * layout.quarter))
        for n in range(GATES * layout.mixed)
    ]
    start = start_lines(layout, node)
    return LstmByBlocksStep(
        operator=node.operator,
        source=source,
        hidden=hidden,
        layout=layout,
        weights=weights,
        input_entries=tile_entries(config, layout, [gate.input_sums for gate in gates], 0 * away),
        recurrent_entries=tile_entries(
            config, layout, [gate.recurrent_sums for gate in gates], away
        ),
        copy_entry=common_entry(config, identity()),
        forget_entry=division_entry(config, 15),
        update_entry=division_entry(config, 15 + node.cell_bits),
        hidden_output=node.hidden,
        hidden_entries=joined(common_entry(config, node.hidden), *masks),
        start=Lines(f"start of {node.operator}", len(start), start),
        scratch=Lines(f"gates of {node.operator}", sum(scratch_lines(layout, source.pixels))),
        cell_bits=node.cell_bits,
        limit=node.limit,
        has_tanh=node.has_tanh,
    )
