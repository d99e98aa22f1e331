# SPDX-License-Identifier: Apache-2.0
"""Trials (runs for mutants) of transfers with many beats, or with a long way between rows."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from systola.arch.config import HOST_PAGE_BYTES, Config
from systola.arch.image import Image
from systola.arch.isa import PARAMETER_PLANES, Fault, Opcode, encode
from systola.verif.kit.copies import lines_in, lines_out
from systola.verif.kit.images import (
    make_image,
    random_memory,
    random_parameter_entry,
    random_tiles,
)
from systola.verif.mutation.trial import MEMORIES, Trial, program_trial

BEATS = 1 << 18
"""Number of beats of the longest transfers, reduced if the memories are too small."""
SPAN_BITS = range(14, 25)
"""Range of the width in bits of a copy's span, the number of bytes from first to last row."""
SPANS = 4
"""Number of copies for each width of the span.

Half of the copies go into the buffer, half out of the buffer. Half of the copies end a beat beyond
the host window.
"""
SLOW = max(range(len(MEMORIES)), key=lambda number: MEMORIES[number][1])
"""Index in MEMORIES of trial.py of the memory with the largest stall probability."""
_DATA, _PARAMETERS, _OUTPUT = (HOST_PAGE_BYTES * page for page in (1, 5, 7))
_BLOCKS = 9
"""Number of blocks of the transfer with the most lines."""


def length_trials(config: Config, seed: int) -> Iterator[Trial]:
    """Yield all trials of long transfers."""
    rng = random.Random(f"{seed} spans")
    for bits in SPAN_BITS:
        for number in range(SPANS):
            image = _span(config, rng, bits, inwards=number % 2 == 0, beyond=number >= 2)
            ends = {Fault.HOST_WINDOW if number >= 2 else Fault.NONE}
            yield program_trial(config, f"span of {bits} bits {number}", image, 0, ends=ends)
    yield program_trial(config, "many lines", _many_lines(config, seed), 0)
    # In a memory with stalls, the array waits for weights half of the time.
    yield program_trial(config, "many tiles", _many_tiles(config, seed), SLOW)


def _span(config: Config, rng: random.Random, bits: int, *, inwards: bool, beyond: bool) -> Image:
    """Return a program with a copy that has a span of `bits` bits.

    The copy ends at the end of the host window or, if `beyond`, a beat beyond the end.
    """
    rows = rng.randint(2, 5)
    bus = config.host_bus_bytes
    stride = rng.randrange(1 << bits - 1, 1 << bits) // rows & -bus
    pitch = config.input_pitch if inwards else config.output_pitch
    span = (rows - 1) * stride + pitch
    pages = 2 + -(-span // HOST_PAGE_BYTES)
    host = np.zeros(pages * HOST_PAGE_BYTES, np.uint8)
    host[_DATA:][:HOST_PAGE_BYTES] = random_memory(np.random.default_rng(bits), 1)
    words = [
        encode(Opcode.READ_HOST_MEMORY, **lines_in(config, host=_DATA, line=0, rows=rows)),
        encode(
            Opcode.READ_HOST_MEMORY if inwards else Opcode.WRITE_HOST_MEMORY,
            **{"host": host.size - span + (bus if beyond else 0), "buffer": 0, "rows": rows},
            **{"stride": stride, "blocks": 1, "tail": config.rows if inwards else config.cols},
        ),
        encode(Opcode.WRITE_HOST_MEMORY, **lines_out(config, host=_DATA, line=0, rows=rows)),
        encode(Opcode.HALT),
    ]
    return make_image(words, host=host)


def _many_lines(config: Config, seed: int) -> Image:
    """Return a program that copies many lines into the buffer and out.

    The program copies the lines in block by block, with the last block cut, and out as one run.
    """
    lines = min(BEATS * _BLOCKS // (_BLOCKS - 1), config.buffer_lines)
    rows = lines // _BLOCKS
    rows += int(config.buffer_lines >= (rows + 1) * _BLOCKS)
    pages, shown = (
        -(-rows * _BLOCKS * pitch // HOST_PAGE_BYTES)
        for pitch in (config.input_pitch, config.output_pitch)
    )
    host = random_memory(np.random.default_rng(seed), 1 + pages + shown)
    copy = {"buffer": 0, "rows": rows, "blocks": _BLOCKS, "tail": 1}
    words = [
        encode(
            Opcode.READ_HOST_MEMORY,
            **{"host": HOST_PAGE_BYTES, "stride": _BLOCKS * config.input_pitch, **copy},
        ),
        encode(
            Opcode.WRITE_HOST_MEMORY_ALTERNATE,
            **{"host": (1 + pages) * HOST_PAGE_BYTES, "stride": _BLOCKS * config.output_pitch},
            **copy,
        ),
        encode(Opcode.HALT),
    ]
    return make_image(words, host=host)


def _many_tiles(config: Config, seed: int) -> Image:
    """Return a program with one Read_Weights of BEATS beats; products use all of its tiles."""
    data = np.random.default_rng(seed)
    tiles = BEATS * config.weight_bus_bytes // config.tile_bytes
    most = min(4095, config.buffer_lines // 2, (_PARAMETERS - _DATA) // config.input_pitch)
    size = PARAMETER_PLANES * config.output_pitch
    room = min(config.parameter_entries, config.accumulator_rows, (_OUTPUT - _PARAMETERS) // size)
    n_tiles = min(room, tiles // most + 1)
    k_tiles = min(most, tiles // n_tiles + 1)
    host = random_memory(data, (_OUTPUT + n_tiles * config.output_pitch) // HOST_PAGE_BYTES + 1)
    entries = [random_parameter_entry(data, config) for _ in range(n_tiles)]
    host[_PARAMETERS:][: n_tiles * size] = np.concatenate(entries)
    words = [
        encode(Opcode.READ_WEIGHTS, tile=0, count=k_tiles * n_tiles),
        encode(Opcode.READ_HOST_MEMORY, **lines_in(config, host=_DATA, line=0, rows=k_tiles)),
        encode(Opcode.LOAD_PARAMETERS, host=_PARAMETERS, parameter=0, count=n_tiles),
        encode(
            Opcode.MATRIX_MULTIPLY,
            **{"buffer": 0, "accumulator": 0, "rows": 1, "k_tiles": k_tiles, "n_tiles": n_tiles},
        ),
        encode(
            Opcode.ACTIVATE,
            **{"accumulator": 0, "buffer": k_tiles, "rows": 1, "n_tiles": n_tiles, "parameter": 0},
        ),
        encode(
            Opcode.WRITE_HOST_MEMORY,
            **lines_out(config, host=_OUTPUT, line=k_tiles, rows=n_tiles),
        ),
        encode(Opcode.HALT),
    ]
    return make_image(words, host=host, weights=random_tiles(data, config, k_tiles * n_tiles))
