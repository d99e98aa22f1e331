# SPDX-License-Identifier: Apache-2.0
"""Generated programs in which all counts are equal: of lines, rows, tiles, blocks and entries.

Before a unit's loop begins, the hardware compares the loop's count with one or two. A mistake
in one bit of this comparison shows only for a count that differs from one or two in that bit alone.
"""

from __future__ import annotations

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import PARAMETER_PLANES, Opcode, Operation, Reduction, encode
from systola.verif.kit.copies import lines_out
from systola.verif.kit.images import (
    make_image,
    random_memory,
    random_tiles,
    varied_parameter_entry,
)
from systola.verif.kit.single_instructions import PIXEL

_DATA, _PARAMETERS = HOST_PAGE_BYTES, 9 * HOST_PAGE_BYTES


def count_program(config: Config, seed: int, count: int) -> Image:
    """Make a program of instructions on `count` lines, rows, tiles, blocks or entries.

    If a memory is too small for `count`, the program uses fewer. Results are copied to host memory.
    """
    data = np.random.default_rng(seed)
    room = min(
        config.buffer_lines // 4,
        config.accumulator_rows,
        (_PARAMETERS - _DATA) // (2 * max(config.input_pitch, config.output_pitch)) - 1,
    )
    count = min(count, room)
    entries = min(count, config.parameter_entries)
    size = PARAMETER_PLANES * config.output_pitch
    shown = -(-(_PARAMETERS + entries * size) // HOST_PAGE_BYTES) * HOST_PAGE_BYTES
    step = -(-count * config.output_pitch // HOST_PAGE_BYTES) * HOST_PAGE_BYTES
    host = random_memory(data, (shown + 18 * step) // HOST_PAGE_BYTES)
    for entry in range(entries):
        flat = varied_parameter_entry(data, config)
        host[_PARAMETERS + entry * size :][:size] = flat
    words: list[bytes] = []
    outputs = iter(range(shown, len(host), step))

    def show(line: int) -> None:
        copy = lines_out(config, host=next(outputs), line=line, rows=count)
        words.append(encode(Opcode.WRITE_HOST_MEMORY, **copy))

    def activate(**sizes: int) -> None:
        operands = {"accumulator": 0, "buffer": count, "parameter": 0, **sizes}
        words.append(encode(Opcode.ACTIVATE, **operands))
        show(count)

    read = {"host": _DATA, "buffer": 0, "tail": config.rows}
    words += [
        encode(Opcode.READ_HOST_MEMORY, **read, rows=1, blocks=count, stride=0),
        encode(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=0, count=entries),
    ]
    for sizes in (
        {"rows": 1, "k_tiles": 1, "n_tiles": count},
        {"rows": count, "k_tiles": 1, "n_tiles": 1},
        {"rows": 1, "k_tiles": count, "n_tiles": 1, "accumulate": 1},
    ):
        tiles = sizes["k_tiles"] * sizes["n_tiles"]
        words += [
            encode(Opcode.READ_WEIGHTS, tile=0, count=tiles),
            encode(Opcode.MATRIX_MULTIPLY, buffer=0, accumulator=0, **sizes),
        ]
        activate(rows=count, n_tiles=1)
    if entries == count:
        activate(rows=1, n_tiles=count)
    words += [
        encode(Opcode.SET_CONFIG_WINDOW, **PIXEL),
        encode(
            Opcode.POOL,
            buffer=0,
            destination=2 * count,
            blocks=count,
            parameter=0,
            reduction=Reduction.SUM,
        ),
    ]
    show(2 * count)
    words += [
        encode(Opcode.SET_CONFIG_SCALE, multiplier_a=1 << 30, multiplier_b=1 << 30),
        encode(
            Opcode.VECTOR,
            operation=Operation.ADD,
            **{"buffer": 0, "operand": count, "destination": 2 * count, "rows": count},
            parameter=0,
        ),
    ]
    show(2 * count)
    # Copy two rows of `count` blocks, with a gap between the rows, so that each line is a run of
    # its own.
    host_of_gaps = next(outputs)
    copy = {"rows": 2, "blocks": count}
    words += [
        encode(
            Opcode.WRITE_HOST_MEMORY,
            **{"host": host_of_gaps, "buffer": 0, **copy, "tail": config.cols},
            stride=count * config.output_pitch + config.host_bus_bytes,
        ),
        encode(
            Opcode.READ_HOST_MEMORY,
            **{"host": _DATA, "buffer": 2 * count, **copy, "tail": config.rows},
            stride=count * config.input_pitch + config.host_bus_bytes,
        ),
        encode(
            Opcode.WRITE_HOST_MEMORY,
            **lines_out(config, host=host_of_gaps + 3 * step, line=2 * count, rows=2 * count),
        ),
        # Copy `count` rows of one block, with a gap between the rows.
        encode(
            Opcode.READ_HOST_MEMORY,
            **{"host": _DATA, "buffer": 3 * count, "rows": count, "blocks": 1},
            **{"stride": config.input_pitch + config.host_bus_bytes, "tail": config.rows},
        ),
        encode(
            Opcode.WRITE_HOST_MEMORY,
            **lines_out(config, host=host_of_gaps + 5 * step, line=3 * count, rows=count),
        ),
    ]
    # Copy two rows with `count` blocks side by side; the last block of each row is cut.
    copy["tail"] = 1
    words += [
        encode(
            Opcode.WRITE_HOST_MEMORY_ALTERNATE,
            **{"host": host_of_gaps + 6 * step, "buffer": 0, **copy},
            stride=count * config.output_pitch + config.host_bus_bytes,
        ),
        encode(
            Opcode.READ_HOST_MEMORY_ALTERNATE,
            **{"host": _DATA, "buffer": 2 * count, **copy},
            stride=count * config.input_pitch + config.host_bus_bytes,
        ),
        encode(
            Opcode.WRITE_HOST_MEMORY,
            **lines_out(config, host=host_of_gaps + 9 * step, line=2 * count, rows=2 * count),
        ),
        encode(Opcode.HALT),
    ]
    return make_image(words, host=host, weights=random_tiles(data, config, count))
