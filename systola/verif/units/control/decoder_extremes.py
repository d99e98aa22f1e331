# SPDX-License-Identifier: Apache-2.0
"""Windows and operands at the extremes of the decoder's calculations."""

from __future__ import annotations

from collections.abc import Iterator

from systola.arch.isa import BY_OPCODE, Opcode
from systola.verif.units.control.instruction_reader import Fields

ONE = {field.name: 1 for field in BY_OPCODE[Opcode.SET_CONFIG_WINDOW].fields} | {
    "top": 0,
    "left": 0,
}
"""The settings of a window of one tap over a map of one pixel."""
BOTH = {"height": 2048, "pitch": 2048}
WINDOWS = {"out_height": 2048, "out_width": 2048}
EXTREMES: list[tuple[Fields, Opcode, Fields]] = [
    # Cases with products that would look small if some upper bits of the products were lost.
    (BOTH, Opcode.POOL, {"blocks": 2048}),
    (BOTH, Opcode.DEPTHWISE, {"blocks": 2048}),
    (WINDOWS, Opcode.POOL, {"blocks": 2048, "destination": 4096}),
    (WINDOWS, Opcode.DEPTHWISE, {"blocks": 2048, "taps": 4096, "destination": 8192}),
    (WINDOWS, Opcode.CONVOLVE, {"k_tiles": 1, "n_tiles": 2048}),
    (BOTH, Opcode.CONVOLVE, {"k_tiles": 1, "n_tiles": 1}),
    ({}, Opcode.CONVOLVE, {"k_tiles": 2049, "n_tiles": 1, "plane": 1 << 19}),
    ({}, Opcode.MATRIX_MULTIPLY, {"rows": 1 << 15, "k_tiles": 2048, "n_tiles": 1}),
    ({}, Opcode.MATRIX_MULTIPLY, {"rows": 1 << 15, "k_tiles": 1, "n_tiles": 2048}),
    ({}, Opcode.ACTIVATE, {"rows": 1 << 15, "n_tiles": 2048}),
    ({}, Opcode.READ_HOST_MEMORY, {"rows": 1 << 15, "blocks": 2048, "tail": 1}),
    ({}, Opcode.READ_HOST_MEMORY, {"rows": 257, "blocks": 1, "tail": 1, "stride": 1 << 23}),
    # Cases in which a number needs all bits of its field.
    (
        {"kernel_height": 128, "kernel_width": 128},
        Opcode.CONVOLVE,
        {"k_tiles": 2048, "n_tiles": 200, "plane": 0},
    ),
    (
        {"height": 300, "pitch": 3900, "top": -2048, "stride_y": 255, "out_height": 10},
        Opcode.POOL,
        {"blocks": 1, "destination": 500000},
    ),
    (
        {"width": 255, "pitch": 255, "left": -128, "stride_x": 255, "out_width": 2},
        Opcode.POOL,
        {"blocks": 1, "destination": 300},
    ),
    # Cases of Depthwise with 64 taps, the largest legal number, and with more taps.
    *(
        (
            {"kernel_height": height, "kernel_width": width},
            Opcode.DEPTHWISE,
            {"blocks": 1, "taps": 300, "destination": 400},
        )
        for height, width in ((8, 8), (1, 64), (5, 13), (13, 5), (255, 255))
    ),
    # Cases with a map's row as long as the pitch of the rows, and longer.
    *(
        ({"width": width, "pitch": 9}, opcode, {**fields, "buffer": 20})
        for width in (9, 10, 4095)
        for opcode, fields in (
            (Opcode.POOL, {"blocks": 1}),
            (Opcode.DEPTHWISE, {"blocks": 1, "taps": 3}),
            (Opcode.CONVOLVE, {"k_tiles": 1, "n_tiles": 1}),
        )
    ),
]
"""For each case: changes to window ONE, the opcode of an instruction after it, and its fields."""


def packed_limits(rows: int) -> Iterator[tuple[Fields, Opcode, Fields]]:
    """Yield a Convolve on packed channels at each limit of the window, and one beyond it."""
    fitting = {"k_tiles": 1, "n_tiles": 1, "buffer": 7}
    for channels in (1, 2, rows):
        most = rows // channels
        for field, values in {
            "kernel_width": (most, most + 1),
            "stride_x": (most, most + 1),
            "left": (most - 1, most, -most, -most - 1),
            "width": (2 * rows // channels, 2 * rows // channels + 1),
            "dilation_x": (1, 2),
        }.items():
            for value in values:
                low, high = BY_OPCODE[Opcode.SET_CONFIG_WINDOW].field(field).range
                if low <= value <= high:
                    window = {"pitch": 2, field: value}
                    yield window, Opcode.CONVOLVE, {**fitting, "channels": channels}
        yield {}, Opcode.CONVOLVE, {**fitting, "channels": channels, "k_tiles": 2}
