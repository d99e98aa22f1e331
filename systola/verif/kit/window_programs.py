# SPDX-License-Identifier: Apache-2.0
"""Generated programs of windows with operands of every size, on a feature map of few lines.

Kernels, steps and results reach far beyond the map, so that most of the taps are outside. Each tap
outside still takes a weight tile or a cycle, and must not be mistaken for a tap inside.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import PARAMETER_PLANES, Opcode, Reduction, encode
from systola.golden.window import Window
from systola.verif.kit.copies import lines_out
from systola.verif.kit.images import (
    make_image,
    random_memory,
    random_tiles,
    varied_parameter_entry,
)

_PAGES = 32
_LINES = 1024
"""The largest number of lines of a map, and of results."""
_WORK = 3000
"""The largest number of taps of all windows of an instruction together."""
_TILES = 1024
_DATA, _PARAMETERS, _OUTPUT = (HOST_PAGE_BYTES * page for page in (2, 6, 16))


def window_program(config: Config, seed: str) -> Image:
    """Make a program with two kinds of Convolve and a Pool, and copy the results to host memory."""
    rng = random.Random(f"{config.name} {seed}")
    data = np.random.default_rng(rng.getrandbits(64))
    host = random_memory(data, _PAGES)
    size = PARAMETER_PLANES * config.output_pitch
    count = min(config.parameter_entries, (_OUTPUT - _PARAMETERS) // size)
    entries = [varied_parameter_entry(data, config) for _ in range(count)]
    host[_PARAMETERS:][: count * size] = np.concatenate(entries)
    writer = _Writer(config, rng, count)
    writer.begin()
    for kind in (writer.convolve, writer.packed, writer.pool):
        kind()
    writer.emit(Opcode.HALT)
    assert len(b"".join(writer.words)) <= _DATA
    return make_image(writer.words, host=host, weights=random_tiles(data, config, _TILES))


class _Writer:
    def __init__(self, config: Config, rng: random.Random, entries: int) -> None:
        self._config, self._rng = config, rng
        self._entries = entries
        self._most = min(_LINES, config.buffer_lines // 2, config.accumulator_rows)
        spare = config.buffer_lines - 2 * self._most
        self._map, self._results = rng.choice(
            ((0, spare + self._most), (spare, spare + self._most), (self._most, 0))
        )
        self._parameter = rng.choice((0, config.parameter_entries - entries))
        self._shown = _OUTPUT
        self.words: list[bytes] = []

    def emit(self, opcode: Opcode, **operands: int) -> None:
        """Append an instruction to the program."""
        self.words.append(encode(opcode, **operands))

    def begin(self) -> None:
        """Write instructions that fill all lines that a map may use, and load the parameters."""
        config = self._config
        self.emit(
            Opcode.READ_HOST_MEMORY,
            **{"host": _DATA, "buffer": self._map, "rows": self._most},
            **{"stride": config.host_bus_bytes, "blocks": 1, "tail": config.rows},
        )
        self.emit(
            Opcode.LOAD_PARAMETERS,
            **{"host": _PARAMETERS, "parameter": self._parameter, "count": self._entries},
        )

    def convolve(self) -> None:
        """Write a Convolve on a map with a line for each pixel, perhaps in several blocks of
        channels.
        """
        window = self._window(self._most)
        room = self._most // window.map_lines
        blocks = min(self._number(room), _TILES // window.taps) or 1
        n_tiles = max(1, min(self._number(8), _TILES // (window.taps * blocks)))
        n_tiles = min(n_tiles, self._most // window.windows)
        plane = self._rng.randint(0, (self._most - window.map_lines) // max(1, blocks - 1))
        self._convolve(window, blocks * window.taps, n_tiles, plane=plane, k_tiles=blocks)

    def packed(self) -> None:
        """Write a Convolve with several pixels to a line, and windows up to the end of the map's
        row.
        """
        rng, config = self._rng, self._config
        channels = rng.randint(1, min(config.rows, 255))
        window = self._window(self._most)
        most = config.rows // channels
        width = self._number(min(4095, self._most * config.rows // channels))
        pitch = -(-width * channels // config.rows)
        height = min(window.height, self._most // pitch)
        stride_x = rng.randint(1, min(most, 255))
        # Let some windows begin after the end of the row.
        out_width = min(4095, self._most, width // stride_x + rng.randint(1, 3))
        out_height = max(1, min(window.out_height, self._most // out_width, _WORK // out_width))
        window = replace(
            window,
            **{"height": height, "width": width, "pitch": pitch},
            **{"kernel_width": rng.randint(1, min(most, 255)), "dilation_x": 1},
            **{"stride_x": stride_x, "out_width": out_width, "out_height": out_height},
            kernel_height=max(1, min(window.kernel_height, _WORK // (out_width * out_height))),
            left=rng.randint(-min(most, 128), min(127, (config.rows - 1) // channels)),
        )
        self._convolve(window, window.kernel_height, 1, plane=0, k_tiles=1, channels=channels)

    def _convolve(self, window: Window, tiles: int, n_tiles: int, **operands: int) -> None:
        rng, config = self._rng, self._config
        rows = window.windows * n_tiles
        row = rng.choice((0, config.accumulator_rows - rows))
        count = tiles * n_tiles
        self.emit(Opcode.SET_CONFIG_WINDOW, **vars(window))
        self.emit(Opcode.READ_WEIGHTS, tile=rng.randint(0, _TILES - count), count=count)
        self.emit(
            Opcode.CONVOLVE,
            **{"buffer": self._map, "accumulator": row, "n_tiles": n_tiles},
            fill=rng.randint(-128, 127),
            **operands,
        )
        self.emit(
            Opcode.ACTIVATE,
            **{"accumulator": row, "buffer": self._results, "rows": window.windows},
            n_tiles=n_tiles,
            parameter=self._parameter + rng.randint(0, self._entries - n_tiles),
        )
        self._show(rows)

    def pool(self) -> None:
        """Write a Pool of sums, or of averages if there is an entry for each number of taps."""
        rng = self._rng
        window = self._window(self._most)
        blocks = min(self._number(self._most // window.map_lines), self._most // window.windows)
        blocks = max(1, min(blocks, _WORK // (window.taps * window.windows)))
        average = window.taps <= self._entries
        entries = window.taps if average else 1
        self.emit(Opcode.SET_CONFIG_WINDOW, **vars(window))
        self.emit(
            Opcode.POOL,
            **{"buffer": self._map, "destination": self._results, "blocks": blocks},
            parameter=self._parameter + rng.randint(0, self._entries - entries),
            reduction=Reduction.AVERAGE if average else Reduction.SUM,
        )
        self._show(window.windows * blocks)

    def _number(self, most: int) -> int:
        """Return a random number from 1 to `most`, of a width in bits that is chosen first.

        The number `most` itself is chosen twice as often as each width.
        """
        bits = self._rng.randint(1, most.bit_length() + 2)
        if bits > most.bit_length():
            return max(1, most)
        return max(1, min(most, self._rng.getrandbits(bits)))

    def _window(self, lines: int) -> Window:
        """Return random window settings for a map of at most `lines` lines."""
        rng = self._rng
        pitch = self._number(min(4095, lines))
        height = self._number(min(4095, lines // pitch))
        most = _WORK
        sizes: list[int] = []
        for limit in rng.sample((255, 255, 4095, 4095), 4):
            sizes.append(self._number(min(limit, most)))
            most //= sizes[-1]
        kernel = [size for size in sizes if size <= 255][:2]
        for size in kernel:
            sizes.remove(size)
        kernel += [1] * (2 - len(kernel))
        out_height, out_width = ([*sizes, 1, 1])[:2]
        while kernel[0] * kernel[1] > _TILES:
            kernel[0] //= 2
        while out_height * out_width > self._most:
            out_height, out_width = -(-out_height // 2), -(-out_width // 2)
        dilations = [rng.choice((1, rng.randint(1, 15))) for _ in range(2)]
        strides = [self._number(255) for _ in range(2)]
        # At least one tap of one window begins inside the map.
        top = rng.randrange(height)
        top -= rng.choice((0, strides[0] * rng.randrange(out_height)))
        top -= rng.choice((0, dilations[0] * rng.randrange(kernel[0])))
        width = rng.choice((pitch, self._number(pitch)))
        left = rng.randrange(width)
        left -= rng.choice((0, strides[1] * rng.randrange(out_width)))
        left -= rng.choice((0, dilations[1] * rng.randrange(kernel[1])))
        return Window(
            **{"height": height, "width": width, "pitch": pitch},
            **{"kernel_height": kernel[0], "kernel_width": kernel[1]},
            **{"stride_y": strides[0], "stride_x": strides[1]},
            **{"dilation_y": dilations[0], "dilation_x": dilations[1]},
            **{"top": min(2047, max(-2048, top)), "left": min(127, max(-128, left))},
            **{"out_height": out_height, "out_width": out_width},
        )

    def _show(self, lines: int) -> None:
        """Copy results to host memory, after all results that were copied there before."""
        copy = lines_out(self._config, host=self._shown, line=self._results, rows=lines)
        self.emit(Opcode.WRITE_HOST_MEMORY, **copy)
        self._shown += lines * self._config.output_pitch
        assert self._shown <= _PAGES * HOST_PAGE_BYTES
