# SPDX-License-Identifier: Apache-2.0
"""Generated programs of windows that reach beyond the map, to lines that are still written.

A tap outside the map reads nothing, so it waits for no write, even if its address would be among
lines that are being written. Only the timing shows a needless wait. So the lines beside the map are
written last in each program, after other writes that fill the lists of instructions under way.
"""

from __future__ import annotations

import random

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import Opcode, Operation, encode
from systola.golden.window import Window
from systola.verif.kit.copies import lines_in, lines_out
from systola.verif.kit.images import make_image, random_tiles
from systola.verif.kit.window_uses import memory_with_entry, set_window, window_uses

_WINDOWS = 12
_TAPS = 4
_SPARE = 40
"""The number of lines beside the map, on each of its two sides."""
_DATA, _PARAMETERS, _OUTPUT = (HOST_PAGE_BYTES * page for page in (3, 4, 5))


def padding_program(config: Config, seed: str) -> Image:
    """Make a program of windows that reach beyond their map, of all instructions with windows."""
    rng = random.Random(f"{config.name} {seed}")
    data = np.random.default_rng(rng.getrandbits(64))
    host = memory_with_entry(config, data, 8, _PARAMETERS)
    writer = _Writer(config, rng)
    for number in range(_WINDOWS):
        writer.window(number)
    writer.words.append(encode(Opcode.HALT))
    assert len(b"".join(writer.words)) <= _DATA and writer.shown <= host.size
    return make_image(writer.words, host=host, weights=random_tiles(data, config, _TAPS))


class _Writer:
    def __init__(self, config: Config, rng: random.Random) -> None:
        self._config, self._rng = config, rng
        # The buffer holds, from line 0 on: taps, other lines, the map with lines on both its sides,
        # and results.
        self._others = _TAPS
        self._before = self._others + _SPARE
        self._results = self._before + 4 * _SPARE
        self.shown = _OUTPUT
        self.words = [
            encode(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=0, count=1),
            encode(Opcode.SET_CONFIG_SCALE, multiplier_a=1 << 30),
        ]
        self._read(0, self._results)

    def window(self, number: int) -> None:
        """Write an instruction with a window, after a write to the lines just above or below the
        map.
        """
        rng = self._rng
        pitch = rng.randint(8, _SPARE // 2)
        height = rng.randint(2, 3)
        place = self._before + _SPARE
        above = rng.random() < 0.7
        shape = {"height": height, "width": pitch, "pitch": pitch, "kernel_width": 1}
        window = Window(
            **shape,
            **{"kernel_height": 2, "stride_y": 1, "stride_x": 1, "dilation_x": 1},
            **{"dilation_y": 1, "top": -1 if above else height - 1, "left": 0},
            **{"out_height": 1, "out_width": pitch},
        )
        self.words += set_window(window)
        uses = window_uses(
            self._config,
            window,
            **{"place": place, "taps": 0, "results": self._results},
            fill=rng.randint(-128, 127),
        )
        write = rng.choice((self._read, self._read, self._copy))
        for _ in range(rng.randint(0, self._config.queue_depth)):
            write(self._others, rng.randint(4, _SPARE))
        # The last write covers the map's first row and a row above, or the last row and one below.
        edge = place - pitch if above else place + (height - 1) * pitch
        write(edge, 2 * pitch)
        self.words += uses[number % len(uses)]
        copy = lines_out(self._config, host=self.shown, line=self._results, rows=window.windows)
        self.words.append(encode(Opcode.WRITE_HOST_MEMORY, **copy))
        self.shown += window.windows * self._config.output_pitch

    def _read(self, line: int, rows: int) -> None:
        start = _DATA + self._rng.randrange(64) * self._config.host_bus_bytes
        copy = lines_in(self._config, host=start, line=line, rows=rows)
        self.words.append(encode(Opcode.READ_HOST_MEMORY, **copy))

    def _copy(self, line: int, rows: int) -> None:
        lines = {"buffer": self._others, "operand": 0, "destination": line, "rows": rows}
        if line == self._others:
            lines["buffer"] = self._results - rows
        self.words.append(encode(Opcode.VECTOR, operation=Operation.COPY, parameter=0, **lines))
