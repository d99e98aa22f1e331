# SPDX-License-Identifier: Apache-2.0
"""Generated programs of short instructions that wait for one another, after long instructions.

The long instructions fill the queues. All instructions use the same few lines and rows, below and
above an address at which many bits change. So in each place of a list of instructions under way,
and in each bit of an address, an error would show. Several instructions of a kind follow one
another, so that the lists of their unit are full.
"""

from __future__ import annotations

import random

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import CURVE_TABLES, Function, Opcode, Operation, Reduction, encode
from systola.verif.kit.copies import lines_in, lines_out
from systola.verif.kit.images import (
    make_image,
    random_memory,
    random_tiles,
    varied_parameter_entry,
)

_LINES = _ROWS = 24
_LONG = 12
"""The least number of lines or rows of a long instruction."""
_ENTRIES = 4
_TABLES = 2
_TILES = 4
_IN_A_ROW = 5
"""The number of instructions of a kind in a row: one more than the lists have places."""
_OUTPUT, _DATA, _PARAMETERS, _SHOWN, _PROGRAM = (HOST_PAGE_BYTES * page for page in range(5))
_PAGES = 7


def crowded_program(config: Config, seed: str, *, instructions: int = 170) -> Image:
    """Make a program of at least `instructions` instructions that copies out all data at its end.

    The program reads only data that it has written.
    """
    rng = random.Random(f"{config.name} {seed}")
    data = np.random.default_rng(rng.getrandbits(64))
    host = random_memory(data, _PAGES)
    entries = [varied_parameter_entry(data, config) for _ in range(_ENTRIES)]
    flat = np.concatenate(entries)
    assert flat.size <= HOST_PAGE_BYTES
    host[_PARAMETERS:][: flat.size] = flat
    writer = _Writer(config, rng)
    writer.begin()
    while len(writer.words) < instructions:
        writer.step()
    writer.end()
    return make_image(
        writer.words,
        host=host,
        weights=random_tiles(data, config, _TILES),
        program_offset=_PROGRAM,
    )


