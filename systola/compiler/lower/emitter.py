# SPDX-License-Identifier: Apache-2.0
"""The builder of a program, with the weights, parameters, tables and constants that it reads."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systola.arch.built_for import require_machine
from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import REGISTERS, TABLE_BYTES, EncodingError, Opcode, Unit, encode
from systola.arch.isa.instructions import BY_OPCODE
from systola.arch.registers import PROGRAM_ALIGNMENT
from systola.compiler.errors import CompileError
from systola.compiler.layout import HostMatrix, entry_bytes, tiles
from systola.compiler.lower.block_limit import too_many_blocks
from systola.compiler.lower.entries import Entries
from systola.compiler.lower.feature_map import FeatureMap, Lines
from systola.compiler.operations import Window
from systola.compiler.ring import Ring
from systola.compiler.schedule import MAX_HOST_BYTES, MAX_WEIGHT_TILES

AHEAD = 4
"""Number of Read_Weights that are issued ahead of the Read_Weights with the tiles in use."""


@dataclass(frozen=True)
class _Use:
    """A mark in the body of a program: the next instruction takes certain tiles of weights.

    The tiles are `first` to `first` + `count` - 1 of weight memory.
    """

    first: int
    count: int


class _EmptyQueue:
    """A mark in the body of a program: no tiles are in the weight queue at this place."""


_WINDOW_WORDS: Mapping[str, str] = {
    "height": "rows of its map",
    "width": "columns of its map",
    "pitch": "columns of its map",
    "kernel_height": "rows of its window",
    "kernel_width": "columns of its window",
    "stride_y": "its stride along a column",
    "stride_x": "its stride along a row",
    "dilation_y": "its dilation along a column",
    "dilation_x": "its dilation along a row",
    "top": "the row of its first window",
    "left": "the column of its first window",
    "out_height": "rows of its result",
    "out_width": "columns of its result",
}
"""Words for error messages, in terms of the network. The key is an operand of Set_Config_Window."""


def table_count(content: bytes) -> int:
    """Return how many of the machine's tables are needed to hold `content`."""
    return len(content) // TABLE_BYTES


def _check_window(operands: Mapping[str, int]) -> None:
    """Raise CompileError if an operand of Set_Config_Window is out of range."""
    for field in BY_OPCODE[Opcode.SET_CONFIG_WINDOW].fields:
        value, (low, high) = operands[field.name], field.range
        if not low <= value <= high:
            what = _WINDOW_WORDS[field.name]
            raise CompileError(f"{what}: {value}, the machine takes {low} to {high}")


