# SPDX-License-Identifier: Apache-2.0
"""The common part of the tests of single instructions: memory layout and helper instructions.

All tests have the same layout of host memory. The program is in page 0. Random bytes begin at
INPUT, parameter entries at ENTRIES, and results at OUTPUT.
"""

import numpy as np

from systola.arch.features import unavailable
from systola.arch.isa import Fault, Opcode, decode, encode
from systola.verif.kit.bench import TB
from systola.verif.kit.copies import lines_in, lines_out
from systola.verif.kit.images import make_image, random_memory, random_tiles, varied_parameter_entry
from systola.verif.kit.seeds import random_seed

INPUT, ENTRIES, OUTPUT, PAGES = 0x1000, 0x3000, 0x5000, 8
TILES, LINES, COUNT = 24, 24, 9
HALT = encode(Opcode.HALT)
RESULTS, FILLED = 100, 160
"""RESULTS: first buffer line after maps and operands. FILLED: number of lines with random bytes."""


async def bench(dut, **memory):
    tb = TB(dut, **memory)
    await tb.start()
    return tb


def image(tb, *program):
    """Return an image of the program, with random data that depend only on the seed."""
    rng = np.random.default_rng(random_seed())
    host = random_memory(rng, PAGES)
    entries = np.concatenate([varied_parameter_entry(rng, tb.config) for _ in range(COUNT)])
    host[ENTRIES : ENTRIES + entries.size] = entries
    return make_image([*program, HALT], host=host, weights=random_tiles(rng, tb.config, TILES))


async def check(tb, *program):
    """Run the program and a Halt on the RTL, and compare it with the golden model.

    If the machine lacks hardware for an instruction, the program must end there in UNAVAILABLE.
    Other configurations run such a program to its end.
    """
    words = map(decode, program)
    lacks = any(unavailable(tb.config, entry.opcode, operands) for entry, operands in words)
    fault = Fault.UNAVAILABLE if lacks else None
    return await tb.check_program(image(tb, *program), fault=fault)


def read(tb, lines=LINES, buffer=0):
    """Return an instruction that copies host bytes from INPUT into buffer lines, one line a row."""
    return encode(
        Opcode.READ_HOST_MEMORY, **lines_in(tb.config, host=INPUT, line=buffer, rows=lines)
    )


def write(tb, lines=LINES, buffer=0, host=OUTPUT):
    """Return an instruction that copies buffer lines to host memory at OUTPUT, one line a row."""
    return encode(
        Opcode.WRITE_HOST_MEMORY, **lines_out(tb.config, host=host, line=buffer, rows=lines)
    )


def sums(tb, rows=LINES):
    """Return instructions that fill memories on the chip.

    The instructions fill FILLED buffer lines, `rows` accumulator rows and COUNT parameter entries.
    """
    return (
        read(tb, FILLED),
        encode(Opcode.LOAD_PARAMETERS, host=ENTRIES, parameter=0, count=COUNT),
        encode(Opcode.READ_WEIGHTS, tile=0, count=1),
        encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, rows=rows, k_tiles=1, n_tiles=1),
    )


def shown_sums(tb, rows=LINES):
    """Yield instructions that write accumulator rows to host memory twice.

    The rows are scaled by parameter entry 0, and then by entry 1.
    """
    activate = {"accumulator": 0, "buffer": 0, "rows": rows, "n_tiles": 1}
    for entry in range(2):
        yield encode(Opcode.ACTIVATE, **activate, parameter=entry)
        yield write(tb, rows, host=OUTPUT + 0x1000 * entry)


def window(**changes):
    """Return a Set_Config_Window; by default, a 5x6 map with a 3x3 kernel and padding around it."""
    shape = {"height": 5, "width": 6, "pitch": 7, "kernel_height": 3, "kernel_width": 3}
    steps = {"stride_y": 1, "stride_x": 1, "dilation_y": 1, "dilation_x": 1}
    start = {"top": -1, "left": -1, "out_height": 5, "out_width": 6}
    return encode(Opcode.SET_CONFIG_WINDOW, **{**shape, **steps, **start, **changes})


WINDOWS = [
    {},
    {"kernel_height": 1, "kernel_width": 1, "top": 0, "left": 0},
    {"stride_y": 2, "stride_x": 3, "out_height": 3, "out_width": 2},
    {"dilation_y": 2, "dilation_x": 3, "top": -2, "left": -3},
    {"kernel_height": 2, "kernel_width": 1, "top": 1, "left": 4, "out_height": 4},
    {"top": -40, "left": 0, "out_height": 2, "out_width": 3},
    {"top": 5, "left": 6, "out_height": 2, "out_width": 3},
    {"height": 1, "width": 1, "pitch": 1, "stride_y": 127, "stride_x": 127, "out_height": 2},
]
"""Changes to the default window, each for a test.

The changes are in kernel, strides and dilations, or to windows outside the map or a map of a pixel.
"""