class _Writer:
    def __init__(self, config: Config, rng: random.Random) -> None:
        self._config, self._rng = config, rng
        self._line = self._around(config.buffer_lines, _LINES)
        self._row = self._around(config.accumulator_rows, _ROWS)
        self._entry = self._around(config.parameter_entries, _ENTRIES)
        self._tables = min(config.tables, _TABLES if not config.attention else CURVE_TABLES + 1)
        self.words: list[bytes] = []

    def _around(self, size: int, used: int) -> int:
        """Return the first of `used` cells of a memory that lie on both sides of a power of two."""
        bits = size.bit_length()
        middle = 1 << self._rng.randrange(min(used.bit_length(), bits - 1), bits)
        return max(0, min(middle - self._rng.randrange(1, used), size - used))

    def begin(self) -> None:
        """Write instructions that give a value to all on-chip cells that are read later."""
        self._emit(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=self._entry, count=_ENTRIES)
        for table in range(self._tables):
            self._emit(Opcode.LOAD_TABLE, host=_DATA, table=table)
        self._read(_DATA, self._line, _LINES)
        self._multiply(self._line, self._row, _ROWS, accumulate=0)

    def step(self) -> None:
        """Write one random instruction of any unit, or several of the same kind."""
        steps = (
            *(self._some_read, self._some_read, self._some_write, self._some_write),
            *(self._some_product, self._some_product, self._activate, self._activate),
            *(self._vector, self._vector, self._walk, self._walk),
            *(self._parameters, self._parameters, self._tag),
            *((self._table,) if self._tables else ()),
        )
        step = self._rng.choice(steps)
        for _ in range(self._rng.choice((1, 1, 1, 1, _IN_A_ROW))):
            step()

    def end(self) -> None:
        """Write copies of lines and rows to host memory; the copied lines end at the end of a
        page.
        """
        size = _LINES * self._config.output_pitch
        self._write(_SHOWN + HOST_PAGE_BYTES - size, self._line, _LINES)
        self._emit(
            Opcode.ACTIVATE,
            accumulator=self._row,
            buffer=self._line,
            rows=_ROWS,
            n_tiles=1,
            parameter=self._entry,
        )
        self._write(_SHOWN, self._line, _LINES)
        self._emit(Opcode.HALT)

    def _emit(self, opcode: Opcode, **operands: int) -> None:
        self.words.append(encode(opcode, **operands))

    def _size(self, most: int) -> int:
        """Return a random number of lines or rows, mostly 1 or 2, now and then more."""
        rng = self._rng
        return min(
            most, rng.randint(_LONG, 2 * _LONG) if rng.random() < 0.15 else rng.choice((1, 2))
        )

    def _place(self, start: int, size: int, used: int) -> int:
        return start + self._rng.randint(0, size - used)

    def _read(self, host: int, line: int, rows: int) -> None:
        self._emit(
            self._rng.choice((Opcode.READ_HOST_MEMORY, Opcode.READ_HOST_MEMORY_ALTERNATE)),
            **lines_in(self._config, host=host, line=line, rows=rows),
        )

    def _write(self, host: int, line: int, rows: int) -> None:
        self._emit(
            self._rng.choice((Opcode.WRITE_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY_ALTERNATE)),
            **lines_out(self._config, host=host, line=line, rows=rows),
        )

    def _multiply(self, line: int, row: int, rows: int, *, accumulate: int) -> None:
        self._emit(Opcode.READ_WEIGHTS, tile=self._rng.randrange(_TILES), count=1)
        self._emit(
            Opcode.MATRIX_MULTIPLY,
            **{"buffer": line, "accumulator": row, "rows": rows, "k_tiles": 1, "n_tiles": 1},
            accumulate=accumulate,
        )

    def _some_read(self) -> None:
        rows = self._size(_LINES)
        pitch = max(self._config.input_pitch, self._config.output_pitch)
        start = self._rng.choice((_DATA, _OUTPUT))
        host = start + pitch * self._rng.randint(0, _LINES - rows)
        self._read(host, self._place(self._line, _LINES, rows), rows)

    def _some_write(self) -> None:
        rows = self._size(_LINES)
        pitch = max(self._config.input_pitch, self._config.output_pitch)
        host = _OUTPUT + pitch * self._rng.randint(0, _LINES - rows)
        self._write(host, self._place(self._line, _LINES, rows), rows)

    def _some_product(self) -> None:
        rows = self._size(_ROWS)
        line, row = self._place(self._line, _LINES, rows), self._place(self._row, _ROWS, rows)
        self._multiply(line, row, rows, accumulate=self._rng.randrange(2))

    def _activate(self) -> None:
        how = self._how()
        wide = how.get("wide", 0)
        rows = self._size(_LINES >> wide)
        self._emit(
            Opcode.ACTIVATE,
            accumulator=self._place(self._row, _ROWS, rows),
            buffer=self._place(self._line, _LINES, rows << wide),
            parameter=self._place(self._entry, _ENTRIES, 1),
            **{"rows": rows, "n_tiles": 1},
            **how,
        )

    def _how(self) -> dict[str, int]:
        """Return the operands that decide the form of the results of an Activate or Vector.

        Results are int8 or int16. int8 results may come from a table. int16 results may come from a
        table, or be added to the old values.
        """
        rng = self._rng
        if self._config.wide and rng.random() < 0.6:
            how = {"wide": 1, "accumulate": int(rng.random() < 0.75)}
            if self._config.attention and rng.random() < 0.5:
                how |= {"function": Function.TABLE, "table": rng.randrange(2)}
            return how
        if self._tables and rng.random() < 0.6:
            return {"function": Function.TABLE, "table": rng.randrange(self._tables)}
        return {}

    def _apart(self, lines: int) -> list[int]:
        """Return the first lines of three ranges of `lines` lines that do not overlap.

        The ranges are often among the first lines that the program uses.
        """
        most = _LINES // lines
        places = self._rng.sample(range(self._rng.choice((most, min(most, 5)))), 3)
        return [self._line + lines * place for place in places]

    def _vector(self) -> None:
        rng = self._rng
        how = self._how()
        wide = how.get("wide", 0)
        operation = None
        if self._config.attention and rng.random() < 0.3:
            operation = rng.choice((Operation.COPY, Operation.ADD))
            how |= {"function": Function.QUOTIENT, "table": rng.randrange(3)}
            if operation == Operation.ADD and rng.random() < 0.5:
                how |= {"accumulate": 1, "wide": 0}
        rows = self._size(_LINES // 3 >> wide)
        buffer, operand, destination = self._apart(rows << wide)
        scale = {f"multiplier_{name}": 1 << 30 for name in "ab"}
        self._emit(Opcode.SET_CONFIG_SCALE, **scale, shift_a=rng.randint(0, 20))
        self._emit(
            Opcode.VECTOR,
            operation=rng.choice(list(Operation)) if operation is None else operation,
            **{"buffer": buffer, "operand": operand, "destination": destination, "rows": rows},
            parameter=self._place(self._entry, _ENTRIES, 1),
            wide_operands=0 if operation == Operation.ADD else wide,
            **how,
        )

    def _walk(self) -> None:
        """Write a Pool or Depthwise with a window of one tap, which makes a line of each line."""
        rng = self._rng
        rows = self._size(_LINES // 3)
        buffer, taps, destination = self._apart(rows)
        ones = ("width", "pitch", "kernel_height", "kernel_width", "stride_y", "stride_x")
        window = dict.fromkeys((*ones, "dilation_y", "dilation_x", "out_width"), 1)
        self._emit(Opcode.SET_CONFIG_WINDOW, **window, height=rows, out_height=rows)
        at = {"buffer": buffer, "destination": destination, "blocks": 1}
        at["parameter"] = self._place(self._entry, _ENTRIES, 1)
        if self._config.depthwise and rng.random() < 0.5:
            self._emit(Opcode.DEPTHWISE, **at, taps=taps)
        else:
            self._emit(Opcode.POOL, **at, reduction=rng.choice((Reduction.MAX, Reduction.SUM)))

    def _table(self) -> None:
        host = self._rng.choice((_DATA, _OUTPUT))
        self._emit(Opcode.LOAD_TABLE, host=host, table=self._rng.randrange(self._tables))

    def _parameters(self) -> None:
        size = self._rng.randint(1, 2)
        place = self._place(0, _ENTRIES, size)
        host = self._rng.choice((_PARAMETERS, _OUTPUT))
        self._emit(Opcode.LOAD_PARAMETERS, host=host, parameter=self._entry + place, count=size)

    def _tag(self) -> None:
        self._emit(Opcode.DEBUG_TAG, tag=self._rng.getrandbits(16), wait=self._rng.getrandbits(4))
