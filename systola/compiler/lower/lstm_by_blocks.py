# SPDX-License-Identifier: Apache-2.0
"""The LSTM of one sequence, block by block of its cells, with the fewest tiles for each step in
time.

Each step in time needs all recurrent weights, and the machine reads them from weight memory again.
So the products of the input x are made for all steps in time at once, before the first one. A block
has as many cells as a tile has columns. The array makes the sums of a block's four gates one after
another. The lanes make the hidden state of a block while the array works on the next block. The
lanes make the last block of the state last. So the array begins the next step in time with the
weights for the other blocks of the state.

Cells beyond the last full block are mixed cells if their four gates fit the columns of one tile,
the mixed tile. Otherwise they are a block with free columns. The mixed tile has the gates FORGET,
INPUT, CELL and OUTPUT of the mixed cells side by side, each in a quarter of the columns. Four more
tiles spread the sums: each gate gets a vector of its own, with the gate's sums of 16 bits in all
four quarters. The new state of the mixed cells then takes four lines. Each line has the state in
one quarter, and the zero point in the other quarters. So one tile holds the weights of these four
lines for the four gates of a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from systola.arch.isa import Function, Opcode, Operation, Reduction, Rounding
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import Entries
from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.lstm_layout import (
    CELL,
    FORGET,
    GATES,
    INPUT,
    LATE,
    OUTPUT,
    SPREAD,
    Layout,
    Weights,
    packed,
    scratch_lines,
    tiles_of_a_step,
)
from systola.compiler.lower.step import Step
from systola.compiler.operations import Requantisation, Window

GATE_INTEGER_BITS = 3
"""Number of integer bits in the fixed-point argument of the cell gate's tanh."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """The buffer lines, accumulator rows, weight tiles and index registers that an LSTM uses."""

    inputs: int
    """First buffer line of the products of the input x.

    Each tile along N has two lines for each step in time: low bytes and high bytes.
    """
    states: int
    """First buffer line of the hidden states of the blocks: a state before the first step in time,
    then a state after each step in time.

    A state has a line for each block of cells.
    """
    quarters: int
    """First buffer line of the hidden states of the mixed cells: four lines before the first step
    in time, then four lines after each step in time.
    """
    cells: int
    mixed: int
    """First buffer line of the cells: two lines for each block, then two for the mixed cells."""
    """First of two buffer lines, if there are mixed cells, that no instruction uses."""
    spread: int
    """First buffer line of the gates of the mixed cells: two lines for each gate, and the gates in
    the order of SPREAD.
    """
    sums: int
    """First accumulator row of the sums of one step in time.

    There is a row for each tile along N. If there are mixed cells, GATES rows follow, each with the
    sums of one gate of these cells in all four quarters.
    """
    tiles: int
    """Number of the first weight tile for a step in time, counted from 0 in weight memory."""
    line: int
    """Index register with the number of lines before the present step in time, for each tile along
    N in `inputs`.
    """
    state: int
    """Index register with the number of lines from `states` to the state before the present step in
    time.
    """
    """Index register with the number of lines from `quarters` to the mixed cells' state before the
    present step in time.
    """
    quarter: int


