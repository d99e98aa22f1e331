# SPDX-License-Identifier: Apache-2.0
"""Programs of windows that meet an edge of a map which fills half of a memory or more.

The machine compares the place of each tap with the height and width of the map. In some program,
every bit of the height and of the width decides a comparison. Some maps are so large that the
distances between rows of windows have their highest bits set.
"""

from __future__ import annotations

import random

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import Opcode, encode
from systola.golden.window import Window
from systola.verif.kit.copies import lines_in, lines_out
from systola.verif.kit.images import make_image, random_tiles
from systola.verif.kit.window_uses import memory_with_entry, set_window, window_uses

_TAPS = 2
_RESULTS = 4
_MOST = 4090
"""Largest width of a map in pixels.

A row of windows that goes beyond the map's right edge then still fits in operand out_width.
"""
_STRIDE = 255
_PARAMETERS, _OUTPUT, _DATA = (HOST_PAGE_BYTES * page for page in (1, 2, 4))


def height_bits(config: Config) -> int:
    """Return the number of bits of the heights that `lower_edge_program` can make."""
    return (_room(config) // _least_pitch(config)).bit_length() - 1


def lower_edge_program(config: Config, seed: str, bit: int, value: int) -> Image:
    """Make a program with two rows of windows, at least half of the buffer apart.

    The second row of windows has one tap in the map's last row, and one tap below the map. Bit
    `bit` of the map's height is `value`. The program has each instruction that uses a window.
    """
    rng = random.Random(f"{config.name} {seed}")
    data = np.random.default_rng(rng.getrandbits(64))
    host = memory_with_entry(config, data, 6, _PARAMETERS)
    room = _room(config)
    taps, results = room, room + _TAPS
    height = pitch = stride = 0
    while (height >> bit) & 1 != value or stride >= height:
        pitch = rng.randint(_least_pitch(config), min(_MOST, room // max(3, (1 << bit) + 1)))
        stride = rng.randint(-(-config.buffer_lines // (2 * pitch)), _STRIDE)
        height = rng.randint(1, room // pitch)
    window = Window(
        **{"height": height, "width": 1, "pitch": pitch, "kernel_height": 2, "kernel_width": 1},
        **{"stride_y": stride, "stride_x": 1, "dilation_y": 1, "dilation_x": 1},
        **{"top": height - 1 - stride, "left": 0, "out_height": 2, "out_width": 1},
    )
    place = rng.choice((0, room - window.map_lines))
    words = [
        encode(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=0, count=1),
        encode(Opcode.READ_HOST_MEMORY, **lines_in(config, host=_DATA, line=taps, rows=_TAPS)),
    ]
    for row in {window.top, window.top + 1, height - 1}:
        start = _DATA + rng.randrange(1, 64) * 64
        copy = lines_in(config, host=start, line=place + row * pitch, rows=1)
        words.append(encode(Opcode.READ_HOST_MEMORY, **copy))
    words += set_window(window)
    fill = rng.randint(1, 127)
    shown = _OUTPUT
    for use in window_uses(config, window, place=place, taps=taps, results=results, fill=fill):
        copy = lines_out(config, host=shown, line=results, rows=window.windows)
        words += [*use, encode(Opcode.WRITE_HOST_MEMORY, **copy)]
        shown += _RESULTS * config.output_pitch
    words.append(encode(Opcode.HALT))
    return make_image(words, host=host, weights=random_tiles(data, config, window.taps))


def width_bits(config: Config) -> int:
    """Return the number of bits of the widths in bytes that `right_edge_program` can make."""
    return _most_bytes(config).bit_length()


def right_edge_program(config: Config, seed: str, bit: int, value: int) -> Image:
    """Make a program with a row of windows over packed channels, and show the last results.

    The windows begin at the left edge of the map and go beyond its right edge. The map is one row
    of pixels. In the size of the row in bytes, the highest possible bit is 1, and bit `bit` is
    `value`.
    """
    rng = random.Random(f"{config.name} {seed}")
    data = np.random.default_rng(rng.getrandbits(64))
    least = 1 << width_bits(config) - 1
    size = channels = pixels = width = 0
    out = config.accumulator_rows + 1
    while (
        not least <= size <= _most_bytes(config)
        or (size >> bit) & 1 != value
        or out > config.accumulator_rows
    ):
        channels, width = rng.randint(1, min(config.rows, 255)), rng.randint(1, _MOST)
        size, pixels = channels * width, config.rows // channels
        out = width // pixels + 2
    pitch = -(-size // config.rows)
    pages = _DATA // HOST_PAGE_BYTES + 1 + -(-(pitch + 1) * config.input_pitch // HOST_PAGE_BYTES)
    host = memory_with_entry(config, data, pages, _PARAMETERS)
    window = Window(
        **{"height": 1, "width": width, "pitch": pitch},
        **{"kernel_height": 1, "kernel_width": pixels, "stride_y": 1, "stride_x": pixels},
        **{"dilation_y": 1, "dilation_x": 1, "top": 0, "left": 0},
        **{"out_height": 1, "out_width": out},
    )
    last = {"accumulator": out - _RESULTS, "rows": _RESULTS, "n_tiles": 1}
    words = [
        encode(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=0, count=1),
        encode(Opcode.READ_HOST_MEMORY, **lines_in(config, host=_DATA, line=0, rows=pitch + 1)),
        encode(Opcode.SET_CONFIG_WINDOW, **vars(window)),
        encode(Opcode.READ_WEIGHTS, tile=0, count=1),
        encode(
            Opcode.CONVOLVE,
            **{"buffer": 0, "accumulator": 0, "plane": 0, "k_tiles": 1, "n_tiles": 1},
            **{"fill": rng.randint(1, 127), "channels": channels},
        ),
        encode(Opcode.ACTIVATE, buffer=pitch + 1, parameter=0, **last),
        encode(
            Opcode.WRITE_HOST_MEMORY,
            **lines_out(config, host=_OUTPUT, line=pitch + 1, rows=_RESULTS),
        ),
        encode(Opcode.HALT),
    ]
    return make_image(words, host=host, weights=random_tiles(data, config, 1))


def _room(config: Config) -> int:
    """Return the number of buffer lines that are free for a map."""
    return config.buffer_lines - _TAPS - _RESULTS


def _least_pitch(config: Config) -> int:
    """Return the least pitch in lines with which rows of windows can be half a buffer apart."""
    return -(-config.buffer_lines // (2 * _STRIDE))


def _most_bytes(config: Config) -> int:
    """Return the largest size of a row of packed pixels in bytes, with room for all results."""
    most = min(_MOST, config.buffer_lines - 1 - _RESULTS, config.accumulator_rows - _RESULTS)
    return config.rows * most
