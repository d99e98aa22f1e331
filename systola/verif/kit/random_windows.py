# SPDX-License-Identifier: Apache-2.0
"""Random convolution windows on small feature maps, at all their edges and wholly beside them."""

from __future__ import annotations

import random

from systola.golden.window import Window

_SIDE = 6
_OUT = 5


def pixel_window(rng: random.Random) -> Window:
    """Return a random window on a feature map that has a buffer line for each pixel."""
    width = rng.randint(1, _SIDE)
    kernel = rng.choice(((1, 1), (2, 2), (3, 3), (rng.randint(1, 3), rng.randint(1, 5))))
    return _window(rng, width=width, pitch=width + rng.choice((0, 0, 1, 3)), kernel=kernel)


def packed_window(rng: random.Random, size: int, channels: int) -> Window:
    """Return a random window on a feature map with several pixels in a line.

    A line has `size` bytes, a pixel `channels` bytes. The window's operands are often the largest
    or smallest that Convolve accepts.
    """
    width = rng.randint(1, 2 * _SIDE)
    most = max(1, size // channels)
    window = _window(
        rng,
        width=width,
        pitch=-(-width * channels // size) + rng.choice((0, 0, 1, 3)),
        kernel=(rng.randint(1, 4), rng.choice((most, rng.randint(1, most)))),
    )
    changes = {
        "stride_x": rng.choice((most, rng.randint(1, most))),
        "dilation_x": 1,
        "left": rng.choice((0, -most, (size - 1) // channels, rng.randint(-most, most - 1))),
    }
    return Window(**{**vars(window), **changes})


def fits_packed(window: Window, size: int, channels: int) -> bool:
    """Return whether Convolve accepts a window on packed channels.

    Each row of the map has to fit in `pitch` lines, too.
    """
    return (
        window.dilation_x == 1
        and window.kernel_width * channels <= size
        and window.stride_x * channels <= size
        and -size <= window.left * channels < size
        and window.width * channels <= window.pitch * size
    )


def _window(rng: random.Random, *, width: int, pitch: int, kernel: tuple[int, int]) -> Window:
    """Return a random window of a size that networks use.

    Now and then the window has extreme values, which are legal but which no network uses.
    """
    height = rng.randint(1, _SIDE)
    wild = rng.random() < 0.1

    def start(extent: int, bits: int) -> int:
        if wild:
            return rng.choice((rng.randint(-(1 << bits), (1 << bits) - 1), -rng.randint(1, 40)))
        return rng.choice((0, 0, -1, -rng.randint(1, 4), rng.randint(0, extent)))

    return Window(
        height=height,
        width=width,
        pitch=pitch,
        kernel_height=kernel[0],
        kernel_width=kernel[1],
        stride_y=rng.randint(1, 255) if wild else rng.choice((1, 1, 2, 3)),
        stride_x=rng.randint(1, 255) if wild else rng.choice((1, 1, 2, 3)),
        dilation_y=rng.randint(1, 15) if wild else rng.choice((1, 1, 2, 3)),
        dilation_x=rng.randint(1, 15) if wild else rng.choice((1, 1, 2, 3)),
        top=start(height, 11),
        left=start(width, 7),
        out_height=rng.randint(1, _OUT),
        out_width=rng.randint(1, _OUT),
    )