@dataclass(frozen=True, kw_only=True, eq=False)
class LstmByBlocksStep(Step):
    """A step of the program that runs an LSTM on all steps in time of one sequence, block by block
    of cells.
    """

    source: FeatureMap
    hidden: FeatureMap
    layout: Layout
    weights: Weights
    input_entries: Entries
    """Parameter entries of the products of the input x, one for each tile along N."""
    recurrent_entries: Entries
    copy_entry: Entries
    forget_entry: Entries
    update_entry: Entries
    hidden_output: Requantisation
    hidden_entries: Entries
    """Parameter entries for the new hidden state.

    The first one is for the blocks, and covers all columns. If there are mixed cells, four more
    follow, each for one quarter of the columns.
    """
    start: Lines
    """Constant lines: the hidden states before the first step in time, then zeros for the cells,
    two lines for each block and two for the mixed cells.
    """
    scratch: Lines
    cell_bits: int
    limit: int
    has_tanh: bool

    @property
    def reads(self) -> tuple[Lines, ...]:
        return (self.source.lines, self.start)

    @property
    def writes(self) -> tuple[Lines, ...]:
        return (self.hidden.lines, self.scratch)

    @property
    def entries(self) -> tuple[Entries, ...]:
        return (
            self.input_entries,
            self.recurrent_entries,
            self.copy_entry,
            self.forget_entry,
            self.update_entry,
            self.hidden_entries,
        )

    @property
    def has_loop(self) -> bool:
        return True

    def emit(self, emitter: Emitter) -> None:
        layout, steps = self.layout, self.source.pixels
        lines = np.cumsum([emitter.line(self.scratch), *scratch_lines(layout, steps)]).tolist()
        places = Places(
            inputs=lines[0],
            states=lines[1],
            quarters=lines[2],
            cells=lines[3],
            mixed=lines[4],
            spread=lines[5],
            sums=emitter.accumulators(layout.tiles + GATES * layout.mixed),
            tiles=emitter.store_weights(
                packed(emitter.config, tiles_of_a_step(self.layout, self.weights))
            ),
            line=emitter.take_register(),
            state=emitter.take_register(),
            quarter=emitter.take_register(),
        )
        registers = (places.line, 2), (places.state, layout.blocks), (places.quarter, GATES)
        self._emit_start(emitter, places)
        self._emit_inputs(emitter, places)
        emitter.scale(limit=self.limit)
        for register, _ in registers:
            emitter.emit(Opcode.SET_REGISTER, register=register)
        self._emit_first(emitter, places, 0)
        self._emit_first_late(emitter, places, 0)
        emitter.loop(steps - 1)
        self._emit_step(emitter, places, last=False)
        for register, value in registers:
            emitter.emit(Opcode.SET_REGISTER, register=register, first=register, value=value)
        emitter.end_loop()
        self._emit_step(emitter, places, last=True)
        self._emit_results(emitter, places)
        for register, _ in registers:
            emitter.free_register(register)

    def _emit_start(self, emitter: Emitter, places: Places) -> None:
        blocks, mixed = self.layout.blocks, self.layout.mixed
        emitter.scale()
        copies = [(0, places.states, blocks, 0), (blocks, places.quarters, GATES * mixed, 0)]
        copies.append((blocks + GATES * mixed, places.cells, blocks + mixed, 1))
        for first, destination, rows, wide in copies:
            if rows:
                emitter.emit(
                    Opcode.VECTOR,
                    operation=Operation.COPY,
                    buffer=emitter.line(self.start, first),
                    destination=destination,
                    rows=rows,
                    parameter=emitter.parameters(self.copy_entry),
                    rounding=Rounding.SINGLE,
                    wide_operands=wide,
                    wide=wide,
                )

    def _emit_inputs(self, emitter: Emitter, places: Places) -> None:
        """Emit the products of the input x for all steps in time: first for the mixed tile, then
        for each block of cells.
        """
        source, layout, steps = self.source, self.layout, self.source.pixels
        groups = [range(layout.mixed)] if layout.mixed else []
        groups += [range(n, n + GATES) for n in range(layout.mixed, layout.tiles, GATES)]
        emitter.window(source.part(0, steps), Window(kernel=(1, 1), out=(1, steps)))
        for group in groups:
            tiles = packed(emitter.config, self.weights.inputs[group.start : group.stop])
            accumulator = emitter.accumulators(len(group) * steps)
            first = emitter.store_weights(tiles)
            emitter.use_weights(first, len(group) * source.channels.blocks)
            emitter.emit(
                Opcode.CONVOLVE,
                buffer=emitter.line(source.lines, source.offset),
                accumulator=accumulator,
                plane=source.plane,
                k_tiles=source.channels.blocks,
                n_tiles=len(group),
            )
            emitter.emit(
                Opcode.ACTIVATE,
                accumulator=accumulator,
                buffer=places.inputs + 2 * steps * group.start,
                rows=steps,
                n_tiles=len(group),
                parameter=emitter.parameters(self.input_entries, group.start, len(group)),
                rounding=Rounding.DOUBLE,
                wide=1,
            )

    def _emit_step(self, emitter: Emitter, places: Places, *, last: bool) -> None:
        """Emit one step in time of the LSTM, and then the first products of the next step in time.

        With `last` there is no next step in time. The array works ahead of the lanes. The products
        of the second and third block come before the lanes' instructions for the previous block.
        The products of a later block come before the lanes' instructions for the block two places
        earlier.
        """
        blocks = self.layout.blocks
        self._emit_block(emitter, places, 1)
        for block in range(blocks):
            if block == 1 and blocks > 2:
                self._emit_block(emitter, places, 2)
            if self.layout.mixed and block == 0:
                self._emit_spread(emitter, places)
            if self.layout.mixed and block == 1:
                self._emit_mixed(emitter, places)
            if 1 <= block < blocks - 2:
                self._emit_block(emitter, places, block + 2)
            if block == blocks - 1 and not last:
                self._emit_first(emitter, places, 1)
            self._emit_lanes(emitter, places, block)
        if not last:
            self._emit_first_late(emitter, places, 1)

    def _emit_product(
        self, emitter: Emitter, buffer: int, register: int, tile: int, sums: int, **operands: int
    ) -> None:
        emitter.use_weights(tile, operands["k_tiles"] * operands["n_tiles"])
        emitter.emit(
            Opcode.MATRIX_MULTIPLY,
            buffer=buffer,
            buffer_register=register,
            accumulator=sums,
            **operands,
        )

    def _emit_rest(
        self, emitter: Emitter, places: Places, tile: int, sums: int, rows: int, ahead: int
    ) -> None:
        """Emit the products of the mixed cells' state with one weight tile, `tile`.

        With `rows` = 1 only the first of the four lines of this state is taken, with GATES all
        four. `ahead` is 0 for the present step in time, and 1 for the next one.
        """
        self._emit_product(
            emitter,
            places.quarters + GATES * ahead,
            places.quarter,
            tile,
            sums,
            rows=rows,
            k_tiles=1,
            n_tiles=1,
        )

    def _emit_first(self, emitter: Emitter, places: Places, ahead: int) -> None:
        """Emit the first products of a step in time: for the mixed tile and the gates of the first
        block of cells.

        `ahead` is 0 for the present step in time, and 1 for the next one. These products leave out
        the last block of the state, since the lanes make it last. _emit_first_late emits the
        products with this block.
        """
        mixed, blocks = self.layout.mixed, self.layout.blocks
        if mixed:
            self._emit_rest(emitter, places, places.tiles, places.sums, 1, ahead)
            self._emit_rest(emitter, places, places.tiles + 1, places.sums + 1, GATES, ahead)
        self._emit_product(
            emitter,
            places.states + blocks * ahead,
            places.state,
            places.tiles + 2 * mixed,
            places.sums,
            rows=1,
            k_tiles=blocks - LATE,
            n_tiles=mixed + GATES,
            accumulate=mixed,
        )

    def _emit_first_late(self, emitter: Emitter, places: Places, ahead: int) -> None:
        """Emit the products of the state's last block with the weights for the mixed tile and for
        the gates of the first block of cells.

        `ahead` is 0 for the present step in time, and 1 for the next one.
        """
        mixed, blocks = self.layout.mixed, self.layout.blocks
        self._emit_product(
            emitter,
            places.states + blocks * ahead + blocks - LATE,
            places.state,
            places.tiles + 2 * mixed + (mixed + GATES) * (blocks - LATE),
            places.sums,
            rows=1,
            k_tiles=LATE,
            n_tiles=mixed + GATES,
            accumulate=1,
        )

    def _emit_block(self, emitter: Emitter, places: Places, block: int) -> None:
        """Emit the products of the whole state with the weights for the gates of one block of
        cells.

        `block` counts from 0, and must be at least 1: _emit_first is for block 0.
        """
        mixed, blocks = self.layout.mixed, self.layout.blocks
        tile = places.tiles + 2 * mixed + (mixed + GATES) * blocks
        tile += (block - 1) * (mixed + GATES * blocks) + GATES * mixed * (block > 1)
        sums = places.sums + mixed + GATES * block
        if mixed:
            self._emit_rest(emitter, places, tile, sums, GATES, 0)
        self._emit_product(
            emitter,
            places.states,
            places.state,
            tile + mixed,
            sums,
            rows=1,
            k_tiles=blocks,
            n_tiles=GATES,
            accumulate=mixed,
        )

    def _emit_spread(self, emitter: Emitter, places: Places) -> None:
        """Emit the instructions that spread the sums of the mixed tile.

        An Activate writes these sums to the buffer. A product then gives each gate of the mixed
        tile a vector of its own, with the gate's sums in all four quarters.
        """
        layout = self.layout
        blocks, mixed = layout.blocks, layout.mixed
        self._emit_sums(emitter, places, 0, places.inputs)
        tile = places.tiles + 2 * mixed + (mixed + GATES) * blocks + mixed + GATES * blocks
        self._emit_product(
            emitter,
            places.inputs,
            places.line,
            tile,
            places.sums + layout.tiles,
            rows=1,
            k_tiles=1,
            n_tiles=GATES,
            wide_vectors=1,
        )

    def _emit_mixed(self, emitter: Emitter, places: Places) -> None:
        """Emit the lanes' instructions that make the new state of the mixed cells from the spread
        sums.
        """
        line = {place: places.spread + 2 * number for number, place in enumerate(SPREAD)}
        for place, rows, function, bits in (
            (FORGET, GATES - 1, Function.SIGMOID, 0),
            (CELL, 1, Function.TANH, GATE_INTEGER_BITS),
        ):
            emitter.emit(
                Opcode.ACTIVATE,
                accumulator=places.sums + self.layout.tiles + SPREAD.index(place),
                buffer=line[place],
                rows=rows,
                n_tiles=1,
                parameter=emitter.parameters(self.copy_entry),
                rounding=Rounding.SINGLE,
                function=function,
                table=bits,
                wide=1,
            )
        cell = places.cells + 2 * self.layout.blocks
        self._emit_cell(emitter, cell, line, 0)
        self._emit_tanh(emitter, cell, line, 0)
        for quarter in range(GATES):
            self._emit_hidden(
                emitter,
                line,
                0,
                places.quarters + GATES + quarter,
                places.quarter,
                emitter.parameters(self.hidden_entries, 1 + quarter, 1),
            )

    def _emit_lanes(self, emitter: Emitter, places: Places, block: int) -> None:
        """Emit the instructions with which the lanes make the new state of a block of cells."""
        layout, steps, register = self.layout, self.source.pixels, places.line
        first = layout.mixed + GATES * block
        line = {place: places.inputs + 2 * steps * (first + place) for place in range(GATES)}

        def gate(place: int) -> None:
            function = Function.TANH if place == CELL else Function.SIGMOID
            bits = GATE_INTEGER_BITS if place == CELL else 0
            self._emit_sums(
                emitter, places, first + place, line[place], function=function, table=bits
            )

        for place in (FORGET, INPUT, CELL, OUTPUT):
            gate(place)
        self._emit_cell(emitter, places.cells + 2 * block, line, register)
        self._emit_tanh(emitter, places.cells + 2 * block, line, register)
        self._emit_hidden(
            emitter,
            line,
            register,
            places.states + layout.blocks + block,
            places.state,
            emitter.parameters(self.hidden_entries, 0, 1),
        )

    def _emit_sums(
        self, emitter: Emitter, places: Places, tile: int, line: int, **operands: int
    ) -> None:
        """Emit an Activate that adds the products of the state to the products of the input x, for
        one tile along N.

        The results overwrite the products of the input x, which begin at buffer line `line`.
        """
        emitter.emit(
            Opcode.ACTIVATE,
            accumulator=places.sums + tile,
            buffer=line,
            buffer_register=places.line,
            rows=1,
            n_tiles=1,
            parameter=emitter.parameters(self.recurrent_entries, tile, 1),
            rounding=Rounding.DOUBLE,
            wide=1,
            accumulate=1,
            **operands,
        )

    def _emit_cell(self, emitter: Emitter, cell: int, line: dict[int, int], register: int) -> None:
        """Emit the instructions that update the cells: forget gate x cells, plus input gate x cell
        gate.

        `cell` is the first buffer line of these cells. `line` has the first buffer line of each
        gate; the key is the gate. `register` is the index register that is added to the lines of
        gates.
        """
        multiply = {
            "operation": Operation.MULTIPLY,
            "destination": cell,
            "rows": 1,
            "rounding": Rounding.DOUBLE,
            "wide_operands": 1,
            "wide": 1,
        }
        emitter.emit(
            Opcode.VECTOR,
            buffer=line[FORGET],
            buffer_register=register,
            operand=cell,
            parameter=emitter.parameters(self.forget_entry),
            **multiply,
        )
        emitter.emit(
            Opcode.VECTOR,
            buffer=line[INPUT],
            buffer_register=register,
            operand=line[CELL],
            operand_register=register,
            parameter=emitter.parameters(self.update_entry),
            accumulate=1,
            **multiply,
        )

    def _emit_tanh(self, emitter: Emitter, cell: int, line: dict[int, int], register: int) -> None:
        """Emit the tanh of the cells, which overwrites their cell gate; nothing if the LSTM has no
        such tanh.
        """
        if self.has_tanh:
            emitter.emit(
                Opcode.VECTOR,
                operation=Operation.COPY,
                buffer=cell,
                destination=line[CELL],
                destination_register=register,
                rows=1,
                parameter=emitter.parameters(self.copy_entry),
                function=Function.TANH,
                table=self.cell_bits,
                rounding=Rounding.SINGLE,
                wide_operands=1,
                wide=1,
            )

    def _emit_hidden(
        self,
        emitter: Emitter,
        line: dict[int, int],
        register: int,
        target: int,
        target_register: int,
        parameter: int,
    ) -> None:
        """Emit the instruction that makes one line of the hidden state after the present step in
        time.

        The line is `target`, to which index register `target_register` is added.
        """
        output = self.hidden_output
        emitter.emit(
            Opcode.VECTOR,
            operation=Operation.MULTIPLY,
            buffer=line[OUTPUT],
            buffer_register=register,
            operand=line[CELL if self.has_tanh else INPUT],
            operand_register=register,
            destination=target,
            destination_register=target_register,
            rows=1,
            parameter=parameter,
            rounding=output.rounding,
            zero_point=output.zero_point,
            wide_operands=1,
        )

    def _emit_results(self, emitter: Emitter, places: Places) -> None:
        """Emit instructions that copy the hidden states after all steps in time to the lines of the
        result.
        """
        hidden, layout, steps = self.hidden, self.layout, self.source.pixels
        blocks = layout.blocks
        lines = [(places.states + blocks + block, blocks) for block in range(blocks)]
        if layout.mixed:
            lines.append((places.quarters + GATES, GATES))
        column = FeatureMap(
            lines=self.scratch, height=steps, width=1, plane=0, channels=hidden.channels
        )
        for block, (first, pitch) in enumerate(lines):
            emitter.window(column, Window(kernel=(1, 1), out=(steps, 1)), pitch=pitch)
            emitter.emit(
                Opcode.POOL,
                buffer=first,
                destination=emitter.line(hidden.lines, hidden.block(block)),
                blocks=1,
                parameter=emitter.parameters(self.copy_entry),
                reduction=Reduction.MAX,
                rounding=Rounding.SINGLE,
                floor=-128,
                ceiling=127,
            )
