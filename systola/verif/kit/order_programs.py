# SPDX-License-Identifier: Apache-2.0
"""Generated programs in which an instruction waits for an older instruction of another unit.

The older instruction is at each place in its unit's list of instructions under way in turn.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import PARAMETER_PLANES, TAGS_WAITING, Opcode, Operation, Unit, encode
from systola.verif.kit.copies import lines_in, lines_out
from systola.verif.kit.images import (
    make_image,
    random_memory,
    random_parameter_entry,
    random_tiles,
)

PLACES = 64
"""The number of lines in use, and of accumulator rows; fewer parameter entries are in use."""
_LONG = 16
_SHARED, _RESULTS, _LONG_ONES = 16, 32, 48
"""The first line or row of each range: shared by pairs, for results, and for long instructions.

The two instructions of a pair share a cell. The cells below _SHARED are for all other instructions.
"""
_TILES = 8
_PARAMETERS, _DATA, _OUTPUT, _PROGRAM = (HOST_PAGE_BYTES * page for page in (0, 2, 6, 12))


@dataclass(frozen=True)
class Kind:
    """A kind of instruction: its unit, and the kinds of on-chip cells that it reads and writes."""

    name: str
    unit: str
    reads: tuple[str, ...] = ()
    writes: str = ""


KINDS = (
    Kind("read", "reader", writes="line"),
    Kind("parameters", "reader", writes="entry"),
    Kind("write", "writer", reads=("line",)),
    Kind("multiply", "matrix", reads=("line",), writes="row"),
    Kind("activate", "activation", reads=("row", "entry"), writes="line"),
    Kind("vector", "activation", reads=("line", "entry"), writes="line"),
)


@dataclass(frozen=True)
class Order:
    """A pair of instructions: `later` waits for `earlier`, because both use the same `shared` cell.

    The cell is a line, a row or an entry.
    """

    earlier: Kind
    later: Kind
    shared: str

    @property
    def name(self) -> str:
        """The name of the pair: the later kind, the earlier kind, and the kind of cell that they
        share.
        """
        return f"{self.later.name} behind {self.earlier.name} at one {self.shared}"


def orders() -> Iterator[Order]:
    """Yield each pair of instructions of two units in which the later waits for the earlier."""
    for earlier, later, shared in product(KINDS, KINDS, ("line", "row", "entry")):
        used = [(*kind.reads, kind.writes) for kind in (earlier, later)]
        written = shared in (earlier.writes, later.writes)
        if earlier.unit != later.unit and written and all(shared in some for some in used):
            yield Order(earlier, later, shared)


def order_program(config: Config, order: Order, seed: str) -> Image:
    """Make a program that puts the earlier instruction at each place of its unit's list in turn.

    Other instructions of the same unit come before and after the earlier instruction. The later
    instruction waits at the head of its queue or inside the queue, before other instructions.
    """
    rng = random.Random(seed)
    data = np.random.default_rng(rng.getrandbits(64))
    size = PARAMETER_PLANES * config.output_pitch
    entries = min(config.parameter_entries, PLACES, (_DATA - _PARAMETERS) // size)
    writer = _Writer(config, rng, entries)
    writer.begin()
    depth = config.queue_depth
    long_ones = {"line": _LONG_ONES, "row": _LONG_ONES, "entry": 0}

    def fill(like: Kind, places: range) -> None:
        for place in places:
            at = {"line": place % 16, "row": place % 16, "entry": place % 8}
            writer.some(rng.choice([kind for kind in KINDS if kind.unit == like.unit]), at, 1)

    for ahead in range(depth):
        shared, result = _SHARED + ahead % 16, _RESULTS + ahead % 16
        writer.some(order.earlier, long_ones, _LONG)
        fill(order.earlier, range(ahead))
        own = {"line": result, "row": result, "entry": 8 + ahead % 4}
        common = {"line": shared, "row": shared, "entry": 12 + ahead % 4}
        writer.some(order.earlier, {**own, order.shared: common[order.shared]}, 1)
        fill(order.earlier, range(ahead, depth - 2))
        if rng.randrange(2):
            writer.some(order.later, long_ones, _LONG)
        others = {"line": result + 1, "row": result + 1, "entry": 4 + ahead % 4}
        writer.some(order.later, {**others, order.shared: common[order.shared]}, 1)
        fill(order.later, range(8, 8 + rng.randrange(depth)))
        writer.words.append(encode(Opcode.SYNCHRONIZE))
    writer.end()
    host = random_memory(data, 20)
    flat = np.concatenate([random_parameter_entry(data, config) for _ in range(entries)])
    host[_PARAMETERS:][: flat.size] = flat
    return make_image(
        writer.words,
        host=host,
        weights=random_tiles(data, config, _TILES),
        program_offset=_PROGRAM,
    )


class _Writer:
    def __init__(self, config: Config, rng: random.Random, entries: int) -> None:
        self._config, self._rng = config, rng
        self._entries = min(16, entries)
        self.words: list[bytes] = []

    def begin(self) -> None:
        """Write instructions that give a value to all lines, rows, entries and settings in use."""
        self._emit(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=0, count=self._entries)
        self._read(0, PLACES)
        self._multiply(0, 0, PLACES)
        self._emit(Opcode.SET_CONFIG_SCALE, multiplier_a=1 << 30, multiplier_b=1 << 29)
        self._emit(Opcode.SYNCHRONIZE)

    def some(self, kind: Kind, at: dict[str, int], rows: int) -> None:
        """Write an instruction of the given kind on `rows` lines or accumulator rows.

        `at` has the first line, the first row and the parameter entry of the instruction.
        """
        line, row, entry = at["line"], at["row"], at["entry"] % self._entries
        match kind.name:
            case "read":
                self._read(line, rows)
            case "parameters":
                size = PARAMETER_PLANES * self._config.output_pitch
                host = _PARAMETERS + self._rng.randrange(self._entries) * size
                self._emit(Opcode.LOAD_PARAMETERS, host=host, parameter=entry, count=1)
            case "write":
                pitch = self._config.output_pitch
                self._write(_OUTPUT + self._rng.randrange(PLACES) * pitch, line, rows)
            case "multiply":
                self._multiply(line, row, rows)
            case "activate":
                self._activate(row, line, rows, entry)
            case _:
                # A Vector of one line writes the line that it reads, or only the next line.
                result = line + self._rng.randrange(2) if rows == 1 else line
                self._emit(
                    Opcode.VECTOR,
                    operation=Operation.ADD,
                    **{"buffer": line, "operand": line, "destination": result},
                    **{"rows": rows, "parameter": entry},
                )

    def end(self) -> None:
        """Copy lines and rows to host memory, and leave tags that all wait for these copies."""
        size = PLACES * self._config.output_pitch
        self._write(_OUTPUT + size, 0, PLACES)
        self._activate(0, 0, PLACES, 0)
        self._write(_OUTPUT + 2 * size, 0, PLACES)
        for _ in range(TAGS_WAITING):
            tag = {"tag": self._rng.getrandbits(16), "wait": (1 << len(Unit)) - 1}
            self._emit(Opcode.DEBUG_TAG, **tag)
        self._emit(Opcode.HALT)

    def _emit(self, opcode: Opcode, **operands: int) -> None:
        self.words.append(encode(opcode, **operands))

    def _read(self, line: int, rows: int) -> None:
        host = _DATA + self._rng.randrange(PLACES) * self._config.input_pitch
        copy = lines_in(self._config, host=host, line=line, rows=rows)
        self._emit(Opcode.READ_HOST_MEMORY, **copy)

    def _write(self, host: int, line: int, rows: int) -> None:
        copy = lines_out(self._config, host=host, line=line, rows=rows)
        self._emit(Opcode.WRITE_HOST_MEMORY, **copy)

    def _multiply(self, line: int, row: int, rows: int) -> None:
        self._emit(Opcode.READ_WEIGHTS, tile=self._rng.randrange(_TILES), count=1)
        self._emit(
            Opcode.MATRIX_MULTIPLY,
            **{"buffer": line, "accumulator": row, "rows": rows, "k_tiles": 1, "n_tiles": 1},
        )

    def _activate(self, row: int, line: int, rows: int, entry: int) -> None:
        self._emit(
            Opcode.ACTIVATE,
            **{"accumulator": row, "buffer": line, "rows": rows, "n_tiles": 1},
            parameter=entry,
        )
