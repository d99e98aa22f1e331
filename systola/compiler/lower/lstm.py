# SPDX-License-Identifier: Apache-2.0
"""An LSTM that is lowered gate by gate, as a loop over the steps in time.

The hidden states after each step in time lie in one map. The pixels directly before this map have
the states at the start. An index register addresses the input x and the hidden state h of a step in
time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import Config
from systola.arch.isa import Function, Opcode, Operation, Rounding
from systola.compiler.errors import CompileError
from systola.compiler.lower.channels import Channels
from systola.compiler.lower.emitter import Emitter
from systola.compiler.lower.entries import (
    Entries,
    channel_entries,
    common_entry,
    division_entry,
    window_tiles,
)
from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.lower.step import Step
from systola.compiler.operations import (
    Gate,
    Lstm,
    Requantisation,
    Window,
    identity,
)

GATE_INTEGER_BITS = 3
"""Number of integer bits of the fixed-point argument of a gate's function."""


@dataclass(frozen=True)
class GateParts:
    """The weight tiles and parameter entries of one gate of an LSTM, for input x and hidden state
    h.
    """

    function: Function
    input_tiles: NDArray[np.uint8]
    input_entries: Entries
    recurrent_tiles: NDArray[np.uint8]
    recurrent_entries: Entries


@dataclass(frozen=True, kw_only=True)
class Places:
    """The buffer lines, accumulator rows, tiles and index register of an LSTM; lists have an item
    for each gate.
    """

    cell: int
    gates: list[int]
    """First buffer line of each gate's values; `cell` is the first buffer line of the cells."""
    input_sums: list[int]
    recurrent_sums: int
    """First accumulator row of the sums for the hidden state h; all gates use it one after another.

    `input_sums` are the first accumulator rows of the sums for the input x.
    """
    input_tiles: list[int]
    recurrent_tiles: list[int]
    state: int
    """First buffer line of the hidden state in int16, used only by an LSTM that has such a
    state.
    """
    time: int
    """Index register with the number of lines before the present step in time, in one block of a
    map.
    """


