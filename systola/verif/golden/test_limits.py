# SPDX-License-Identifier: Apache-2.0
"""Tests that an instruction may use the last address of each memory, and faults beyond it."""

from __future__ import annotations

import pytest

from systola.arch.isa import Fault, Function, Opcode, Operation, encode
from systola.verif.golden.rig import HALT, PLAIN_TALL, SQUARE, Rig
from systola.verif.golden.words import (
    TILES,
    WIDE,
    WINDOW,
    activate,
    multiply,
    parameters,
    read,
    read_alternate,
    table,
    vector,
    weights,
    write,
    write_alternate,
)

LIMITS: list[tuple[bytes, bytes, Fault, int]] = [
    # Columns: a legal instruction at a limit, one beyond the limit, the fault's cause and address.
    (read(buffer=1023), read(buffer=1024), Fault.BUFFER_RANGE, 1024),
    (
        read(buffer=1000, rows=6, blocks=4),
        read(buffer=1000, rows=5, blocks=5),
        Fault.BUFFER_RANGE,
        1000,
    ),
    (read(), read(buffer=0xFFFFF), Fault.BUFFER_RANGE, 0xFFFFF),
    (read(), read(rows=65535, blocks=4095), Fault.BUFFER_RANGE, 0),
    (write(buffer=1023), write(buffer=1023, rows=2), Fault.BUFFER_RANGE, 1023),
    (write(buffer=1022, blocks=2), write(buffer=1022, blocks=3), Fault.BUFFER_RANGE, 1022),
    (read(host=WINDOW - 4), read(host=WINDOW), Fault.HOST_WINDOW, WINDOW),
    # Whole pitches must fit in the window, although the tail is shorter.
    (read(host=WINDOW - 12, blocks=3), read(host=WINDOW - 8, blocks=3), Fault.HOST_WINDOW, 8184),
    (
        read(host=WINDOW - 104, rows=6, stride=20),
        read(host=WINDOW - 100, rows=6, stride=20),
        Fault.HOST_WINDOW,
        8092,
    ),
    (read(), read(host=0xFFFF_FFFC), Fault.HOST_WINDOW, 0xFFFF_FFFC),
    (read(rows=1, stride=0xFFFFFC), read(rows=2, stride=0xFFFFFC), Fault.HOST_WINDOW, 0),
    # The distance from the first row to the last is nearly 2^32 bytes, and must not wrap.
    (read(rows=257, stride=0), read(rows=257, stride=0xFFFFFC), Fault.HOST_WINDOW, 0),
    (write(host=WINDOW - 4), write(host=WINDOW), Fault.HOST_WINDOW, WINDOW),
    (
        write(host=0, rows=2, stride=WINDOW - 8, blocks=2),
        write(host=4, rows=2, stride=WINDOW - 8, blocks=2),
        Fault.HOST_WINDOW,
        4,
    ),
    (parameters(parameter=31), parameters(parameter=32), Fault.PARAMETER_RANGE, 32),
    (
        parameters(parameter=30, count=2),
        parameters(parameter=30, count=3),
        Fault.PARAMETER_RANGE,
        30,
    ),
    (parameters(), parameters(parameter=4095, count=4095), Fault.PARAMETER_RANGE, 4095),
    (
        parameters(host=WINDOW - 72, count=2),
        parameters(host=WINDOW - 68, count=2),
        Fault.HOST_WINDOW,
        8124,
    ),
    (table(table=1), table(table=2), Fault.TABLE_RANGE, 2),
    (table(host=WINDOW - 256), table(host=WINDOW - 252), Fault.HOST_WINDOW, 7940),
    (weights(TILES - 1), weights(TILES), Fault.WEIGHT_WINDOW, TILES),
    (weights(3, TILES - 3), weights(3, TILES - 2), Fault.WEIGHT_WINDOW, 3),
    (weights(), weights(0xFFFFFF, 0xFFFFFF), Fault.WEIGHT_WINDOW, 0xFFFFFF),
    (activate(accumulator=255), activate(accumulator=256), Fault.ACCUMULATOR_RANGE, 256),
    (
        activate(accumulator=240, rows=4, n_tiles=4),
        activate(accumulator=241, rows=4, n_tiles=4),
        Fault.ACCUMULATOR_RANGE,
        241,
    ),
    (
        activate(buffer=1008, rows=4, n_tiles=4),
        activate(buffer=1009, rows=4, n_tiles=4),
        Fault.BUFFER_RANGE,
        1009,
    ),
    (
        activate(parameter=29, n_tiles=3),
        activate(parameter=29, n_tiles=4),
        Fault.PARAMETER_RANGE,
        29,
    ),
    (
        activate(function=Function.TABLE, table=1),
        activate(function=Function.TABLE, table=2),
        Fault.TABLE_RANGE,
        2,
    ),
    (activate(function=Function.RELU6, table=15), activate(buffer=1024), Fault.BUFFER_RANGE, 1024),
    (
        read_alternate(buffer=1000, rows=6, blocks=4),
        read_alternate(buffer=1000, rows=5, blocks=5),
        Fault.BUFFER_RANGE,
        1000,
    ),
    (
        write_alternate(buffer=1000, rows=6, blocks=4),
        write_alternate(buffer=1000, rows=5, blocks=5),
        Fault.BUFFER_RANGE,
        1000,
    ),
    (
        read_alternate(host=WINDOW - 12, blocks=3),
        read_alternate(host=WINDOW - 8, blocks=3),
        Fault.HOST_WINDOW,
        8184,
    ),
    (
        write_alternate(host=WINDOW - 12, blocks=3),
        write_alternate(host=WINDOW - 8, blocks=3),
        Fault.HOST_WINDOW,
        8184,
    ),
    (
        activate(buffer=1008, rows=2, n_tiles=4, wide=1),
        activate(buffer=1009, rows=2, n_tiles=4, wide=1),
        Fault.BUFFER_RANGE,
        1009,
    ),
    (vector(buffer=1023), vector(buffer=1024), Fault.BUFFER_RANGE, 1024),
    (vector(operand=1020, rows=4), vector(operand=1021, rows=4), Fault.BUFFER_RANGE, 1021),
    (vector(destination=1020, rows=4), vector(destination=1021, rows=4), Fault.BUFFER_RANGE, 1021),
    (
        vector(buffer=1016, rows=4, wide_operands=1),
        vector(buffer=1017, rows=4, wide_operands=1),
        Fault.BUFFER_RANGE,
        1017,
    ),
    (
        vector(operand=1016, rows=4, wide_operands=1),
        vector(operand=1017, rows=4, wide_operands=1),
        Fault.BUFFER_RANGE,
        1017,
    ),
    (
        vector(destination=1016, rows=4, wide=1),
        vector(destination=1017, rows=4, wide=1),
        Fault.BUFFER_RANGE,
        1017,
    ),
    # A Vector with COPY has no operand b, so any `operand` is legal.
    (
        vector(operation=Operation.COPY, operand=1024),
        vector(operation=Operation.MULTIPLY, operand=1024),
        Fault.BUFFER_RANGE,
        1024,
    ),
    (
        vector(operation=Operation.COPY, operand=400),
        vector(operation=Operation.SUBTRACT, operand=399, rows=2),
        Fault.OVERLAP,
        400,
    ),
    # Results may overwrite exactly the lines of one operand, or of both operands.
    (vector(destination=0, rows=9), vector(destination=1, rows=9), Fault.OVERLAP, 1),
    (vector(destination=200, rows=9), vector(destination=192, rows=9), Fault.OVERLAP, 192),
    (
        vector(buffer=200, destination=200, rows=9),
        vector(buffer=201, destination=200, rows=9),
        Fault.OVERLAP,
        200,
    ),
    (
        vector(destination=0, rows=9, wide=1, wide_operands=1),
        vector(destination=0, rows=9, wide=1),
        Fault.OVERLAP,
        0,
    ),
    (
        vector(destination=9, rows=9),
        vector(destination=9, rows=9, wide_operands=1),
        Fault.OVERLAP,
        9,
    ),
    (vector(parameter=31), vector(parameter=32), Fault.PARAMETER_RANGE, 32),
    (
        vector(function=Function.TABLE, table=1),
        vector(function=Function.TABLE, table=2),
        Fault.TABLE_RANGE,
        2,
    ),
    (vector(function=Function.RELU, table=15), vector(buffer=1024), Fault.BUFFER_RANGE, 1024),
]


