# SPDX-License-Identifier: Apache-2.0
"""An application of dense layers and cells on the cores of a pod, its weights spread over them.

Each core makes some blocks of C channels of each layer, for all samples. It holds only the tiles of
weights of these blocks. Operations on single elements run on the core of the block. If a later
layer reads a value, the value's blocks go to all cores. Blocks travel around the ring in both
directions, each half of the way. Meanwhile the array works on the later layer's inputs from the
host, such as a hidden state: sums can begin with any of the inputs. Each core's host memory has all
inputs. A block of an output goes to the host memory of the core that makes it.

A value is a row for each sample, as in bench/original/networks.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import (
    INSTRUCTION_BYTES,
    TABLE_BYTES,
    Function,
    Opcode,
    Operation,
    Side,
    encode,
)
from systola.arch.registers import PROGRAM_ALIGNMENT
from systola.compiler.errors import CompileError
from systola.compiler.layer import Layer
from systola.compiler.layout import HostMatrix, pack_entries, pack_tiles, tiles
from systola.compiler.lower.entries import common_entry
from systola.compiler.lower.vector import scale_operands
from systola.compiler.operations import (
    Binary,
    Concatenation,
    Node,
    Operations,
    Product,
    Requantisation,
    Unary,
    Value,
)
from systola.compiler.ring import Ring

GATE_ORDER = (0, 2, 1, 3)
"""Order of a cell's input, forget, new and output gates.

The input gate and the new gate are multiplied with each other, so they stand side by side. The
others are multiplied with the cell's state.
"""


@dataclass(frozen=True, eq=False)
class Spread:
    """The programs of an application, one for each core."""

    images: tuple[Image, ...]
    _outputs: tuple[tuple[HostMatrix, tuple[int, ...]], ...]

    def results(self, hosts: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.int8]]:
        """Return the outputs in the host windows after a run. A row is a sample."""
        found: list[NDArray[np.int8]] = []
        for matrix, owners in self._outputs:
            parts = [matrix.load(host) for host in hosts]
            size = matrix.block
            columns = [
                parts[core][:, block * size : (block + 1) * size]
                for block, core in enumerate(owners)
            ]
            found.append(np.concatenate(columns, axis=1))
        return found


def spread(
    config: Config, operations: Operations, inputs: Sequence[NDArray[np.int8]], cores: int
) -> Spread:
    """Spread `operations` over `cores` cores for `inputs`, all samples of each.

    Raises CompileError for an operation that is neither dense nor on single elements, or does not
    fit.
    """
    if not config.links or config.rows != config.cols:
        raise CompileError("weights are spread over cores with links and as many rows as columns")
    return _Spreading(config, operations, inputs, cores).spread()


@dataclass(frozen=True)
class _Unit:
    """A block of a Product's result, with the accumulator rows for its sums."""

    node: Product
    block: int
    accumulator: int


