# SPDX-License-Identifier: Apache-2.0
"""Generated programs of few instructions that are large: many lines, rows, entries, tiles,
windows.
"""

from __future__ import annotations

import random

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import PARAMETER_PLANES, Opcode, Operation, Reduction, encode
from systola.golden.window import Window
from systola.verif.kit.copies import lines_out
from systola.verif.kit.images import (
    make_image,
    random_memory,
    random_tiles,
    varied_parameter_entry,
)

_PAGES = 96
_DATA, _PARAMETERS, _OUTPUT = (HOST_PAGE_BYTES * page for page in (2, 34, 64))
_HALF = _PARAMETERS - _DATA
"""The number of bytes of the host window for data, for parameters, and for results, each."""
_MOST = 400
"""The largest number of lines, rows or tiles of an instruction."""
_TILES = 2 * _MOST


def large_program(config: Config, seed: str) -> Image:
    """Make a program with one large instruction of each kind, and copy each result to host memory.

    The program reads only data that it has written.
    """
    rng = random.Random(f"{config.name} {seed}")
    data = np.random.default_rng(rng.getrandbits(64))
    host = random_memory(data, _PAGES)
    room = (_OUTPUT - _PARAMETERS) // (PARAMETER_PLANES * config.output_pitch)
    entries = [varied_parameter_entry(data, config) for _ in range(min(_MOST, room))]
    flat = np.concatenate(entries)
    host[_PARAMETERS:][: flat.size] = flat
    writer = _Writer(config, rng, len(entries))
    for kind in (writer.copy, writer.product, writer.vector, writer.window, writer.tags):
        kind()
    writer.emit(Opcode.HALT)
    assert len(b"".join(writer.words)) <= _DATA
    return make_image(writer.words, host=host, weights=random_tiles(data, config, _TILES))