@dataclass(frozen=True, kw_only=True, eq=False)
class LstmStep(Step):
    """A step of the program for an LSTM: all steps in time of some sequences, side by side."""

    source: FeatureMap
    """Map of the input x; the pixels for a step in time lie together, one for each sequence."""
    hidden: FeatureMap
    """Map of the hidden states, with as many pixels as the source.

    The pixels with the states at the start lie before the map, one for each sequence.
    """
    sequences: int
    start: Lines
    """Constant lines for the start: a line of hidden state for each sequence, then two lines of
    cells for each sequence.

    All blocks start with the same lines. The lines of cells also start a hidden state of int16.
    """
    gates: tuple[GateParts, GateParts, GateParts, GateParts]
    """Tiles and entries of the input, forget, cell and output gate."""
    scratch: Lines
    """Buffer lines for the cells, for each gate, and for a hidden state of int16 if there is one.

    Each of them has two lines for each block of each sequence.
    """
    copy_entry: Entries
    forget_entry: Entries
    update_entry: Entries
    hidden_output: Requantisation
    hidden_entry: Entries
    cell_bits: int
    limit: int
    has_tanh: bool
    biases: Lines | None
    """Biases for an LSTM with a hidden state of int16, gate by gate; None for other LSTMs.

    There are two lines, low and high bytes, for each block of each sequence.
    """

    @property
    def reads(self) -> tuple[Lines, ...]:
        biases = () if self.biases is None else (self.biases,)
        return (self.source.lines, self.start, *biases)

    @property
    def writes(self) -> tuple[Lines, ...]:
        return (self.hidden.lines, self.scratch)

    @property
    def entries(self) -> tuple[Entries, ...]:
        return (
            self.copy_entry,
            self.forget_entry,
            self.update_entry,
            self.hidden_entry,
            *(gate.input_entries for gate in self.gates),
            *(gate.recurrent_entries for gate in self.gates),
        )

    @property
    def has_loop(self) -> bool:
        return self.source.pixels > self.sequences

    @property
    def _rows(self) -> int:
        """Number of vectors of a gate in one step in time: one for each block of each sequence."""
        return self.hidden.channels.blocks * self.sequences

    def emit(self, emitter: Emitter) -> None:
        rows, gates = self._rows, range(len(self.gates))
        needed = (len(self.gates) + 1) * rows
        if needed > emitter.config.accumulator_rows:
            raise CompileError(f"sums of {needed} vectors do not fit the accumulators")
        sums = emitter.accumulators(needed)
        cell = emitter.line(self.scratch)
        # Tiles are stored in the order of their use, so that one instruction reads all tiles for a
        # step in time.
        recurrent_tiles = [emitter.store_weights(gate.recurrent_tiles) for gate in self.gates]
        input_tiles = [emitter.store_weights(gate.input_tiles) for gate in self.gates]
        places = Places(
            cell=cell,
            gates=[cell + 2 * rows * (number + 1) for number in gates],
            input_sums=[sums + rows * number for number in gates],
            recurrent_sums=sums + rows * len(self.gates),
            input_tiles=input_tiles,
            recurrent_tiles=recurrent_tiles,
            state=cell + 2 * rows * (1 + len(self.gates)),
            time=emitter.take_register(),
        )
        self._emit_start(emitter, places)
        emitter.emit(Opcode.SET_REGISTER, register=places.time)
        self._emit_inputs(emitter, places, 0)
        steps = self.source.pixels // self.sequences
        if steps > 1:
            time, sequences = places.time, self.sequences
            emitter.loop(steps - 1)
            self._emit_step(emitter, places, last=False)
            emitter.emit(Opcode.SET_REGISTER, register=time, first=time, value=sequences)
            emitter.end_loop()
        self._emit_step(emitter, places, last=True)
        emitter.free_register(places.time)

    def _emit_step(self, emitter: Emitter, places: Places, *, last: bool) -> None:
        """Emit one step in time of the LSTM, and the products of the input x for the next step in
        time.

        The array never waits for the gates' functions. The cells are calculated while the array
        works on the output gate. The output gate and the hidden state are calculated while the
        array works on the next x.
        """
        if self.biases is not None:
            emitter.scale()
            emitter.emit(
                Opcode.VECTOR,
                operation=Operation.COPY,
                buffer=emitter.line(self.biases),
                destination=places.gates[0],
                rows=len(self.gates) * self._rows,
                parameter=emitter.parameters(self.copy_entry),
                rounding=self._rounding,
                wide_operands=1,
                wide=1,
            )
        for number, gate in enumerate(self.gates):
            self._emit_sums(
                emitter,
                places.input_sums[number],
                places.gates[number],
                gate.input_entries,
                accumulate=int(self.biases is not None),
            )
        *first, output = range(len(self.gates))
        for number in first:
            self._emit_recurrent(emitter, places, number)
            self._emit_function(emitter, places, number)
        self._emit_recurrent(emitter, places, output)
        self._emit_cell(emitter, places)
        if not last:
            self._emit_inputs(emitter, places, self.sequences)
        self._emit_function(emitter, places, output)
        self._emit_hidden(emitter, places)

    @property
    def _rounding(self) -> Rounding:
        """Rounding of sums and of divisions in the LSTM."""
        return Rounding.DOUBLE if self.biases is None else Rounding.SINGLE

    def _emit_start(self, emitter: Emitter, places: Places) -> None:
        hidden, sequences = self.hidden, self.sequences
        emitter.scale()
        copy = {
            "operation": Operation.COPY,
            "rows": sequences,
            "rounding": Rounding.SINGLE,
            "parameter": emitter.parameters(self.copy_entry),
        }
        for block in range(hidden.channels.blocks):
            emitter.emit(
                Opcode.VECTOR,
                buffer=emitter.line(self.start),
                destination=emitter.line(hidden.lines, hidden.block(block) - sequences),
                **copy,
            )
            for first in (places.cell,) if self.biases is None else (places.cell, places.state):
                emitter.emit(
                    Opcode.VECTOR,
                    buffer=emitter.line(self.start, sequences),
                    destination=first + 2 * sequences * block,
                    wide_operands=1,
                    wide=1,
                    **copy,
                )

    def _emit_inputs(self, emitter: Emitter, places: Places, ahead: int) -> None:
        """Emit the products of the input x with the weights of all gates, for one step in time.

        The pixels of this step lie `ahead` lines after the pixels of the present step.
        """
        for number, gate in enumerate(self.gates):
            self._emit_product(
                emitter,
                self.source,
                ahead,
                places.input_tiles[number],
                gate.input_tiles,
                places.input_sums[number],
                places.time,
            )

    def _emit_recurrent(self, emitter: Emitter, places: Places, number: int) -> None:
        """Emit the product of one gate's weights and the hidden state after the previous step in
        time.
        """
        if self.biases is not None:
            tiles = self.gates[number].recurrent_tiles
            emitter.use_weights(places.recurrent_tiles[number], tiles.shape[0] * tiles.shape[1])
            emitter.emit(
                Opcode.MATRIX_MULTIPLY,
                buffer=places.state,
                accumulator=places.recurrent_sums,
                rows=self.sequences,
                k_tiles=self.hidden.channels.blocks,
                n_tiles=self.hidden.channels.blocks,
                wide_vectors=1,
            )
            return
        self._emit_product(
            emitter,
            self.hidden,
            -self.sequences,
            places.recurrent_tiles[number],
            self.gates[number].recurrent_tiles,
            places.recurrent_sums,
            places.time,
        )

    def _emit_product(
        self,
        emitter: Emitter,
        source: FeatureMap,
        ahead: int,
        first: int,
        packed: NDArray[np.uint8],
        accumulator: int,
        time: int,
    ) -> None:
        sequences = self.sequences
        emitter.window(source.part(0, sequences), Window(kernel=(1, 1), out=(1, sequences)))
        emitter.use_weights(first, packed.shape[0] * packed.shape[1])
        emitter.emit(
            Opcode.CONVOLVE,
            buffer=emitter.line(source.lines, source.offset + ahead),
            buffer_register=time,
            accumulator=accumulator,
            plane=source.plane,
            k_tiles=source.channels.blocks,
            n_tiles=self.hidden.channels.blocks,
        )

    def _emit_function(self, emitter: Emitter, places: Places, number: int) -> None:
        """Emit the Activate that applies a gate's function to the sum of two products.

        The products with the hidden state are in the accumulators, the products with the input in
        the gate's buffer lines. The result overwrites these lines.
        """
        gate = self.gates[number]
        self._emit_sums(
            emitter,
            places.recurrent_sums,
            places.gates[number],
            gate.recurrent_entries,
            function=gate.function,
            table=GATE_INTEGER_BITS if gate.function == Function.TANH else 0,
            accumulate=1,
        )

    def _emit_sums(
        self, emitter: Emitter, accumulator: int, line: int, entries: Entries, **operands: int
    ) -> None:
        emitter.emit(
            Opcode.ACTIVATE,
            accumulator=accumulator,
            buffer=line,
            rows=self.sequences,
            n_tiles=self.hidden.channels.blocks,
            parameter=emitter.parameters(entries),
            rounding=self._rounding,
            wide=1,
            **operands,
        )

    def _emit_cell(self, emitter: Emitter, places: Places) -> None:
        """Emit the instructions for the new cells, and for the tanh of the cells, which overwrites
        the lines of the cell gate.
        """
        into, forget, new, _ = places.gates
        cell = places.cell
        emitter.scale(limit=self.limit)
        multiply = {
            "operation": Operation.MULTIPLY,
            "rows": self._rows,
            "rounding": self._rounding,
            "wide_operands": 1,
        }
        emitter.emit(
            Opcode.VECTOR,
            buffer=forget,
            operand=cell,
            destination=cell,
            parameter=emitter.parameters(self.forget_entry),
            wide=1,
            **multiply,
        )
        emitter.emit(
            Opcode.VECTOR,
            buffer=into,
            operand=new,
            destination=cell,
            parameter=emitter.parameters(self.update_entry),
            wide=1,
            accumulate=1,
            **multiply,
        )
        if self.has_tanh:
            emitter.emit(
                Opcode.VECTOR,
                operation=Operation.COPY,
                buffer=cell,
                destination=new,
                rows=self._rows,
                parameter=emitter.parameters(self.copy_entry),
                function=Function.TANH,
                table=self.cell_bits,
                rounding=Rounding.SINGLE,
                wide_operands=1,
                wide=1,
            )

    def _emit_hidden(self, emitter: Emitter, places: Places) -> None:
        hidden, output = self.hidden, self.hidden_output
        into, _, new, out = places.gates
        factor = new if self.has_tanh else into
        parameter = emitter.parameters(self.hidden_entry)
        if self.biases is not None:
            emitter.emit(
                Opcode.VECTOR,
                operation=Operation.MULTIPLY,
                buffer=out,
                operand=factor,
                destination=places.state,
                rows=self._rows,
                parameter=emitter.parameters(self.forget_entry),
                rounding=self._rounding,
                wide_operands=1,
                wide=1,
            )
        for block in range(hidden.channels.blocks):
            cells = 2 * self.sequences * block
            made = {"operation": Operation.COPY, "buffer": places.state + cells}
            if self.biases is None:
                made = {"operation": Operation.MULTIPLY, "buffer": out + cells}
                made["operand"] = factor + cells
            emitter.emit(
                Opcode.VECTOR,
                **made,
                destination=emitter.line(hidden.lines, hidden.block(block)),
                destination_register=places.time,
                rows=self.sequences,
                parameter=parameter,
                rounding=output.rounding,
                zero_point=output.zero_point,
                wide_operands=1,
            )


