# SPDX-License-Identifier: Apache-2.0
"""The compilation of a chain of layers to a program.

Chunks, groups and segments are parts of the work, explained in plan.py. A step is the work of one
MatrixMultiply. Where instructions do not need each other's results, their order changes only the
speed. The order is:

- One Read_Weights reads all tiles for a chunk. The first Read_Weights comes after the read of the
first input, as the input takes longer than a tile to reach the array.
- Activate and Write_Host_Memory follow the last MatrixMultiply of each group at once. Each row of
results goes through them as soon as the row is complete. The next MatrixMultiply fills other
accumulator rows meanwhile.
- The input of the next chunk (or segment) is read while the array uses the present input. The read
comes after the instructions that use the present input first. Otherwise the read would hold up the
fetch of these instructions, as both go through the host port.
- Parameters are loaded after the first input, unless Activate would then wait for parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from systola.arch.built_for import require_machine
from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import TABLE_BYTES, Opcode, Unit, encode
from systola.arch.registers import PROGRAM_ALIGNMENT
from systola.compiler.errors import CompileError
from systola.compiler.layer import Layer
from systola.compiler.layout import (
    HostMatrix,
    entry_bytes,
    pack_parameters,
    pack_tiles,
    tiles,
)
from systola.compiler.plan import Area, LayerShape, Plan, make_plan, tile_cycles
from systola.compiler.program import HostMap, LayerWork, Program
from systola.compiler.ring import Ring

MAX_HOST_BYTES = HOST_PAGE_BYTES << 20
MAX_WEIGHT_TILES = 1 << 24
MAX_STRIDE = 1 << 24
"""Limits of the host window in bytes, of the weight window in tiles, and of the operand `stride` of
transfers in bytes.
"""


def compile_chain(
    config: Config, layers: Sequence[Layer], rows: int, works: Sequence[LayerWork] = ()
) -> Program:
    """Return the program for a chain of layers and `rows` samples.

    Each layer takes the results of the layer before. `works` is empty, or has a description of each
    layer's work and then of the output. The program has a Debug_Tag for each description, at the
    end of this work. Raises CompileError if the chain does not fit the machine or the memory
    windows.
    """
    if rows < 1:
        raise CompileError(f"number of rows must be at least 1, not {rows}")
    for before, after in pairwise(layers):
        if before.n != after.k:
            raise CompileError(f"a layer of {before.n} outputs feeds one of {after.k} inputs")
    return _Compiler(config, layers, rows, works).compile()


def check_gemm(config: Config, m: int, k: int, n: int) -> None:
    """Raise CompileError if the matrices of an M x K x N product do not fit the memory windows.

    compile_chain makes the same checks, but needs the matrices themselves.
    """
    shape = LayerShape(tiles(k, config.rows), tiles(n, config.cols))
    _check_sizes(config, [shape], m)


def _check_sizes(config: Config, shapes: Sequence[LayerShape], rows: int) -> None:
    first, last = shapes[0], shapes[-1]
    for what, stride in (
        ("K", first.k_tiles * config.input_pitch),
        ("N", last.n_tiles * config.output_pitch),
    ):
        if stride >= MAX_STRIDE:
            raise CompileError(
                f"{what} is too large: a row takes {stride} bytes of host memory, "
                f"the limit is {MAX_STRIDE - 1}"
            )
    total = rows * (first.k_tiles * config.input_pitch + last.n_tiles * config.output_pitch)
    if total >= MAX_HOST_BYTES:
        raise CompileError(
            f"the operands need {total} bytes of host memory, the window has {MAX_HOST_BYTES}"
        )
    count = sum(shape.k_tiles * shape.n_tiles for shape in shapes)
    if count >= MAX_WEIGHT_TILES:
        raise CompileError(f"the weights take {count} tiles, the window has {MAX_WEIGHT_TILES - 1}")


@dataclass(frozen=True)
class _Step:
    """The work of one MatrixMultiply: tiles `n` to `n_end` - 1 along N and one segment along K.

    All numbers are counted from 0. The segment has the number `segment`; `last_segment` is true if
    no other segment follows for the same tiles along N.
    """

    chunk: int
    layer: int
    n: int
    n_end: int
    segment: int
    last_segment: bool


class _Compiler:
    def __init__(
        self, config: Config, layers: Sequence[Layer], rows: int, works: Sequence[LayerWork]
    ) -> None:
        self.config, self.layers, self.works = config, layers, tuple(works)
        # MatrixMultiply of a layer reads the blocks that Activate of the layer before writes. So
        # the blocks between two layers have as many channels as the narrower side of the array.
        shared = min(config.rows, config.cols)
        self.k_blocks = [config.rows, *[shared] * (len(layers) - 1)]
        self.n_blocks = [*[shared] * (len(layers) - 1), config.cols]
        self.shapes = [
            LayerShape(tiles(layer.k, k_block), tiles(layer.n, n_block))
            for layer, k_block, n_block in zip(layers, self.k_blocks, self.n_blocks, strict=True)
        ]
        _check_sizes(config, self.shapes, rows)
        self.plan: Plan = make_plan(config, tuple(self.shapes), rows)
        self.segments = tiles(self.shapes[0].k_tiles, self.plan.segment)
        self.program = [require_machine(config)]

        self._first_entry = [0]
        for shape in self.shapes:
            self._first_entry.append(self._first_entry[-1] + shape.n_tiles)
        self.entries = self._first_entry[-1]
        self.parameters_stay = self.entries <= config.parameter_entries
        self.tables = list(dict.fromkeys(la.table for la in layers if la.table is not None))
        self.tables_stay = len(self.tables) <= config.tables

        self.accumulator_ring = Ring(0, config.accumulator_rows)
        self.parameter_ring = Ring(0, config.parameter_entries)
        self.table_ring = Ring(0, config.tables)
        self.input_ring = Ring(self.plan.input.base, self.plan.input.lines)
        self.output_ring = Ring(self.plan.output.base, self.plan.output.lines)

        self.chunk_row = [0]
        for size in self.plan.chunks:
            self.chunk_row.append(self.chunk_row[-1] + size)
        self._place(rows)

    def compile(self) -> Program:
        self._emit_all()
        program = b"".join(self.program)
        size = self.program_offset + len(program)
        if size > MAX_HOST_BYTES:
            raise CompileError(f"the program needs {size} bytes of host memory, over 4 GiB")
        host = np.zeros(tiles(size, HOST_PAGE_BYTES) * HOST_PAGE_BYTES, np.uint8)
        at = self.parameter_offset
        for layer, n_block in zip(self.layers, self.n_blocks, strict=True):
            packed = pack_parameters(self.config, layer, n_block)
            host[at : at + packed.size] = packed
            at += packed.size
        for number, table in enumerate(self.tables):
            at = self.table_offset + number * TABLE_BYTES
            host[at : at + TABLE_BYTES] = np.frombuffer(table, np.uint8)
        host[self.program_offset : size] = np.frombuffer(program, np.uint8)
        image = Image(program, host, self.program_offset, self._weights())
        areas = (self.plan.input, *self.plan.hidden, self.plan.output)
        return Program(
            image,
            (_rows_of(self.input),),
            (_rows_of(self.output),),
            self.works,
            buffer_lines=max(area.base + area.lines for area in areas),
        )

    def _place(self, rows: int) -> None:
        """Choose offsets in the host window for input, output, parameters, tables and program."""
        config = self.config
        at = 0

        def reserve(size: int, alignment: int) -> int:
            nonlocal at
            start = tiles(at, alignment) * alignment
            at = start + size
            return start

        self.input = HostMatrix(
            offset=0,
            rows=rows,
            columns=self.layers[0].k,
            block=config.rows,
            pitch=config.input_pitch,
        )
        reserve(self.input.size, HOST_PAGE_BYTES)
        self.output = HostMatrix(
            offset=reserve(rows * self.shapes[-1].n_tiles * config.output_pitch, HOST_PAGE_BYTES),
            rows=rows,
            columns=self.layers[-1].n,
            block=config.cols,
            pitch=config.output_pitch,
        )
        bus = config.host_bus_bytes
        self.parameter_offset = reserve(self.entries * entry_bytes(config), HOST_PAGE_BYTES)
        self.table_offset = reserve(len(self.tables) * TABLE_BYTES, max(TABLE_BYTES, bus))
        self.program_offset = reserve(0, PROGRAM_ALIGNMENT)
        if at >= MAX_HOST_BYTES:
            raise CompileError(f"the operands need {at} bytes of host memory, over 4 GiB")

    def _weights(self) -> NDArray[np.uint8]:
        """Return the bytes of all weight tiles, in the order in which the array takes tiles."""
        config = self.config
        packed = [
            pack_tiles(config, layer.weights, k_block, n_block)
            for layer, k_block, n_block in zip(
                self.layers, self.k_blocks, self.n_blocks, strict=True
            )
        ]
        if self.segments > 1:
            cut: list[NDArray[np.uint8]] = []
            for step in self._steps_of_layer(0, 0):
                low, high = self._span(step)
                cut.append(packed[0][step.n : step.n_end, low:high].reshape(-1))
            packed[0] = np.concatenate(cut)
        return np.concatenate([part.reshape(-1) for part in packed])

    def _steps(self) -> Iterator[_Step]:
        for chunk in range(len(self.plan.chunks)):
            for layer in range(len(self.layers)):
                yield from self._steps_of_layer(chunk, layer)

    def _steps_of_layer(self, chunk: int, layer: int) -> Iterator[_Step]:
        n_tiles, group = self.shapes[layer].n_tiles, self.plan.groups[layer]
        segments = self.segments if layer == 0 else 1
        for n in range(0, n_tiles, group):
            for segment in range(segments):
                n_end = min(n + group, n_tiles)
                yield _Step(chunk, layer, n, n_end, segment, segment == segments - 1)

    def _span(self, step: _Step) -> tuple[int, int]:
        """Return two indexes: the first tile of a step along K, and the tile after the last."""
        k_tiles = self.shapes[step.layer].k_tiles
        if step.layer > 0:
            return 0, k_tiles
        low = step.segment * self.plan.segment
        return low, min(low + self.plan.segment, k_tiles)

    def _emit(self, opcode: Opcode, **operands: int) -> None:
        self.program.append(encode(opcode, **operands))

    def _emit_all(self) -> None:
        # With several segments, each step of the first layer reads its own segment of the input.
        # With a single segment, only the first step of each chunk reads the input.
        loads = [
            step for step in self._steps() if step.layer == 0 and (self.segments > 1 or step.n == 0)
        ]
        addresses: list[int] = []

        def load() -> None:
            if len(addresses) < len(loads):
                addresses.append(self._emit_load(loads[len(addresses)]))

        # As few parameters as possible are loaded before the input, since loads of parameters
        # hold up the input on the host port.
        before_input = self._entries_before_input()
        if before_input:
            self._emit_parameters(0, before_input)
        load()
        self._emit_weights()
        current = -1
        accumulator = 0
        for number, step in enumerate(self._steps()):
            size = self.plan.chunks[step.chunk]
            first_use = current + 1 < len(loads) and loads[current + 1] == step
            if first_use:
                current += 1
            if step.segment == 0:
                accumulator = self.accumulator_ring.take(size * (step.n_end - step.n))
            low, high = self._span(step)
            source = addresses[current] if step.layer == 0 else self._hidden(step.layer - 1).base
            self._emit(
                Opcode.MATRIX_MULTIPLY,
                buffer=source,
                accumulator=accumulator,
                rows=size,
                k_tiles=high - low,
                n_tiles=step.n_end - step.n,
                accumulate=int(step.segment > 0),
            )
            if number == 0:
                if self.parameters_stay and before_input < self.entries:
                    self._emit_parameters(before_input, self.entries)
                if self.tables_stay:
                    for table in range(len(self.tables)):
                        self._emit_table(table, table)
            if step.last_segment:
                self._emit_activation(step, accumulator)
                if self.works and step.n_end == self.shapes[step.layer].n_tiles:
                    self._emit_tags(step.layer)
            if first_use:
                load()
        self._emit(Opcode.HALT)

    def _emit_tags(self, layer: int) -> None:
        self._emit(Opcode.DEBUG_TAG, tag=layer, wait=Unit.ACTIVATION_UNIT)
        if layer == len(self.layers) - 1:
            self._emit(Opcode.DEBUG_TAG, tag=layer + 1, wait=Unit.HOST_WRITER)

    def _hidden(self, layer: int) -> Area:
        return self.plan.hidden[layer % 2]

    def _emit_weights(self) -> None:
        count = sum(shape.k_tiles * shape.n_tiles for shape in self.shapes)
        self._emit(Opcode.READ_WEIGHTS, tile=0, count=count)

    def _emit_load(self, step: _Step) -> int:
        """Emit the read of a step's input; return the address of the input's first buffer line.

        If the step is the first of a chunk, the Read_Weights for the chunk is emitted before. Only
        the first chunk's Read_Weights is emitted by the caller.
        """
        if step.chunk > 0 and step.n == 0 and step.segment == 0:
            self._emit_weights()
        low, high = self._span(step)
        size = self.plan.chunks[step.chunk]
        address = self.input_ring.take((high - low) * size)
        self._emit(
            Opcode.READ_HOST_MEMORY,
            host=self.input.at(self.chunk_row[step.chunk], low),
            buffer=address,
            rows=size,
            stride=self.input.stride,
            blocks=high - low,
            tail=self.input.tail(low, high - low),
        )
        return address

    def _emit_parameters(self, first: int, end: int, address: int | None = None) -> None:
        """Emit the load of the program's parameter entries `first` to `end` - 1, counted from 0.

        Their targets are the machine's parameter entries from `address` on. If `address` is None,
        the targets have the same numbers, `first` to `end` - 1.
        """
        self._emit(
            Opcode.LOAD_PARAMETERS,
            host=self.parameter_offset + first * entry_bytes(self.config),
            parameter=first if address is None else address,
            count=end - first,
        )

    def _emit_table(self, number: int, address: int) -> None:
        self._emit(Opcode.LOAD_TABLE, host=self.table_offset + number * TABLE_BYTES, table=address)

    def _emit_activation(self, step: _Step, accumulator: int) -> None:
        layer = self.layers[step.layer]
        count, size = step.n_end - step.n, self.plan.chunks[step.chunk]
        entry = self._first_entry[step.layer] + step.n
        if self.parameters_stay:
            parameter = entry
        else:
            parameter = self.parameter_ring.take(count)
            self._emit_parameters(entry, entry + count, parameter)
        table = 0
        if layer.table is not None:
            table = self.tables.index(layer.table)
            if not self.tables_stay:
                number, table = table, self.table_ring.take(1)
                self._emit_table(number, table)
        last = step.layer == len(self.layers) - 1
        if last:
            buffer = self.output_ring.take(count * size)
        else:
            buffer = self._hidden(step.layer).base + step.n * size
        self._emit(
            Opcode.ACTIVATE,
            accumulator=accumulator,
            buffer=buffer,
            rows=size,
            n_tiles=count,
            parameter=parameter,
            function=layer.function,
            rounding=layer.rounding,
            zero_point=layer.zero_point,
            ceiling=layer.ceiling,
            table=table,
        )
        if last:
            self._emit(
                Opcode.WRITE_HOST_MEMORY,
                host=self.output.at(self.chunk_row[step.chunk], step.n),
                buffer=buffer,
                rows=size,
                stride=self.output.stride,
                blocks=count,
                tail=self.output.tail(step.n, count),
            )

    def _entries_before_input(self) -> int:
        """Return the number of parameter entries that are loaded before the first input.

        The number is 0 if all entries can be loaded after the input without a delay of the first
        layer's end. The number is also 0 if the machine has too few entries for the whole program.
        Otherwise it is the number of entries that can be loaded while the first weight tile is
        fetched, at least 1.
        """
        if not self.parameters_stay:
            return 0
        config = self.config
        bus = config.host_bus_bytes
        entry = entry_bytes(config) // bus
        size, shape = self.plan.chunks[0], self.shapes[0]
        input_done = size * self.plan.segment * (config.input_pitch // bus)
        # The activation unit uses a parameter entry as soon as the entry is loaded. Its pace is set
        # by the loads or by its vectors, whichever takes longer for an entry.
        activate = max(entry + size * shape.n_tiles, entry * shape.n_tiles + size)
        if input_done + activate <= size * shape.k_tiles * shape.n_tiles:
            return 0
        # The array takes one row of a tile in each cycle, while the tile arrives. If the weight
        # port needs more cycles for a tile, the array waits. Entries can be loaded meanwhile.
        hidden = int(tile_cycles(config)) - config.rows
        return min(self.entries, max(1, hidden // entry))


def _rows_of(matrix: HostMatrix) -> HostMap:
    """Return the layout of an input or output of which each sample is one row of `matrix`."""
    return HostMap(matrix, 1, np.arange(matrix.columns), np.arange(matrix.rows))