@pytest.mark.parametrize(("legal", "faulty", "cause", "address"), LIMITS)
def test_limits(legal: bytes, faulty: bytes, cause: Fault, address: int) -> None:
    rig = Rig(SQUARE, tiles=TILES)
    rig.complete(legal, HALT)
    rig = Rig(SQUARE, tiles=TILES)
    assert rig.fault(encode(Opcode.NOP), faulty, HALT) == (cause, 1, address)


def test_limits_of_matrix_multiply() -> None:
    load = weights(0, TILES)
    for legal, faulty, cause, address in (
        (multiply(buffer=1023), multiply(buffer=1024), Fault.BUFFER_RANGE, 1024),
        (
            multiply(buffer=1009, rows=5, k_tiles=3),
            multiply(buffer=1010, rows=5, k_tiles=3),
            Fault.BUFFER_RANGE,
            1010,
        ),
        (
            multiply(accumulator=241, rows=5, n_tiles=3),
            multiply(accumulator=242, rows=5, n_tiles=3),
            Fault.ACCUMULATOR_RANGE,
            242,
        ),
        (
            multiply(buffer=1004, rows=5, k_tiles=2, wide_vectors=1),
            multiply(buffer=1005, rows=5, k_tiles=2, wide_vectors=1),
            Fault.BUFFER_RANGE,
            1005,
        ),
        (
            multiply(k_tiles=2, n_tiles=4, wide_weights=1),
            multiply(k_tiles=3, n_tiles=3, wide_weights=1),
            Fault.WEIGHT_UNDERFLOW,
            TILES,
        ),
        (
            multiply(k_tiles=4, n_tiles=4),
            multiply(k_tiles=17, n_tiles=1),
            Fault.WEIGHT_UNDERFLOW,
            TILES,
        ),
        (multiply(k_tiles=16), multiply(k_tiles=9, n_tiles=2), Fault.WEIGHT_UNDERFLOW, TILES),
    ):
        Rig(SQUARE, tiles=TILES).complete(load, legal, HALT)
        assert Rig(SQUARE, tiles=TILES).fault(load, faulty, HALT) == (cause, 1, address)


def test_window_counts_whole_pitches_of_the_right_vector() -> None:
    for config, access, pitch in (
        (PLAIN_TALL, read, 8),
        (PLAIN_TALL, write, 4),
        (WIDE, read, 4),
        (WIDE, write, 8),
        (PLAIN_TALL, read_alternate, 8),
        (PLAIN_TALL, write_alternate, 4),
        (WIDE, read_alternate, 4),
        (WIDE, write_alternate, 8),
    ):
        Rig(config).complete(access(host=WINDOW - 2 * pitch, blocks=2), HALT)
        late = WINDOW - 2 * pitch + 4
        assert Rig(config).fault(access(host=late, blocks=2)) == (Fault.HOST_WINDOW, 0, late)
    Rig(PLAIN_TALL).complete(parameters(host=WINDOW - 36), HALT)
    Rig(WIDE).complete(parameters(host=WINDOW - 72), HALT)
    late = WINDOW - 68
    assert Rig(WIDE).fault(parameters(host=late)) == (Fault.HOST_WINDOW, 0, late)
