# SPDX-License-Identifier: Apache-2.0
"""Moves lines of maps into other orders: taps of windows, zeros between pixels, flattened maps.

An instruction Pool with one tap moves lines within the buffer, and leaves zeros for pixels outside
the map. For other orders, lines are written to host memory with gaps between them, and read again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from systola.arch.isa import Function, Opcode, Operation, Reduction, Rounding
from systola.training.numbers import multiplier
from systola.training.task import SHIFT, SPARE, Exponent
from systola.training.windows import Window
from systola.training.writer import NARROW, NARROWING, ONE, WIDE, Entry, Writer, shifted

_MOST_MAPS = 4095
"""Largest number of maps of one Pool instruction."""
_HALF_RANGE = 1 << 6
"""High byte of the int16 number 2^14; the low byte is zero."""


def tap(
    writer: Writer, source: int, target: int, maps: int, window: Window, place: tuple[int, int]
) -> None:
    """Write the pixel under one tap of each window, for `maps` maps one after the other."""
    top, left = (at - before for at, before in zip(place, window.before, strict=True))
    _pool(writer, source, target, maps, window, (1, 1), (top, left), Reduction.SUM)


def largest(writer: Writer, source: int, target: int, maps: int, window: Window) -> None:
    """Write the largest number of each window, for `maps` maps one after the other."""
    _pool(writer, source, target, maps, window, window.kernel, (0, 0), Reduction.MAX)


def means(writer: Writer, source: int, target: int, maps: int, window: Window) -> None:
    """Write the mean of each window, halves rounded upwards, for `maps` maps one after the
    other.
    """
    entry = mean_entry(window)
    _pool(writer, source, target, maps, window, window.kernel, (0, 0), Reduction.SUM, entry)


def mean_entry(window: Window) -> Entry:
    """Return the parameter entry that divides the sum of a window by its number of taps."""
    q, right = multiplier(1 / window.taps)
    return shifted(right, multiplier=q)


def _pool(
    writer: Writer,
    source: int,
    target: int,
    maps: int,
    window: Window,
    kernel: tuple[int, int],
    first: tuple[int, int],
    reduction: Reduction,
    entry: Entry = ONE,
) -> None:
    (height, width), (out_height, out_width) = window.map, window.out
    writer.emit(
        Opcode.SET_CONFIG_WINDOW,
        **{"height": height, "width": width, "pitch": width},
        **{"kernel_height": kernel[0], "kernel_width": kernel[1]},
        **{"stride_y": window.stride[0], "stride_x": window.stride[1]},
        **{"dilation_y": 1, "dilation_x": 1, "top": first[0], "left": first[1]},
        **{"out_height": out_height, "out_width": out_width},
    )
    for done in range(0, maps, _MOST_MAPS):
        writer.emit(
            Opcode.POOL,
            **{"buffer": source + done * height * width, "blocks": min(_MOST_MAPS, maps - done)},
            **{"destination": target + done * out_height * out_width},
            **{"parameter": writer.entry(entry), "reduction": reduction},
            rounding=Rounding.SINGLE,
        )


def spread(
    writer: Writer,
    parts: Sequence[tuple[tuple[int, int], range]],
    target: range,
    window: Window,
    hosts: tuple[int, int],
) -> None:
    """Put the pixels of taps back into whole maps: the reverse of `tap`.

    `parts`: for each tap its row and column in the window, and its lines. The windows lie side by
    side, from the first pixel on. `hosts`: two places in host memory with as many lines as the
    maps. Pixels that belong to none of these taps keep the numbers that `hosts` held before.
    """
    pitch, size = writer.layout.pitch, writer.config.cols
    (apart, beside), width = window.stride, window.out[1]
    rows = len(parts[0][1]) // width
    lines = rows * width * beside
    for row in range(apart):
        here = [(place[1], part) for place, part in parts if place[0] == row]
        if not here:
            continue
        for column, part in here:
            writer.emit(
                Opcode.WRITE_HOST_MEMORY,
                **{"host": hosts[0] + column * pitch, "buffer": part.start, "rows": len(part)},
                **{"stride": beside * pitch, "blocks": 1, "tail": size},
            )
        whole = writer.allocate(lines)
        writer.read(hosts[0], whole)
        across = width * beside
        writer.emit(
            Opcode.WRITE_HOST_MEMORY_ALTERNATE,
            **{"host": hosts[1] + row * across * pitch, "buffer": whole.start, "rows": rows},
            **{"stride": apart * across * pitch, "blocks": across, "tail": size},
        )
        writer.free(whole)
    writer.read(hosts[1], target)


def flattened(writer: Writer, source: range, target: int, blocks: int, pixels: int) -> None:
    """Write maps, [block of channels][sample][pixel], as rows, [pixel][block][sample].

    `blocks`: blocks of channels. `pixels`: pixels of a map.
    """
    layout = writer.layout
    pitch, size, samples = layout.pitch, writer.config.cols, layout.samples
    lines = samples * pixels
    for block in range(blocks):
        writer.emit(
            Opcode.WRITE_HOST_MEMORY,
            **{"host": layout.moves[0] + block * pitch, "buffer": source.start + block * lines},
            **{"rows": lines, "stride": blocks * pitch, "blocks": 1, "tail": size},
        )
    writer.emit(Opcode.READ_HOST_MEMORY, **_by_sample(writer, target, pixels * blocks))


def unflattened(writer: Writer, source: int, target: range, blocks: int, pixels: int) -> None:
    """Write rows, [pixel][block][sample], as maps, [block of channels][sample][pixel].

    `blocks`: blocks of channels. `pixels`: pixels of a map.
    """
    layout = writer.layout
    pitch, size, samples = layout.pitch, writer.config.cols, layout.samples
    lines = samples * pixels
    writer.emit(Opcode.WRITE_HOST_MEMORY, **_by_sample(writer, source, pixels * blocks))
    for block in range(blocks):
        writer.emit(
            Opcode.READ_HOST_MEMORY,
            **{"host": layout.moves[0] + block * pitch, "buffer": target.start + block * lines},
            **{"rows": lines, "stride": blocks * pitch, "blocks": 1, "tail": size},
        )


def _by_sample(writer: Writer, line: int, blocks: int) -> dict[str, int]:
    layout = writer.layout
    at = {"host": layout.moves[0], "buffer": line, "rows": layout.samples}
    return at | {"stride": blocks * layout.pitch, "blocks": blocks, "tail": writer.config.cols}


def ones(
    writer: Writer, lines: range, exponent: Exponent, *, wide: bool = False, zero: bool = False
) -> None:
    """Write lines with the input of a bias: 2^f in the first channel, zeros elsewhere.

    f is `exponent`. With `wide` each pair of lines has 2^f as int16. With `zero` all lines are
    zeros, for a stage without biases.
    """
    pairs = np.zeros((writer.config.cols, 2, writer.config.cols), np.int8)
    pairs[:, 1, 0] = _HALF_RANGE
    _doubled(writer, lines, exponent, pairs, SPARE, wide, zero)


def turned_ones(
    writer: Writer, lines: range, exponent: Exponent, *, wide: bool = False, zero: bool = False
) -> None:
    """Write transposed lines with the input of a bias: 2^f in all channels of each tile's first
    line.

    f is `exponent`. A tile has C lines, or C pairs of lines if `wide`. Narrow lines are for the
    backward pass, and overwrite exponent register SHIFT. Wide lines are for the forward pass, and
    overwrite register SPARE. Each pass still needs the shift in the register that is not
    overwritten.
    """
    pairs = np.zeros((writer.config.cols, 2, writer.config.cols), np.int8)
    pairs[0, 1] = _HALF_RANGE
    _doubled(writer, lines, exponent, pairs, SPARE if wide else SHIFT, wide, zero)


def _doubled(
    writer: Writer,
    lines: range,
    exponent: Exponent,
    pairs: NDArray[np.int8],
    register: int,
    wide: bool,
    zero: bool,
) -> None:
    """Write a tile from `pairs`, with 2^f in place of 2^14, and repeat it up to the last of
    `lines`.

    f is `exponent`. `pairs`: a tile of int16 numbers. Exponent register `register` is overwritten
    with the shift from 2^14 to 2^f. With `zero` all lines are zeros.
    """
    size = writer.config.cols
    given = writer.constant(pairs.reshape(2 * size, -1))
    writer.measure(register, third=exponent.register, value=13 - exponent.value)
    sizes = WIDE if wide else NARROWING
    entry = Entry(0) if zero else Entry()
    writer.copy(given.start, lines.start, size, entry, sizes, exponent=register)
    writer.free(given)
    repeat(writer, lines, size << wide)


def repeat(writer: Writer, lines: range, done: int) -> None:
    """Fill a region of the buffer with copies of its first `done` lines."""
    while done < len(lines):
        rows = min(done, len(lines) - done)
        writer.copy(lines.start, lines.start + done, rows, ONE, NARROW)
        done += rows


def add(writer: Writer, lines: range, others: range) -> None:
    """Add int8 lines `others` to `lines`; the sums replace `lines`."""
    at = (lines.start, others.start, lines.start, len(lines), ONE, NARROW)
    writer.vector(Operation.ADD, *at, scales=(1 << 11, 1 << 11))


def subtract(writer: Writer, a: int, b: int, target: int, rows: int, table: int | None) -> None:
    """Write the int8 differences a - b of two regions, or the results of a table for them."""
    function = Function.NONE if table is None else Function.TABLE
    writer.vector(
        *(Operation.SUBTRACT, a, b, target, rows, ONE, NARROW),
        scales=(1 << 11, 1 << 11),
        function=function,
        table=table or 0,
    )