class Emitter:
    """A builder of a program, which begins empty.

    Instructions go to the body of the program. Parameter entries are loaded once if the machine has
    room for all `entries` of the program, and tables if it has room for all `tables`. This load
    comes before the first use, or before the body if this use is in a loop. Without such room,
    entries or tables are loaded before each use. Constants can be loaded once in the same way.
    Read_Weights are added when the program is finished.
    """

    def __init__(
        self,
        config: Config,
        places: Mapping[Lines, int],
        host_offset: int,
        entries: set[Entries],
        tables: set[bytes],
        *,
        moves_back: Collection[Lines] = (),
    ) -> None:
        """Begin a program for a machine of `config`.

        `places` has the number of the first buffer line of each Lines. `moves_back` has lines of
        rings, which are variables that move on in the buffer: this program moves them back, see
        keeping. Data and program begin at byte `host_offset` of the host window. `entries` and
        `tables` are all parameter entries and tables that the program uses.
        """
        self.config = config
        self.moves_back = moves_back
        self._places = places
        self._host_offset = tiles(host_offset, HOST_PAGE_BYTES) * HOST_PAGE_BYTES
        self._data = bytearray()
        self._stored: dict[bytes, int] = {}
        self._front: list[bytes] = []
        self._body: list[bytes | _Use | _EmptyQueue] = []
        self._open_loops = 0
        self._weights: list[NDArray[np.uint8]] = []
        self._tiles = 0
        self._tile_places: dict[bytes, int] = {}
        self._accumulators = Ring(0, config.accumulator_rows)
        self._entries_stay = sum(each.count for each in entries) <= config.parameter_entries
        self._tables_stay = sum(map(table_count, tables)) <= config.tables
        self._entry_ring = Ring(0, config.parameter_entries)
        self._table_ring = Ring(0, config.tables)
        self._entry_places: dict[bytes, int] = {}
        self._recent_entries: dict[tuple[int, int], int] = {}
        """Numbers in the machine of the first of some parameter entries that are loaded before each
        use.

        Only entries that are not overwritten yet are included. The key is the entries' offset in
        the host window, in bytes, and the number of entries.
        """
        self._table_places: dict[bytes, int] = {}
        self._sums: dict[Hashable, range] = {}
        """Accumulator rows of sums that wait to become results. The key is the step that made the
        sums.
        """
        self._constants: set[Lines] = set()
        """Constant lines that have been loaded."""
        self._window: dict[str, int] | None = None
        self._scale: dict[str, int] | None = None
        self._registers = list(range(REGISTERS - 1, 0, -1))
        self._sample_registers: dict[HostMatrix, int] = {}
        self._sample_places: dict[int, int] = {}

    def emit(self, opcode: Opcode, **operands: int) -> None:
        """Append an instruction; raises CompileError if an operand is out of range."""
        self._body.append(self._encoded(opcode, **operands))

    def tag(self, number: int, unit: Unit) -> None:
        """Emit the tag that ends a layer, recorded when `unit` has completed all instructions
        before it.
        """
        self.emit(Opcode.DEBUG_TAG, tag=number, wait=unit)

    def line(self, lines: Lines, offset: int = 0) -> int:
        """Return the address in the unified buffer of line `offset` of `lines`, counted from 0."""
        return self._places[lines] + offset

    def take_register(self) -> int:
        """Return an index register that is not in use; raises CompileError if none is left."""
        if not self._registers:
            raise CompileError(f"more than {REGISTERS - 1} index registers are needed")
        return self._registers.pop()

    def count_samples(self, sizes: Mapping[HostMatrix, int]) -> Mapping[int, int]:
        """Take index registers with the offsets of the present sample or batch in host matrices.

        `sizes` has for each matrix the bytes of a sample or batch. Matrices of the same size share
        a register. Returns the register for each size. From now on sample_register finds the
        registers.
        """
        registers = {size: self.take_register() for size in dict.fromkeys(sizes.values())}
        self._sample_registers.update({matrix: registers[sizes[matrix]] for matrix in sizes})
        return registers

    def sample_register(self, matrix: HostMatrix) -> int:
        """Return the index register with the offset of the present sample or batch in `matrix`.

        Returns 0, which stands for no register, if the matrix has only one sample or batch.
        """
        return self._sample_registers.get(matrix, 0)

    def count_places(self, widths: Iterable[int], first: int) -> None:
        """Take an index register for each of the `widths`, with the place of a sample in its batch.

        The place is counted in pixels of a row. In the register for a width, each earlier sample
        counts as this number of pixels. All these registers begin with the place of sample `first`.
        """
        for width in widths:
            register = self._sample_places[width] = self.take_register()
            self.emit(Opcode.SET_REGISTER, register=register, value=first * width)

    def sample_place(self, width: int) -> int:
        """Return the index register with a sample's place in its batch, counted in pixels.

        The register is for maps with rows of `width` pixels.
        """
        return self._sample_places[width]

    def next_place(self) -> None:
        """Emit instructions that add one sample to the index registers with places in a batch."""
        for width, register in self._sample_places.items():
            self.emit(Opcode.SET_REGISTER, register=register, first=register, value=width)

    def first_place(self) -> None:
        """Emit instructions that set the index registers with places in a batch to sample 0."""
        for register in self._sample_places.values():
            self.emit(Opcode.SET_REGISTER, register=register)

    def free_register(self, register: int) -> None:
        """Give an index register back, so that it can be taken again."""
        self._registers.append(register)

    def loop(self, count: int, register: int = 0) -> None:
        """Open a loop of as many turns as `count` plus the value of index register `register`."""
        self._open_loops += 1
        self.emit(Opcode.LOOP, count=count, count_register=register)
        self._forget()

    def end_loop(self) -> None:
        """Close the innermost loop."""
        self._open_loops -= 1
        self.emit(Opcode.END_LOOP)
        self._forget()

    def _forget(self) -> None:
        """Forget the window, the scale and the parameter entries that are set now.

        At the start and end of a loop these settings are unknown: the instruction that is executed
        before the next instruction is not always the instruction that was emitted last.
        """
        self._window = self._scale = None
        self._recent_entries = {}

    def window(
        self,
        source: FeatureMap,
        window: Window,
        *,
        pitch: int | None = None,
    ) -> None:
        """Emit the Set_Config_Window for a window over `source`, unless the same one is set
        already.

        The rows of `source` are `pitch` lines apart, or by default as many lines as its width.
        """
        # A single window in a row or column needs no stride, even if the model has a stride there.
        stride_y, stride_x = (
            stride if out > 1 else 1 for stride, out in zip(window.stride, window.out, strict=True)
        )
        operands = {
            "height": source.height,
            "width": source.width,
            "pitch": source.width if pitch is None else pitch,
            "kernel_height": window.kernel[0],
            "kernel_width": window.kernel[1],
            "stride_y": stride_y,
            "stride_x": stride_x,
            "dilation_y": window.dilation[0],
            "dilation_x": window.dilation[1],
            "top": window.first[0],
            "left": window.first[1],
            "out_height": window.out[0],
            "out_width": window.out[1],
        }
        if operands != self._window:
            _check_window(operands)
            self.emit(Opcode.SET_CONFIG_WINDOW, **operands)
            self._window = operands

    def scale(self, **operands: int) -> None:
        """Emit the Set_Config_Scale for Vector, unless the same one is set already.

        Operands that are left out have their defaults.
        """
        if operands != self._scale:
            self.emit(Opcode.SET_CONFIG_SCALE, **operands)
            self._scale = operands

    def store_weights(self, packed: NDArray[np.uint8]) -> int:
        """Put tiles into weight memory, and return the number of the first tile.

        The last axis of `packed` has the bytes of a tile. Equal arrays of tiles are stored only
        once. Raises CompileError if the weights are too many.
        """
        key = hashlib.sha256(packed.tobytes()).digest()
        first = self._tile_places.setdefault(key, self._tiles)
        if first < self._tiles:
            return first
        self._weights.append(packed.reshape(-1))
        self._tiles += packed.size // self.config.tile_bytes
        if self._tiles >= MAX_WEIGHT_TILES:
            raise CompileError(f"the weights take over {MAX_WEIGHT_TILES - 1} tiles")
        return first

    def use_weights(self, first: int, count: int) -> None:
        """Note that the next instruction takes `count` weight tiles from tile `first` on."""
        self._body.append(_Use(first, count))

    def empty_queue(self) -> None:
        """Note that no tiles are in the weight queue at this place: reads of later tiles come after
        it.

        Instructions that take weights from the buffer stand between two such places.
        """
        self._body.append(_EmptyQueue())

    def accumulators(self, rows: int) -> int:
        """Reserve `rows` accumulator rows, and return the first of them.

        Rows are reserved in a ring, so that the rows reserved last are the last to be used again.
        """
        first = self._accumulators.take(rows)
        assert all(held.stop <= first or first + rows <= held.start for held in self._sums.values())
        return first

    def make_room(self, rows: int) -> None:
        """Return to the start of the ring of accumulator rows if fewer than `rows` rows are left in
        it.

        Sums that are held later then lie together, and leave room for other sums. If sums are held
        already, the ring goes on as it is.
        """
        if not self._sums:
            self._accumulators.skip_to(rows)

    def hold_sums(self, step: Hashable, rows: range) -> None:
        """Note that the accumulator rows `rows` hold the sums of `step`, which are still needed."""
        self._sums[step] = rows

    def held_sums(self, step: Hashable) -> int:
        """Return the first accumulator row with the sums of `step`, and stop holding these rows."""
        return self._sums.pop(step).start

    def parameters(self, entries: Entries, first: int = 0, count: int | None = None) -> int:
        """Return the number in the machine of the first of some parameter entries.

        The entries are `first` to `first` + `count` - 1 of `entries`. If these entries are not in
        the machine, the method emits an instruction that loads them. Raises CompileError if the
        machine has too few entries.
        """
        count = entries.count - first if count is None else count
        source = self._store(entries.content) + first * entry_bytes(self.config)
        if not self._entries_stay:
            if count > self.config.parameter_entries:
                raise CompileError(
                    f"{count} parameter entries are needed at one time, the machine has "
                    f"{self.config.parameter_entries}"
                )
            key = source, count
            if key not in self._recent_entries:
                place = self._entry_ring.take(count)
                taken = range(place, place + count)
                self._recent_entries = {
                    other: at
                    for other, at in self._recent_entries.items()
                    if at >= taken.stop or at + other[1] <= taken.start
                }
                self._recent_entries[key] = place
                self.emit(Opcode.LOAD_PARAMETERS, host=source, parameter=place, count=count)
            return self._recent_entries[key]
        if entries.content not in self._entry_places:
            place = self._entry_ring.take(entries.count)
            self._entry_places[entries.content] = place
            host = self._store(entries.content)
            self._load(Opcode.LOAD_PARAMETERS, host=host, parameter=place, count=entries.count)
        return self._entry_places[entries.content] + first

    def table(self, content: bytes) -> int:
        """Return the number of the first of the machine's tables with the content `content`.

        A curve takes several tables. If the content is not in the machine, the method emits
        instructions that load it. Raises CompileError if the machine has too few tables.
        """
        count = table_count(content)
        if self.config.tables < count:
            few = "too few" if self.config.tables else "no"
            raise CompileError(f"the machine '{self.config.name}' has {few} tables")
        source = self._store(content)
        load = self._load if self._tables_stay else self.emit
        if not self._tables_stay or content not in self._table_places:
            place = self._table_places[content] = self._table_ring.take(count)
            for number in range(count):
                host = source + number * TABLE_BYTES
                load(Opcode.LOAD_TABLE, host=host, table=place + number)
        return self._table_places[content]

    def constants(self, lines: Lines, *, once: bool) -> None:
        """Emit an instruction that loads constants into the buffer lines `lines`.

        With `once`, the program loads the lines a single time: before the first use, or before the
        body if this use is in a loop. Without `once`, each call emits a load.
        """
        assert lines.content is not None
        if once and lines in self._constants:
            return
        self._constants.add(lines)
        pitch = self.config.input_pitch
        padded = np.zeros((lines.count, pitch), np.int8)
        padded[:, : lines.content.shape[1]] = lines.content
        load = self._load if once else self.emit
        load(
            Opcode.READ_HOST_MEMORY,
            host=self._store(padded.tobytes()),
            buffer=self.line(lines),
            rows=lines.count,
            stride=pitch,
            blocks=1,
            tail=self.config.rows,
        )

    def _load(self, opcode: Opcode, **operands: int) -> None:
        if self._open_loops:
            self._front.append(self._encoded(opcode, **operands))
        else:
            self.emit(opcode, **operands)

    def _encoded(self, opcode: Opcode, **operands: int) -> bytes:
        try:
            return encode(opcode, **operands)
        except EncodingError as error:
            reason = too_many_blocks(self.config, opcode, operands) or str(error)
            raise CompileError(f"too large for one instruction: {reason}") from None

    def _store(self, content: bytes) -> int:
        """Store `content` once in the host window, and return its offset in bytes."""
        if content not in self._stored:
            unit = max(TABLE_BYTES, self.config.host_bus_bytes)
            self._data.extend(bytes(-len(self._data) % unit))
            self._stored[content] = self._host_offset + len(self._data)
            self._data.extend(content)
        return self._stored[content]

    def image(self) -> Image:
        """Return the finished program, from Require_Machine to Halt, in a host window.

        Raises CompileError if the host window would be over 4 GiB.
        """
        self.emit(Opcode.HALT)
        front = (require_machine(self.config), *self._front)
        program = b"".join((*front, *self._with_weight_reads()))
        data_end = self._host_offset + len(self._data)
        start = tiles(data_end, PROGRAM_ALIGNMENT) * PROGRAM_ALIGNMENT
        size = tiles(start + len(program), HOST_PAGE_BYTES) * HOST_PAGE_BYTES
        if size > MAX_HOST_BYTES:
            raise CompileError(f"{size} bytes of host memory are needed, over 4 GiB")
        host = np.zeros(size, np.uint8)
        host[self._host_offset : data_end] = np.frombuffer(bytes(self._data), np.uint8)
        host[start : start + len(program)] = np.frombuffer(program, np.uint8)
        weights = np.concatenate(self._weights) if self._weights else np.empty(0, np.uint8)
        return Image(program, host, start, weights)

    def _with_weight_reads(self) -> list[bytes]:
        """Return the program's body, with Read_Weights before the instructions that need their
        tiles.
        """
        result: list[bytes] = []
        straight: list[bytes | _Use] = []
        for item in self._body:
            ends = isinstance(item, _EmptyQueue)
            if not isinstance(item, _EmptyQueue):
                straight.append(item)
                ends = isinstance(item, bytes) and item[0] in (Opcode.LOOP, Opcode.END_LOOP)
            if ends:
                result += self._straight_with_reads(straight)
                straight = []
        return result + self._straight_with_reads(straight)

    def _straight_with_reads(self, items: list[bytes | _Use]) -> list[bytes]:
        """Return the instructions of a stretch of the body without loops, with Read_Weights added.

        A single Read_Weights fetches tiles that follow one another in memory. It is issued before
        earlier tiles are used, so that the weight port never waits.
        """
        reads: list[_Use] = []
        starts: set[int] = set()
        for position, item in enumerate(items):
            if not isinstance(item, _Use):
                continue
            last = reads[-1] if reads else None
            if last is not None and last.first + last.count == item.first:
                reads[-1] = _Use(last.first, last.count + item.count)
            else:
                reads.append(item)
                starts.add(position)
        result: list[bytes] = []
        issued = used = 0
        for position, item in enumerate(items):
            used += position in starts
            while issued < min(len(reads), used + AHEAD):
                read = reads[issued]
                result.append(encode(Opcode.READ_WEIGHTS, tile=read.first, count=read.count))
                issued += 1
            if isinstance(item, bytes):
                result.append(item)
        return result
