# SPDX-License-Identifier: Apache-2.0
"""Generated programs of windows that reach far over a feature map.

Only the map's lines that the windows use are filled, so the map may be large. Then the distances
from tap to tap, and from row to row, can have any bits set. The windows still end inside the map.
"""

from __future__ import annotations

import random

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import BY_OPCODE, Opcode, encode
from systola.golden.window import Window
from systola.verif.kit.copies import lines_in, lines_out
from systola.verif.kit.images import make_image, random_tiles
from systola.verif.kit.window_uses import memory_with_entry, set_window, window_uses

_WINDOWS = 8
_WIDTH = 8
"""The largest number of lines that are filled in a row of the map."""
_TAPS = 4
_RESULTS = 4
_DATA, _PARAMETERS, _OUTPUT = (HOST_PAGE_BYTES * page for page in (2, 3, 5))


def sparse_program(config: Config, seed: str) -> Image:
    """Make a program that uses several windows, each in all instructions that have a window.

    The program copies the results to host memory.
    """
    rng = random.Random(f"{config.name} {seed}")
    data = np.random.default_rng(rng.getrandbits(64))
    host = memory_with_entry(config, data, 6, _PARAMETERS)
    words = [encode(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=0, count=1)]
    shown = _OUTPUT
    room = config.buffer_lines - _TAPS - _RESULTS
    taps, results = room, room + _TAPS

    def read(line: int, rows: int) -> None:
        bus = config.host_bus_bytes
        start = _DATA + rng.randrange(0, HOST_PAGE_BYTES // 2, bus)
        copy = lines_in(config, host=start, line=line, rows=rows)
        words.append(encode(Opcode.READ_HOST_MEMORY, **copy))

    read(taps, _TAPS)
    for _ in range(_WINDOWS):
        window = _window(rng, room)
        place = rng.choice((0, room - window.map_lines))
        for y in sorted(_rows(window)):
            read(place + y * window.pitch, window.width)
        words += set_window(window)
        for use in window_uses(config, window, place=place, taps=taps, results=results):
            copy = lines_out(config, host=shown, line=results, rows=window.windows)
            words += [*use, encode(Opcode.WRITE_HOST_MEMORY, **copy)]
            shown += _RESULTS * config.output_pitch
    words.append(encode(Opcode.HALT))
    assert len(b"".join(words)) <= _DATA and shown <= host.size
    return make_image(words, host=host, weights=random_tiles(data, config, _TAPS))


def _window(rng: random.Random, lines: int) -> Window:
    """Return random window settings: two rows of windows, with two rows of taps in each window.

    The map has at most `lines` lines.
    """

    def number(most: int) -> int:
        return rng.choice((most, rng.randint(1, most), rng.randint(1, min(most, 15))))

    def largest(name: str) -> int:
        return (1 << BY_OPCODE[Opcode.SET_CONFIG_WINDOW].field(name).width) - 1

    pitch = number(min(largest("pitch"), lines // 3))
    rows = lines // pitch - 1
    dilation = number(min(largest("dilation_y"), rows - 1))
    stride = number(min(largest("stride_y"), rows - dilation))
    width = min(_WIDTH, pitch)
    kernel, out = rng.choice(((2, 2), (2, 1), (1, 2))) if width == _WIDTH else (1, 1)
    return Window(
        **{"height": dilation + stride + 1, "width": width, "pitch": pitch},
        **{"kernel_height": 2, "kernel_width": kernel, "out_height": 2, "out_width": out},
        **{"stride_y": stride, "stride_x": rng.randint(1, 3)},
        **{"dilation_y": dilation, "dilation_x": rng.randint(1, 3)},
        **{"top": 0, "left": 0},
    )


def _rows(window: Window) -> set[int]:
    """Return the numbers of the map's rows with a tap, counted from 0 at the top."""
    return {
        window.stride_y * row + window.dilation_y * tap
        for row in range(window.out_height)
        for tap in range(window.kernel_height)
    }