class _Core:
    """A program of a core, and its memories."""

    def __init__(self, config: Config, inputs: int) -> None:
        self._config = config
        self.words: list[bytes] = []
        self.weights: list[NDArray[np.uint8]] = []
        self.accumulators = Ring(0, config.accumulator_rows)
        self.present: set[tuple[Value, int]] = set()
        """Blocks that are in the core's buffer."""
        self._constants = bytearray(inputs)
        """Content of host memory so far, which begins with room for inputs and outputs."""
        self._lines = 0
        self._places: dict[tuple[Value, int], int] = {}
        self._entries: dict[bytes, int] = {}
        self._tables: dict[bytes, int] = {}
        self._loads: list[bytes] = []

    def emit(self, opcode: Opcode, **operands: int) -> None:
        """Append an instruction."""
        self.words.append(encode(opcode, **operands))

    def place(self, value: Value, blocks: range, block: int, rows: int) -> int:
        """Return the first line of a block in the buffer; the `blocks` of a value lie one after the
        other.
        """
        if (value, block) not in self._places:
            for number, each in enumerate(blocks):
                self._places[value, each] = self._lines + number * rows
            self._lines += len(blocks) * rows
            if self._lines > self._config.buffer_lines:
                raise CompileError("the buffer has no room for all values")
        return self._places[value, block]

    def entry(self, content: bytes) -> int:
        """Return the number of a parameter entry, which is loaded at its first use."""
        if content not in self._entries:
            number = self._entries[content] = len(self._entries)
            if number == self._config.parameter_entries:
                raise CompileError("there are too many parameter entries")
            host = self._constant(content)
            load = encode(Opcode.LOAD_PARAMETERS, host=host, parameter=number, count=1)
            self._loads.append(load)
        return self._entries[content]

    def table(self, content: bytes | None) -> int:
        """Return the number of a table, which is loaded at its first use. 0 stands for no table."""
        if content is None:
            return 0
        if content not in self._tables:
            number = self._tables[content] = len(self._tables)
            if number == self._config.tables:
                raise CompileError("there are too many tables")
            assert len(content) == TABLE_BYTES
            load = encode(Opcode.LOAD_TABLE, host=self._constant(content), table=number)
            self._loads.append(load)
        return self._tables[content]

    def _constant(self, content: bytes) -> int:
        self._constants.extend(bytes(-len(self._constants) % HOST_PAGE_BYTES))
        place = len(self._constants)
        self._constants.extend(content)
        return place

    def image(self, host: NDArray[np.uint8]) -> Image:
        """Return the image of the core. Its host memory begins with the contents of `host`."""
        tile = self._config.tile_bytes
        weights = np.concatenate([np.zeros(0, np.uint8), *self.weights]).reshape(-1)
        words = list(self._loads)
        if weights.size:
            words.insert(0, encode(Opcode.READ_WEIGHTS, tile=0, count=weights.size // tile))
        program = b"".join([*words, *self.words, encode(Opcode.HALT)])
        assert len(program) % INSTRUCTION_BYTES == 0 and HOST_PAGE_BYTES % PROGRAM_ALIGNMENT == 0
        start = self._constant(program)
        content = np.zeros(-(-len(self._constants) // HOST_PAGE_BYTES) * HOST_PAGE_BYTES, np.uint8)
        content[: len(self._constants)] = np.frombuffer(bytes(self._constants), np.uint8)
        content[: len(host)] = host
        return Image(program, content, start, weights)


class _Spreading:
    def __init__(
        self,
        config: Config,
        operations: Operations,
        inputs: Sequence[NDArray[np.int8]],
        cores: int,
    ) -> None:
        self._config, self._operations, self._count = config, operations, cores
        self._rows = len(inputs[0])
        self._made = {node.result: node for node in operations.nodes}
        self._matrices: dict[Value, HostMatrix] = {}
        end = 0
        for value in (*operations.inputs, *operations.outputs):
            # Input and output vectors have equally many elements, and so the same pitch.
            matrix = HostMatrix(
                offset=end,
                rows=self._rows,
                columns=value.channels,
                block=config.cols,
                pitch=config.output_pitch,
            )
            self._matrices[value] = matrix
            end += -(-matrix.size // HOST_PAGE_BYTES) * HOST_PAGE_BYTES
        self._host = np.zeros(end, np.uint8)
        for value, x in zip(operations.inputs, inputs, strict=True):
            self._matrices[value].store(self._host, x.reshape(self._rows, -1))
        self._cores = [_Core(config, end) for _ in range(cores)]
        self._owners: dict[Value, list[int]] = {}
        """For each value: the cores that make its blocks, in the order of the blocks."""
        self._shared: set[Value] = set()
        """Values of which each core has all blocks."""
        for node in operations.nodes:
            if isinstance(node, Product):
                for part in self._parts(node):
                    self._share_what_makes(part)

    def spread(self) -> Spread:
        """Return the programs of all cores."""
        groups = self._groups()
        units = [self._units(products) for products, _ in groups]
        self._multiply(units[0], early=True)
        for number, (products, others) in enumerate(groups):
            following = units[number + 1] if number + 1 < len(groups) else []
            self._multiply(units[number], early=False)
            self._read_ahead(others)
            self._activate(units[number])
            for node in (*products, *others):
                if node in others:
                    self._elements(node)
                if node.result in self._shared and not self._everywhere(node):
                    self._multiply(following, early=True)
                    following = []
                    self._gather(node.result)
            self._multiply(following, early=True)
        images = tuple(core.image(self._host) for core in self._cores)
        outputs = [
            (self._matrices[value], tuple(self._owners[value]))
            for value in self._operations.outputs
        ]
        return Spread(images, tuple(outputs))

    def _parts(self, node: Product) -> tuple[Value, ...]:
        """Return the values that a Product reads side by side."""
        before = self._made.get(node.source)
        return before.parts if isinstance(before, Concatenation) else (node.source,)

    def _share_what_makes(self, value: Value) -> None:
        """Make `value` available on all cores.

        If all cores have one of its operands, they get the other operands, too, and make the value
        themselves.
        """
        self._shared.add(value)
        node = self._made.get(value)
        if node is not None and any(source in self._shared for source in node.sources):
            for source in node.sources:
                self._share_what_makes(source)

    def _everywhere(self, node: Node) -> bool:
        """Return whether each core does the whole operation, instead of a part of it."""
        return not isinstance(node, Product) and all(
            source in self._shared for source in (node.result, *node.sources)
        )

    def _groups(self) -> list[tuple[list[Product], list[Node]]]:
        """Return groups of Products with the same source, and the operations on single elements of
        their results.
        """
        groups: list[tuple[list[Product], list[Node]]] = []
        for node in self._operations.nodes:
            match node:
                case Product() if not node.wide:
                    if not groups or groups[-1][0][0].source != node.source:
                        groups.append(([], []))
                    groups[-1][0].append(node)
                case Binary() | Unary() if groups and len(node.sources) == _operands(node):
                    groups[-1][1].append(node)
                case Concatenation():
                    pass
                case _:
                    raise CompileError(f"{node.operator} cannot be spread over cores")
        return groups

    def _blocks(self, value: Value) -> int:
        return tiles(value.channels, self._config.cols)

    def _units(self, products: Sequence[Product]) -> list[list[_Unit]]:
        """Return for each core the blocks of results that it makes.

        The blocks of a core follow one another in the order of channels. If the Products are the
        gates of a cell, a core makes the same block of all of them where possible.
        """
        order = GATE_ORDER if len(products) == len(GATE_ORDER) else range(len(products))
        units = [
            (products[place], block)
            for block in range(max(self._blocks(node.result) for node in products))
            for place in order
            if block < self._blocks(products[place].result)
        ]
        found: list[list[_Unit]] = [[] for _ in self._cores]
        for number, (node, block) in enumerate(units):
            core = number * self._count // len(units)
            accumulator = self._cores[core].accumulators.take(self._rows)
            found[core].append(_Unit(node, block, accumulator))
            owners = self._owners.setdefault(node.result, [0] * self._blocks(node.result))
            owners[block] = core
        if max(map(len, found)) * self._rows > self._config.accumulator_rows:
            raise CompileError("the accumulators have no room for all samples")
        return found

    def _line(self, core: int, value: Value, block: int) -> int:
        whole = range(self._blocks(value)) if value in self._shared else range(block, block + 1)
        return self._cores[core].place(value, whole, block, self._rows)

    def _copy(self, core: int, opcode: Opcode, value: Value, blocks: range) -> None:
        """Copy blocks of a value from or to host memory."""
        matrix = self._matrices[value]
        self._cores[core].emit(
            opcode,
            host=matrix.at(0, blocks.start),
            buffer=self._line(core, value, blocks.start),
            rows=self._rows,
            stride=matrix.stride,
            blocks=len(blocks),
            tail=matrix.tail(blocks.start, len(blocks)),
        )

    def _read(self, core: int, value: Value, blocks: range) -> None:
        """Read blocks of an input, unless they are in the buffer."""
        present = self._cores[core].present
        if value not in self._made and any((value, block) not in present for block in blocks):
            self._copy(core, Opcode.READ_HOST_MEMORY, value, blocks)
            present.update((value, block) for block in blocks)

    def _read_ahead(self, nodes: Sequence[Node]) -> None:
        """Read the operands from the host for operations that follow Products."""
        for node in nodes:
            for block, core in enumerate(self._owners.get(node.sources[0], [])):
                for value in node.sources[1:]:
                    self._read(core, value, range(block, block + 1))

    def _multiply(self, units: Sequence[Sequence[_Unit]], *, early: bool) -> None:
        """Multiply some parts of the Products' inputs, and add the results to their sums.

        With `early` these are the parts that come from the host, else all other parts.
        """
        for number, own in enumerate(units):
            if not own:
                continue
            parts = self._parts(own[0].node)
            first_rows = np.cumsum([0, *(part.channels for part in parts)])
            from_host = [part not in self._made for part in parts]
            begun = any(from_host) and not early
            for place in reversed(range(len(parts))):
                if from_host[place] != early:
                    continue
                part = parts[place]
                here = slice(first_rows[place], first_rows[place + 1])
                self._read(number, part, range(self._blocks(part)))
                for unit in own:
                    self._sums(number, unit, part, here, accumulate=begun)
                begun = True

    def _sums(
        self, number: int, unit: _Unit, part: Value, here: slice, *, accumulate: bool
    ) -> None:
        core, size = self._cores[number], self._config.cols
        columns = slice(unit.block * size, (unit.block + 1) * size)
        weights = unit.node.layer.weights[here, columns]
        core.weights.append(pack_tiles(self._config, weights, size, size).reshape(-1))
        core.emit(
            Opcode.MATRIX_MULTIPLY,
            buffer=self._line(number, part, 0),
            accumulator=unit.accumulator,
            rows=self._rows,
            k_tiles=self._blocks(part),
            n_tiles=1,
            accumulate=int(accumulate),
        )

    def _activate(self, units: Sequence[Sequence[_Unit]]) -> None:
        size = self._config.cols
        for number, own in enumerate(units):
            core = self._cores[number]
            for unit in own:
                layer = unit.node.layer
                here = slice(unit.block * size, (unit.block + 1) * size)
                entry = pack_entries(
                    self._config, layer.bias[here], layer.multiplier[here], layer.shift[here], size
                )
                core.emit(
                    Opcode.ACTIVATE,
                    accumulator=unit.accumulator,
                    buffer=self._line(number, unit.node.result, unit.block),
                    rows=self._rows,
                    n_tiles=1,
                    parameter=core.entry(entry.tobytes()),
                    ceiling=layer.ceiling,
                    **_ending(core, layer),
                )
                self._write(number, unit.node.result, range(unit.block, unit.block + 1))

    def _write(self, core: int, value: Value, blocks: range) -> None:
        """Write blocks of a value to the host if the value is an output."""
        if value in self._operations.outputs:
            self._copy(core, Opcode.WRITE_HOST_MEMORY, value, blocks)

    def _elements(self, node: Node) -> None:
        """Run a Binary or Unary.

        Each block runs on the core of its first operand, or all blocks run on every core.
        """
        assert isinstance(node, Binary | Unary)
        first = node.sources[0]
        owners = self._owners[node.result] = self._owners[first]
        count = self._blocks(node.result)
        if self._everywhere(node):
            for core in range(self._count):
                self._vector(core, node, range(count))
        else:
            for block in range(count):
                self._bring(node.sources[1:], block, owners[block])
                self._vector(owners[block], node, range(block, block + 1))
        for block in range(count):
            self._write(owners[block], node.result, range(block, block + 1))

    def _bring(self, values: Sequence[Value], block: int, core: int) -> None:
        """Bring blocks to the core that reads them: from core to core, always to the right."""
        for value in values:
            if value not in self._made or value in self._shared:
                self._read(core, value, range(block, block + 1))
                continue
            at = self._owners[value][block]
            while at != core:
                after = (at + 1) % self._count
                self._pass_on(at, after, Side.RIGHT, value, block)
                at = after

    def _pass_on(self, sender: int, taker: int, side: Side, value: Value, block: int) -> None:
        back = Side.LEFT if side == Side.RIGHT else Side.RIGHT
        for core, opcode, there in (
            (sender, Opcode.SEND, side),
            (taker, Opcode.RECEIVE, back),
        ):
            line = self._line(core, value, block)
            self._cores[core].emit(opcode, side=there, buffer=line, rows=self._rows)

    def _vector(self, number: int, node: Binary | Unary, blocks: range) -> None:
        core = self._cores[number]
        if isinstance(node, Unary):
            output, operation = node.output, Operation.COPY
            scale = {"zero_a": node.zero_point}
            if node.table is not None:
                output = replace(output, function=Function.TABLE, table=node.table)
        else:
            output, operation = node.output, node.operation
            scale = scale_operands(node.scale_a, node.scale_b)
        lines = [self._line(number, source, blocks.start) for source in node.sources]
        core.emit(Opcode.SET_CONFIG_SCALE, **scale, ceiling=output.ceiling)
        core.emit(
            Opcode.VECTOR,
            operation=operation,
            buffer=lines[0],
            operand=lines[1] if len(lines) > 1 else 0,
            destination=self._line(number, node.result, blocks.start),
            rows=len(blocks) * self._rows,
            parameter=core.entry(common_entry(self._config, output).content),
            **_ending(core, output),
        )

    def _gather(self, value: Value) -> None:
        """Bring all blocks to all cores, each by the shorter way, and the nearest blocks first."""
        owners = self._owners[value]
        count = self._count
        for far in range(count // 2):
            for side, step, most in (
                (Side.RIGHT, 1, count // 2),
                (Side.LEFT, -1, (count - 1) // 2),
            ):
                if far < most:
                    for block, owner in enumerate(owners):
                        sender = (owner + step * far) % count
                        self._pass_on(sender, (sender + step) % count, side, value, block)


def _operands(node: Binary | Unary) -> int:
    """Return the number of operands, constants included."""
    return 1 if isinstance(node, Unary) else 2


def _ending(core: _Core, output: Layer | Requantisation) -> dict[str, int]:
    """Return the operands of Activate and Vector that set the function for a layer or a
    requantisation.
    """
    return {
        "function": output.function,
        "rounding": output.rounding,
        "zero_point": output.zero_point,
        "table": core.table(output.table),
    }
