# SPDX-License-Identifier: Apache-2.0
"""Tests of the view of memories' contents over time, for programs with invented times."""

from __future__ import annotations

from systola.arch.assembler import assemble
from systola.arch.config import PRESETS
from systola.arch.isa import Opcode
from systola.views.memory_use import REST, Stay, WeightTiles, buffer_stays, weight_tiles
from systola.views.timeline import TRACKS, Timeline, Work, executed

TINY = PRESETS["tiny"]
LAYERS = ["first", "second"]
COPY = "stride=64, blocks=1, tail=4"


def run(text):
    """Return a program, and a timeline with work of instruction i from cycle 10 i to 10 i + 8."""
    program = assemble(text)
    work = [
        Work(
            number,
            entry,
            operands,
            TRACKS.get(entry.executor),
            0,
            0,
            10 * step,
            10 * step + 8,
        )
        for step, (number, entry, operands) in enumerate(executed(program))
        if entry.executor in TRACKS or entry.opcode == Opcode.DEBUG_TAG
    ]
    return program, Timeline(tuple(work), ())


def test_from_the_first_write_to_the_last_read():
    program, timeline = run(
        f"read_host_memory host=0, buffer=2, rows=3, {COPY}\n"
        # This read fills the lines after the lines of the first read.
        f"read_host_memory host=0, buffer=5, rows=3, {COPY}\n"
        "matrix_multiply buffer=3, accumulator=0, rows=2, k_tiles=1, n_tiles=1\n"
        "activate accumulator=0, buffer=9, rows=2, n_tiles=1, parameter=0\n"
        "debug_tag tag=0\n"
        # This product uses lines of both reads.
        "matrix_multiply buffer=6, accumulator=0, rows=4, k_tiles=1, n_tiles=1\n"
        # This read overwrites one line of the first read.
        f"read_host_memory host=0, buffer=2, rows=1, {COPY}\n"
        f"write_host_memory host=0, buffer=2, rows=1, {COPY}\n"
        "debug_tag tag=1\n"
        f"write_host_memory host=0, buffer=10, rows=1, {COPY}\n"
        "halt\n"
    )
    assert buffer_stays(TINY, program, timeline, LAYERS) == [
        Stay("first", "read_host_memory", 2, 6, 0, 58, 2),
        Stay("first", "activate", 9, 2, 30, 98, 2),
        Stay("second", "read_host_memory", 2, 1, 60, 78, 1),
    ]


def test_tiles_belong_to_whoever_consumes_them():
    multiply = "matrix_multiply buffer=0, accumulator=0, rows=1, k_tiles={}, n_tiles={}\n"
    program, timeline = run(
        "read_weights tile=4, count=5\n"
        "loop count=2\n"
        "read_weights tile=20, count=1\n" + multiply.format(2, 1) + "end_loop\n"
        "debug_tag tag=0\n"
        + multiply.format(1, 1)
        + "debug_tag tag=1\n"
        + multiply.format(2, 1)
        + "halt\n"
    )
    assert weight_tiles(program, timeline, LAYERS) == [
        WeightTiles("first", 4, 4, 1),
        WeightTiles("second", 8, 1, 1),
        WeightTiles(REST, 20, 1, 2),
    ]