def longest_program(config: Config, seed: str, rows: int) -> Image:
    """Make a program with one instruction of each unit, over `rows` lines or accumulator rows.

    If the machine has fewer lines or rows, the instructions use all of them.
    """
    rng = random.Random(f"{config.name} {seed}")
    data = np.random.default_rng(rng.getrandbits(64))
    host = random_memory(data, _PAGES)
    entry = varied_parameter_entry(data, config)
    host[_PARAMETERS:][: entry.size] = entry
    pitch = max(config.input_pitch, config.output_pitch)
    rows = min(rows, config.buffer_lines // 3, config.accumulator_rows, _HALF // pitch)
    writer = _Writer(config, rng, 1)
    writer.all_units(rows)
    writer.emit(Opcode.HALT)
    return make_image(writer.words, host=host, weights=random_tiles(data, config, 1))


class _Writer:
    def __init__(self, config: Config, rng: random.Random, entries: int) -> None:
        self._config, self._rng = config, rng
        self._entries = min(entries, config.parameter_entries)
        self.words: list[bytes] = []
        self._shown = _OUTPUT

    def emit(self, opcode: Opcode, **operands: int) -> None:
        """Write an instruction, often followed by tags that wait for the instructions under way."""
        self.words.append(encode(opcode, **operands))
        for _ in range(self._rng.choice((0, 0, 1, 2, 3))):
            tag = {"tag": self._rng.getrandbits(16), "wait": self._rng.getrandbits(4)}
            self.words.append(encode(Opcode.DEBUG_TAG, **tag))

    def copy(self) -> None:
        """Write copies of many rows, and of long rows, from host memory to the buffer and back."""
        rng, config = self._rng, self._config
        most = min(_MOST, config.buffer_lines)
        blocks = rng.choice((1, 2, rng.randint(1, 40)))
        rows = rng.randint(1, max(1, most // blocks))
        line = self._place(config.buffer_lines, rows * blocks)
        self._read(line, rows, blocks)
        self._show(line, rows * blocks)
        # Copy two rows that lie far apart.
        bus, pitch = config.host_bus_bytes, config.input_pitch
        stride = rng.choice((1 << rng.randrange(15), rng.randrange(_HALF // 2 - pitch))) & -bus
        line = self._place(config.buffer_lines, 2)
        self.emit(
            Opcode.READ_HOST_MEMORY,
            **{"host": _DATA, "buffer": line, "rows": 2, "stride": stride},
            **{"blocks": 1, "tail": config.rows},
        )
        self._show(line, 2)

    def product(self) -> None:
        """Write a MatrixMultiply with many tiles along K or N, or with many vectors."""
        rng, config = self._rng, self._config
        n_tiles = rng.choice((1, 2, rng.randint(1, min(self._entries, _MOST // 4))))
        k_tiles = rng.choice((1, 2, rng.randint(1, 40)))
        k_tiles = min(k_tiles, _MOST // n_tiles, config.buffer_lines)
        most = min(_MOST // n_tiles, _MOST // k_tiles, config.accumulator_rows // n_tiles)
        rows = rng.randint(1, max(1, min(most, config.buffer_lines // max(k_tiles, n_tiles))))
        line = self._place(config.buffer_lines, rows * k_tiles)
        row = self._place(config.accumulator_rows, rows * n_tiles)
        tiles = k_tiles * n_tiles
        self._read(line, rows * k_tiles, 1)
        self.emit(Opcode.READ_WEIGHTS, tile=rng.randint(0, _TILES - tiles), count=tiles)
        self.emit(
            Opcode.MATRIX_MULTIPLY,
            **{"buffer": line, "accumulator": row, "rows": rows},
            **{"k_tiles": k_tiles, "n_tiles": n_tiles},
        )
        self._activate(row, rows, n_tiles)

    def _activate(self, row: int, rows: int, n_tiles: int) -> None:
        parameter = self._parameters(n_tiles)
        result = self._place(self._config.buffer_lines, rows * n_tiles)
        self.emit(
            Opcode.ACTIVATE,
            **{"accumulator": row, "buffer": result, "rows": rows, "n_tiles": n_tiles},
            parameter=parameter,
        )
        self._show(result, rows * n_tiles)

    def vector(self) -> None:
        """Write a Vector instruction over many vectors of both operands."""
        rng, config = self._rng, self._config
        wide = int(config.wide and rng.random() < 0.5)
        rows = rng.randint(1, min(_MOST, config.buffer_lines // 3) >> wide)
        lines = rows << wide
        line = self._place(config.buffer_lines, 3 * lines)
        self._read(line, 2 * lines, 1)
        scale = {f"multiplier_{operand}": rng.getrandbits(31) for operand in "ab"}
        self.emit(Opcode.SET_CONFIG_SCALE, **scale, shift_a=1)
        self.emit(
            Opcode.VECTOR,
            operation=rng.choice(list(Operation)),
            **{"buffer": line, "operand": line + lines, "destination": line + 2 * lines},
            **{"rows": rows, "parameter": self._parameters(1)},
            **{"wide_operands": wide, "wide": wide},
        )
        self._show(line + 2 * lines, lines)

    def window(self) -> None:
        """Write a Pool or Convolve with few windows on a large map.

        Only the map's lines that the windows need are written before.
        """
        rng, config = self._rng, self._config
        blocks = rng.randint(1, 2)
        window = self._large_window(config.buffer_lines // (2 * blocks) - 16)
        inside = set[int]()
        for i in range(window.kernel_height):
            for j in range(window.kernel_width):
                lines, within = window.tap_lines(i, j)
                inside |= set(lines[within].tolist())
        extent = blocks * window.map_lines
        low = rng.random() < 0.5
        line = rng.choice((0, config.buffer_lines // 2 - extent)) if low else 0
        result = rng.randint(config.buffer_lines // 2, config.buffer_lines - 64)
        if not low:
            line, result = config.buffer_lines - extent, rng.randint(0, 64)
        for place in sorted(inside):
            for block in range(blocks):
                self._read(line + block * window.map_lines + place, 1, 1)
        self.emit(Opcode.SET_CONFIG_WINDOW, **vars(window))
        if rng.random() < 0.5:
            self.emit(
                Opcode.POOL,
                **{"buffer": line, "destination": result, "blocks": blocks},
                **{"parameter": self._parameters(window.taps)},
                **{"reduction": rng.choice(list(Reduction)), "floor": -128, "ceiling": 127},
            )
            self._show(result, blocks * window.windows)
            return
        tiles = window.taps * blocks
        row = self._place(config.accumulator_rows, window.windows)
        self.emit(Opcode.READ_WEIGHTS, tile=rng.randint(0, _TILES - tiles), count=tiles)
        self.emit(
            Opcode.CONVOLVE,
            **{"buffer": line, "accumulator": row, "plane": window.map_lines},
            **{"k_tiles": blocks, "n_tiles": 1, "fill": rng.randint(-128, 127)},
        )
        self._activate(row, window.windows, 1)

    def _large_window(self, lines: int) -> Window:
        """Return random window settings for a map of at most `lines` lines."""
        rng = self._rng
        highest = min(12, lines.bit_length() - 1)
        height = rng.getrandbits(rng.choice((highest, rng.randint(1, highest)))) or 1
        width = min(4095, max(1, rng.randint(lines // height // 2, lines // height)))
        shape = {"height": height, "width": width, "pitch": width}
        if rng.random() < 0.3:
            # Choose a row of windows across the map and beyond it, in the largest steps.
            step = min(255, width)
            return Window(
                **shape,
                **{"kernel_height": 1, "kernel_width": 1, "stride_y": 1, "stride_x": step},
                **{"dilation_y": 1, "dilation_x": 1, "out_height": 1},
                top=rng.randrange(min(2048, height)),
                left=rng.randrange(min(128, width)),
                out_width=width // step + 1,
            )
        # Choose several taps and windows, or large steps, so that most taps are in the map.
        return Window(
            **shape,
            kernel_height=rng.randint(1, 2),
            kernel_width=rng.randint(1, 2),
            stride_y=rng.choice((1, rng.randint(1, min(255, height)))),
            stride_x=rng.choice((1, rng.randint(1, min(255, width)))),
            dilation_y=rng.choice((1, rng.randint(1, min(15, height)))),
            dilation_x=rng.choice((1, rng.randint(1, min(15, width)))),
            top=min(2047, rng.choice((-1, rng.randrange(height), height - 1))),
            left=rng.choice((-1, rng.randrange(min(128, width)))),
            out_height=rng.randint(1, 3),
            out_width=rng.randint(1, 3),
        )

    def all_units(self, rows: int) -> None:
        """Write instructions of all units on `rows` lines.

        The instructions copy lines in, multiply, activate, and copy results in the buffer and out.
        """
        self._read(0, rows, 1)
        self.emit(Opcode.READ_WEIGHTS, tile=0, count=1)
        self.emit(
            Opcode.MATRIX_MULTIPLY,
            **{"buffer": 0, "accumulator": 0, "rows": rows, "k_tiles": 1, "n_tiles": 1},
        )
        parameter = self._parameters(1)
        self.emit(
            Opcode.ACTIVATE,
            **{"accumulator": 0, "buffer": rows, "rows": rows, "n_tiles": 1},
            parameter=parameter,
        )
        self.emit(Opcode.SET_CONFIG_SCALE, multiplier_a=1 << 30)
        self.emit(
            Opcode.VECTOR,
            operation=Operation.COPY,
            **{"buffer": rows, "operand": 0, "destination": 2 * rows, "rows": rows},
            parameter=parameter,
        )
        self._show(2 * rows, rows)

    def tags(self) -> None:
        """Write more Debug_Tags than the trace holds."""
        for _ in range(70):
            self.emit(Opcode.DEBUG_TAG, tag=self._rng.getrandbits(16))

    def _place(self, size: int, used: int) -> int:
        """Return the first of `used` cells of a memory of `size` cells, often at one of its
        ends.
        """
        last = size - used
        return self._rng.choice((0, last, self._rng.randint(0, last)))

    def _read(self, line: int, rows: int, blocks: int) -> None:
        config = self._config
        gap = self._rng.choice((0, 0, config.host_bus_bytes))
        stride = blocks * config.input_pitch + gap
        # If the rows do not fit in the data with this stride, a small stride lets the rows overlap.
        if (rows - 1) * stride + blocks * config.input_pitch > _HALF:
            stride = config.host_bus_bytes
        opcode = self._rng.choice((Opcode.READ_HOST_MEMORY, Opcode.READ_HOST_MEMORY_ALTERNATE))
        extent = (rows - 1) * stride + blocks * config.input_pitch
        self.emit(
            opcode,
            host=_DATA + self._rng.randint(0, _HALF - extent) // 64 * 64,
            **{"buffer": line, "rows": rows, "stride": stride, "blocks": blocks},
            tail=self._rng.randint(1, config.rows),
        )

    def _parameters(self, count: int) -> int:
        """Load `count` parameter entries, and return the number of the first loaded entry."""
        size = PARAMETER_PLANES * self._config.output_pitch
        place = self._place(self._config.parameter_entries, count)
        host = _PARAMETERS + self._rng.randint(0, self._entries - count) * size
        self.emit(Opcode.LOAD_PARAMETERS, host=host, parameter=place, count=count)
        return place

    def _show(self, line: int, lines: int) -> None:
        """Copy lines to host memory, after all lines that were copied there before."""
        self.emit(
            self._rng.choice((Opcode.WRITE_HOST_MEMORY, Opcode.WRITE_HOST_MEMORY_ALTERNATE)),
            **lines_out(self._config, host=self._shown, line=line, rows=lines),
        )
        self._shown += lines * self._config.output_pitch
        assert self._shown <= _PAGES * HOST_PAGE_BYTES