def hidden_map(name: str, steps: int, sequences: int, channels: Channels) -> FeatureMap:
    """Return a map for the hidden states of an LSTM with `steps` steps in time.

    In each block of channels, the states at the start lie before the map, a pixel for each
    sequence.
    """
    plane = (steps + 1) * sequences
    return FeatureMap(
        lines=Lines(name, plane * channels.blocks),
        offset=sequences,
        height=steps,
        width=sequences,
        plane=plane,
        channels=channels,
    )


def lstm_step(
    config: Config, node: Lstm, source: FeatureMap, hidden: FeatureMap, sequences: int
) -> LstmStep:
    """Return the step for an LSTM gate by gate; raise CompileError if there are no 16-bit modes."""
    if not config.wide:
        raise CompileError(f"the machine '{config.name}' has no 16-bit modes")
    rows = hidden.channels.blocks * sequences
    start = np.zeros((3 * sequences, hidden.channels.block), np.int8)
    start[:sequences] = node.start
    return LstmStep(
        operator=node.operator,
        source=source,
        hidden=hidden,
        sequences=sequences,
        start=Lines(f"start of {node.operator}", len(start), start),
        gates=(
            _parts(config, node.input_gate, Function.SIGMOID, source, hidden),
            _parts(config, node.forget_gate, Function.SIGMOID, source, hidden),
            _parts(config, node.cell_gate, Function.TANH, source, hidden),
            _parts(config, node.output_gate, Function.SIGMOID, source, hidden),
        ),
        scratch=Lines(f"gates of {node.operator}", (5 if node.biases is None else 6) * 2 * rows),
        copy_entry=common_entry(config, identity()),
        # The products f * c and i * g are divided so that they have the fractional bits of cells.
        # Gates have 15 such bits, cells 15 less their integer bits. With SINGLE rounding, halves go
        # upwards.
        forget_entry=division_entry(config, 15),
        update_entry=division_entry(config, 15 + node.cell_bits),
        hidden_output=node.hidden,
        hidden_entry=common_entry(config, node.hidden),
        cell_bits=node.cell_bits,
        limit=node.limit,
        has_tanh=node.has_tanh,
        biases=None if node.biases is None else _biases(node, node.biases, hidden, sequences),
    )


def _biases(node: Lstm, biases: NDArray[np.int16], hidden: FeatureMap, sequences: int) -> Lines:
    """Return constant lines with the biases of all gates, for all sequences; low and high bytes
    have their own lines.
    """
    channels, count = hidden.channels, len(biases)
    blocks = np.zeros((count, channels.blocks * channels.block), np.int16)
    blocks[:, channels.slots] = biases
    parts = blocks.astype("<i2").view(np.int8).reshape(count, channels.blocks, 1, -1, 2)
    lines = np.repeat(parts.swapaxes(3, 4), sequences, axis=2).reshape(-1, channels.block)
    return Lines(f"biases of {node.operator}", len(lines), np.ascontiguousarray(lines))


def _parts(
    config: Config, gate: Gate, function: Function, source: FeatureMap, hidden: FeatureMap
) -> GateParts:
    layout = hidden.channels
    return GateParts(
        function,
        window_tiles(config, gate.input_weights[np.newaxis, np.newaxis], source.channels, layout),
        channel_entries(config, gate.input_sums, layout),
        window_tiles(config, gate.recurrent_weights[np.newaxis, np.newaxis], layout, layout),
        channel_entries(config, gate.recurrent_sums, layout),
    )
