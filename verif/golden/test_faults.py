# SPDX-License-Identifier: Apache-2.0
"""Every fault: its limit, its address, its precedence, and that nothing else happens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from systola.arch.config import Config, preset
from systola.arch.isa import Fault, Function, Opcode, Operation, Reduction, encode
from systola.verif.golden.rig import HALT, PAGE, SQUARE, TINY, TRAINING, Rig
from systola.verif.golden.windows import Windows

# 6 input elements: pitch 8; 3 output elements: pitch 4; host bus of 4 bytes.
TALL = dataclasses.replace(
    TINY, name="tall", rows=6, cols=3, columns_per_stage=3, columns_per_lane=1
)
WIDE = dataclasses.replace(TINY, name="wide", rows=3, cols=6)
NO_TABLES = dataclasses.replace(SQUARE, name="no tables", tables=0)
WINDOW = 2 * PAGE
TILES = 16


def read(**changes: int) -> bytes:
    at = {"host": 0, "buffer": 0, "rows": 1, "stride": 0, "blocks": 1, "tail": 1}
    return encode(Opcode.READ_HOST_MEMORY, **{**at, **changes})


def write(**changes: int) -> bytes:
    at = {"host": 0, "buffer": 0, "rows": 1, "stride": 0, "blocks": 1, "tail": 1}
    return encode(Opcode.WRITE_HOST_MEMORY, **{**at, **changes})


def read_alternate(**changes: int) -> bytes:
    at = {"host": 0, "buffer": 0, "rows": 1, "stride": 0, "blocks": 1, "tail": 1}
    return encode(Opcode.READ_HOST_MEMORY_ALTERNATE, **{**at, **changes})


def write_alternate(**changes: int) -> bytes:
    at = {"host": 0, "buffer": 0, "rows": 1, "stride": 0, "blocks": 1, "tail": 1}
    return encode(Opcode.WRITE_HOST_MEMORY_ALTERNATE, **{**at, **changes})


def parameters(**changes: int) -> bytes:
    return encode(Opcode.LOAD_PARAMETERS, **{"host": 0, "parameter": 0, "count": 1, **changes})


def table(**changes: int) -> bytes:
    return encode(Opcode.LOAD_TABLE, **{"host": 0, "table": 0, **changes})


def weights(tile: int = 0, count: int = 1) -> bytes:
    return encode(Opcode.READ_WEIGHTS, tile=tile, count=count)


def multiply(**changes: int) -> bytes:
    at = {"buffer": 0, "accumulator": 0, "rows": 1, "k_tiles": 1, "n_tiles": 1}
    return encode(Opcode.MATRIX_MULTIPLY, **{**at, **changes})


def activate(**changes: int) -> bytes:
    at = {"accumulator": 0, "buffer": 0, "rows": 1, "n_tiles": 1, "parameter": 0}
    return encode(Opcode.ACTIVATE, **{**at, **changes})


def convolve(**changes: int) -> bytes:
    at = {"buffer": 0, "accumulator": 0, "plane": 0, "k_tiles": 1, "n_tiles": 1}
    return encode(Opcode.CONVOLVE, **{**at, **changes})


def depthwise(**changes: int) -> bytes:
    at = {"buffer": 0, "taps": 200, "destination": 400, "blocks": 1, "parameter": 0}
    return encode(Opcode.DEPTHWISE, **{**at, **changes})


def pool(**changes: int) -> bytes:
    at = {"buffer": 0, "destination": 400, "blocks": 1, "parameter": 0, "reduction": Reduction.MAX}
    return encode(Opcode.POOL, **{**at, **changes})


def vector(**changes: int) -> bytes:
    at = {"operation": Operation.ADD, "buffer": 0, "operand": 200, "destination": 400, "rows": 1}
    return encode(Opcode.VECTOR, **{**at, "parameter": 0, **changes})


def patched(word: bytes, bit: int, value: int, width: int) -> bytes:
    """`word` with `width` bits from `bit` on replaced: what encode() would refuse."""
    number = int.from_bytes(word, "little")
    number = number & ~(((1 << width) - 1) << bit) | value << bit
    return number.to_bytes(16, "little")


LIMITS: list[tuple[bytes, bytes, Fault, int]] = [
    # legal at the limit; one beyond; cause; address
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
    # The tail does not count: whole pitches must fit.
    (read(host=WINDOW - 12, blocks=3), read(host=WINDOW - 8, blocks=3), Fault.HOST_WINDOW, 8184),
    (
        read(host=WINDOW - 104, rows=6, stride=20),
        read(host=WINDOW - 100, rows=6, stride=20),
        Fault.HOST_WINDOW,
        8092,
    ),
    (read(), read(host=0xFFFF_FFFC), Fault.HOST_WINDOW, 0xFFFF_FFFC),
    (read(rows=1, stride=0xFFFFFC), read(rows=2, stride=0xFFFFFC), Fault.HOST_WINDOW, 0),
    # 256 rows: their distance sums up to 2^32 and must not vanish.
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
    # COPY has no operand b.
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
    # Results may stand in exactly the lines of an operand, or of both.
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


# 5 rows of 4 pixels on 25 lines, 2x3 taps, 3x2 windows.
MAP = Windows(
    **{"height": 5, "width": 4, "pitch": 5, "kernel_height": 2, "kernel_width": 3},
    **{"out_height": 3, "out_width": 2},
)
# The same as packed channels: 3 of them to a pixel, but one column of taps.
PACKED = dataclasses.replace(MAP, kernel_width=1)
WINDOW_LIMITS: list[tuple[Windows, bytes, Windows, bytes, Fault, int]] = [
    # legal at the limit; one beyond; cause; address
    (MAP, convolve(buffer=999), MAP, convolve(buffer=1000), Fault.BUFFER_RANGE, 1000),
    (
        MAP,
        convolve(buffer=979, plane=10, k_tiles=3, fill=1),
        MAP,
        convolve(buffer=979, plane=11, k_tiles=3),
        Fault.BUFFER_RANGE,
        979,
    ),
    (MAP, convolve(plane=2**20 - 1), MAP, convolve(plane=1000, k_tiles=2), Fault.BUFFER_RANGE, 0),
    (MAP, convolve(), MAP, convolve(plane=2**20 - 1, k_tiles=4095), Fault.BUFFER_RANGE, 0),
    (
        MAP,
        convolve(accumulator=238, n_tiles=3),
        MAP,
        convolve(accumulator=239, n_tiles=3),
        Fault.ACCUMULATOR_RANGE,
        239,
    ),
    (MAP, convolve(k_tiles=4), MAP, convolve(k_tiles=5), Fault.WEIGHT_UNDERFLOW, 24),
    (MAP, convolve(n_tiles=4), MAP, convolve(n_tiles=5), Fault.WEIGHT_UNDERFLOW, 24),
    (
        PACKED,
        convolve(channels=3, n_tiles=12),
        PACKED,
        convolve(channels=3, n_tiles=13),
        Fault.WEIGHT_UNDERFLOW,
        24,
    ),
    (
        dataclasses.replace(PACKED, kernel_width=4),
        convolve(channels=1, n_tiles=12),
        dataclasses.replace(PACKED, kernel_width=4),
        convolve(channels=1, n_tiles=13),
        Fault.WEIGHT_UNDERFLOW,
        24,
    ),
    # Packed channels on four rows of the array.
    (PACKED, convolve(channels=4), PACKED, convolve(channels=5), Fault.WINDOW, 0),
    (PACKED, convolve(channels=3), PACKED, convolve(channels=3, k_tiles=2), Fault.WINDOW, 0),
    (
        dataclasses.replace(PACKED, kernel_width=2),
        convolve(channels=2),
        dataclasses.replace(PACKED, kernel_width=3),
        convolve(channels=2),
        Fault.WINDOW,
        0,
    ),
    (
        dataclasses.replace(PACKED, stride_x=4),
        convolve(channels=1),
        dataclasses.replace(PACKED, stride_x=5),
        convolve(channels=1),
        Fault.WINDOW,
        0,
    ),
    (
        dataclasses.replace(PACKED, dilation_y=2),
        convolve(channels=1),
        dataclasses.replace(PACKED, dilation_x=2),
        convolve(channels=1),
        Fault.WINDOW,
        0,
    ),
    (
        dataclasses.replace(PACKED, left=-2),
        convolve(channels=2),
        dataclasses.replace(PACKED, left=-3),
        convolve(channels=2),
        Fault.WINDOW,
        0,
    ),
    (
        dataclasses.replace(PACKED, left=3),
        convolve(channels=1),
        dataclasses.replace(PACKED, left=4),
        convolve(channels=1),
        Fault.WINDOW,
        0,
    ),
    (
        dataclasses.replace(PACKED, left=1),
        convolve(channels=3),
        dataclasses.replace(PACKED, left=2),
        convolve(channels=2),
        Fault.WINDOW,
        0,
    ),
    (
        MAP,
        depthwise(buffer=974, blocks=2),
        MAP,
        depthwise(buffer=975, blocks=2),
        Fault.BUFFER_RANGE,
        975,
    ),
    (
        MAP,
        depthwise(taps=1012, blocks=2),
        MAP,
        depthwise(taps=1013, blocks=2),
        Fault.BUFFER_RANGE,
        1013,
    ),
    (
        MAP,
        depthwise(destination=1012, blocks=2),
        MAP,
        depthwise(destination=1013, blocks=2),
        Fault.BUFFER_RANGE,
        1013,
    ),
    (
        dataclasses.replace(MAP, kernel_height=4, kernel_width=16),
        depthwise(),
        dataclasses.replace(MAP, kernel_height=5, kernel_width=13),
        depthwise(),
        Fault.WINDOW,
        0,
    ),
    (MAP, depthwise(destination=25), MAP, depthwise(destination=24), Fault.OVERLAP, 24),
    (
        MAP,
        depthwise(buffer=6, destination=0),
        MAP,
        depthwise(buffer=5, destination=0),
        Fault.OVERLAP,
        0,
    ),
    (MAP, depthwise(destination=194), MAP, depthwise(destination=195), Fault.OVERLAP, 195),
    (MAP, depthwise(destination=206), MAP, depthwise(destination=205), Fault.OVERLAP, 205),
    (MAP, depthwise(taps=0), MAP, depthwise(destination=200), Fault.OVERLAP, 200),
    (
        MAP,
        depthwise(parameter=30, blocks=2),
        MAP,
        depthwise(parameter=30, blocks=3),
        Fault.PARAMETER_RANGE,
        30,
    ),
    (MAP, pool(buffer=974, blocks=2), MAP, pool(buffer=975, blocks=2), Fault.BUFFER_RANGE, 975),
    (
        MAP,
        pool(destination=1012, blocks=2),
        MAP,
        pool(destination=1013, blocks=2),
        Fault.BUFFER_RANGE,
        1013,
    ),
    (MAP, pool(destination=25), MAP, pool(destination=24), Fault.OVERLAP, 24),
    (MAP, pool(buffer=6, destination=0), MAP, pool(buffer=5, destination=0), Fault.OVERLAP, 0),
    # Nothing is done in place, not even where one window covers the map.
    (Windows(), pool(destination=1), Windows(), pool(destination=0), Fault.OVERLAP, 0),
    (MAP, pool(parameter=31, blocks=9), MAP, pool(parameter=32), Fault.PARAMETER_RANGE, 32),
    (
        MAP,
        pool(parameter=31, reduction=Reduction.SUM),
        MAP,
        pool(parameter=32, reduction=Reduction.SUM),
        Fault.PARAMETER_RANGE,
        32,
    ),
    (
        MAP,
        pool(parameter=26, reduction=Reduction.AVERAGE),
        MAP,
        pool(parameter=27, reduction=Reduction.AVERAGE),
        Fault.PARAMETER_RANGE,
        27,
    ),
    # Pool takes any number of taps.
    (
        dataclasses.replace(MAP, kernel_height=255, kernel_width=255),
        pool(),
        MAP,
        pool(buffer=1024),
        Fault.BUFFER_RANGE,
        1024,
    ),
]


@pytest.mark.parametrize(("good", "legal", "bad", "faulty", "cause", "address"), WINDOW_LIMITS)
def test_limits_of_windows(
    good: Windows, legal: bytes, bad: Windows, faulty: bytes, cause: Fault, address: int
) -> None:
    load = weights(0, 24)
    Rig(SQUARE, tiles=24).complete(load, good.word, legal, HALT)
    assert Rig(SQUARE, tiles=24).fault(load, bad.word, faulty, HALT) == (cause, 2, address)


@pytest.mark.parametrize("word", [convolve(), convolve(channels=1), depthwise(), pool()])
def test_a_window_must_have_been_set(word: bytes) -> None:
    assert Rig(SQUARE, tiles=1).fault(weights(), word) == (Fault.WINDOW, 1, 0)
    Rig(SQUARE, tiles=1).complete(weights(), Windows().word, word, HALT)


@pytest.mark.parametrize(
    ("config", "word", "opcode"),
    [
        (TINY, depthwise(), 0x41),
        (TINY, multiply(wide_vectors=1), 0x30),
        (TINY, multiply(wide_weights=1), 0x30),
        (TINY, activate(wide=1), 0x40),
        (TINY, vector(wide=1), 0x43),
        (TINY, vector(wide_operands=1), 0x43),
        (NO_TABLES, table(), 0x13),
        (NO_TABLES, activate(function=Function.TABLE), 0x40),
        (NO_TABLES, vector(function=Function.TABLE), 0x43),
    ],
)
def test_unavailable(config: Config, word: bytes, opcode: int) -> None:
    rig = Rig(config, tiles=2)
    program = (weights(0, 2), Windows().word)
    assert rig.fault(*program, word) == (Fault.UNAVAILABLE, 2, opcode)
    Rig(SQUARE, tiles=2).complete(*program, word, HALT)


@pytest.mark.parametrize(
    "word", [vector(), activate(), pool(), convolve(), vector(function=Function.RELU6)]
)
def test_all_else_runs_on_the_least_machine(word: bytes) -> None:
    least = dataclasses.replace(TINY, name="least", tables=0)
    Rig(least, tiles=1).complete(weights(), Windows().word, word, HALT)


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
        (TALL, read, 8),
        (TALL, write, 4),
        (WIDE, read, 4),
        (WIDE, write, 8),
        (TALL, read_alternate, 8),
        (TALL, write_alternate, 4),
        (WIDE, read_alternate, 4),
        (WIDE, write_alternate, 8),
    ):
        Rig(config).complete(access(host=WINDOW - 2 * pitch, blocks=2), HALT)
        late = WINDOW - 2 * pitch + 4
        assert Rig(config).fault(access(host=late, blocks=2)) == (Fault.HOST_WINDOW, 0, late)
    Rig(TALL).complete(parameters(host=WINDOW - 36), HALT)
    Rig(WIDE).complete(parameters(host=WINDOW - 72), HALT)
    late = WINDOW - 68
    assert Rig(WIDE).fault(parameters(host=late)) == (Fault.HOST_WINDOW, 0, late)


@pytest.mark.parametrize("opcode", sorted(set(range(256)) - {int(code) for code in Opcode}))
def test_illegal_opcode(opcode: int) -> None:
    word = bytes([opcode]) + b"\xff" * 15
    assert Rig(TINY).fault(word) == (Fault.ILLEGAL_OPCODE, 0, opcode)


@pytest.mark.parametrize(
    ("word", "width"),
    [
        (encode(Opcode.NOP), 8),
        (HALT, 8),
        (encode(Opcode.SYNCHRONIZE), 8),
        (encode(Opcode.INTERRUPT_HOST), 24),
        (encode(Opcode.SYNCHRONIZE_HOST), 8),
        (encode(Opcode.DEBUG_TAG), 28),
        (encode(Opcode.SET_REGISTER, register=1), 49),
        (encode(Opcode.LOOP, count=1), 43),
        (encode(Opcode.END_LOOP), 8),
        (encode(Opcode.SET_CONFIG_SCALE), 119),
        (read(), 127),
        (write(), 127),
        (parameters(), 70),
        (table(), 47),
        (read_alternate(), 127),
        (write_alternate(), 127),
        (weights(), 59),
        (multiply(), 117),
        (convolve(), 111),
        (activate(), 122),
        (depthwise(), 125),
        (pool(), 105),
        (vector(), 128),
    ],
)
def test_reserved_bits(word: bytes, width: int) -> None:
    """Every bit above the fields, whose widths are counted by hand here."""
    for bit in range(width, 128):
        rig = Rig(TINY, tiles=1)
        assert rig.fault(weights(), patched(word, bit, 1, 1)) == (Fault.ILLEGAL_FIELD, 1, 0)


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (TINY, patched(read(), 60, 0, 16)),  # rows
        (TINY, patched(read(), 100, 0, 12)),  # blocks
        (TINY, patched(read(), 112, 0, 9)),  # tail
        (TINY, patched(write(), 60, 0, 16)),
        (TINY, patched(write(), 100, 0, 12)),
        (TINY, patched(write(), 112, 0, 9)),
        (TINY, patched(parameters(), 52, 0, 12)),  # count
        (TINY, patched(weights(), 32, 0, 24)),  # count
        (TINY, patched(multiply(), 44, 0, 16)),  # rows
        (TINY, patched(multiply(), 60, 0, 12)),  # k_tiles
        (TINY, patched(multiply(), 72, 0, 12)),  # n_tiles
        (TINY, patched(activate(), 44, 0, 16)),  # rows
        (TINY, patched(activate(), 60, 0, 12)),  # n_tiles
        (TINY, patched(read_alternate(), 60, 0, 16)),
        (TINY, patched(read_alternate(), 100, 0, 12)),
        (TINY, patched(read_alternate(), 112, 0, 9)),
        (TINY, patched(write_alternate(), 112, 0, 9)),
        (TINY, patched(encode(Opcode.SET_REGISTER, register=1), 8, 0, 3)),
        (SQUARE, patched(convolve(), 64, 0, 12)),  # k_tiles
        (SQUARE, patched(convolve(), 76, 0, 12)),  # n_tiles
        (SQUARE, patched(depthwise(), 68, 0, 12)),  # blocks
        (SQUARE, patched(pool(), 48, 0, 12)),  # blocks
        (SQUARE, patched(vector(), 70, 0, 16)),  # rows
        *((SQUARE, patched(Windows().word, bit, 0, 12)) for bit in (8, 20, 32, 104, 116)),
        *((SQUARE, patched(Windows().word, bit, 0, 8)) for bit in (44, 52)),  # kernel
        *((SQUARE, patched(Windows().word, bit, 0, 7)) for bit in (60, 67)),  # strides
        *((SQUARE, patched(Windows().word, bit, 0, 4)) for bit in (74, 78)),  # dilations
        # values that have no name
        *((SQUARE, word(function=7, wide=wide)) for word in (activate, vector) for wide in (0, 1)),
        (SQUARE, pool(reduction=3)),
        # combinations
        (SQUARE, depthwise(function=Function.TABLE)),
        *(
            (SQUARE, word(**changes))
            for word in (activate, vector)
            for changes in (
                {"accumulate": 1},
                {"function": Function.SIGMOID},
                {"function": Function.TANH},
                {"function": Function.EXP},
                {"function": Function.RELU, "wide": 1},
                {"function": Function.RELU6, "wide": 1},
                {"function": Function.TABLE, "wide": 1},
                {"function": Function.TANH, "wide": 1, "table": 5},
                {"function": Function.EXP, "wide": 1, "table": 5},
            )
        ),
        # ... even where the hardware is missing
        (TINY, activate(function=Function.TANH, wide=1, table=5)),
        (TRAINING, activate(function=Function.TANH, wide=1, table=5)),
        (TRAINING, vector(function=Function.EXP, wide=1, table=7)),
        (TINY, vector(function=Function.RELU, wide=1)),
        (TINY, depthwise(function=Function.TABLE)),
        (NO_TABLES, vector(function=Function.TABLE, wide=1)),
        (TINY, read_alternate(tail=5)),
        (TINY, write_alternate(tail=5)),
        (TALL, read_alternate(tail=7)),
        (TALL, write_alternate(tail=4)),
        (TINY, read_alternate(host=2)),
        (TINY, write_alternate(stride=2)),
        (TALL, read(tail=7)),
        (TALL, write(tail=4)),
        (WIDE, read(tail=4)),
        (WIDE, write(tail=7)),
        (TINY, read(tail=511)),
        (TINY, read(host=2)),
        (TINY, read(stride=2)),
        (TINY, write(host=1)),
        (TINY, write(stride=0xFFFFFF)),
        (TINY, parameters(host=0xFFFFFFFF)),
        (TINY, table(host=6)),
        (preset("base"), read(host=8)),
        (preset("base"), table(host=8)),
    ],
)
def test_illegal_field(config: Config, word: bytes) -> None:
    rig = Rig(config, tiles=1)
    assert rig.fault(weights(), word, HALT) == (Fault.ILLEGAL_FIELD, 1, 0)


def test_longest_tails_are_legal() -> None:
    for reading, writing in ((read, write), (read_alternate, write_alternate)):
        Rig(TALL).complete(reading(tail=6), writing(tail=3), HALT)
        Rig(WIDE).complete(reading(tail=3), writing(tail=6), HALT)


@pytest.mark.parametrize("word", [activate, vector])
def test_legal_combinations(word: Callable[..., bytes]) -> None:
    rig = Rig(SQUARE)
    for changes in (
        {"wide": 1, "accumulate": 1},
        {"wide": 1, "accumulate": 1, "function": Function.SIGMOID, "table": 15},
        {"wide": 1, "function": Function.TANH, "table": 4},
        {"wide": 1, "function": Function.TANH},
    ):
        rig.complete(word(**changes), HALT)


def test_fetch_window() -> None:
    rig = Rig(TINY)
    # Rig aligns programs to 128 bytes, so eight instructions fill the window to its end.
    assert rig.fault(*[encode(Opcode.NOP)] * 8) == (Fault.FETCH_WINDOW, 8, WINDOW)
    outcome = rig.machine.run(rig.host, rig.weights, WINDOW + 128)
    assert outcome.fault is not None
    assert (outcome.fault.cause, outcome.fault.address) == (Fault.FETCH_WINDOW, WINDOW + 128)
    assert outcome.executed == 0
    outcome = rig.machine.run(np.zeros(0, np.uint8), rig.weights, 2**32)
    assert outcome.fault is not None
    assert (outcome.fault.cause, outcome.fault.address) == (Fault.FETCH_WINDOW, 0)


def test_halt_in_the_last_word_of_the_window() -> None:
    assert Rig(TINY).complete(*[encode(Opcode.NOP)] * 7, HALT).executed == 8


def test_cleared_memory_does_not_run() -> None:
    rig = Rig(TINY)
    outcome = rig.machine.run(rig.host, rig.weights, 0)
    assert outcome.fault is not None
    assert (outcome.fault.cause, outcome.fault.pc) == (Fault.ILLEGAL_OPCODE, 0)


def test_weight_underflow_reports_what_is_left() -> None:
    rig = Rig(TINY, tiles=TILES)
    assert rig.fault(multiply()) == (Fault.WEIGHT_UNDERFLOW, 0, 0)
    program = (weights(0, 5), multiply(n_tiles=2), weights(), multiply(k_tiles=5))
    assert rig.fault(*program) == (Fault.WEIGHT_UNDERFLOW, 3, 4)
    # Nothing is left over from the stopped program.
    assert rig.fault(multiply()) == (Fault.WEIGHT_UNDERFLOW, 0, 0)


def test_weight_overflow() -> None:
    eight = (weights(0, 2),) * 8
    rig = Rig(TINY, tiles=TILES)
    rig.complete(*eight, HALT)
    assert rig.fault(*eight, weights(7, 1), HALT) == (Fault.WEIGHT_OVERFLOW, 8, 7)
    # One of the two tiles of the first Read_Weights is not enough.
    assert rig.fault(*eight, multiply(), weights(7)) == (Fault.WEIGHT_OVERFLOW, 9, 7)
    rig.complete(*eight, multiply(k_tiles=2), weights(7), HALT)
    rig.complete(*eight, multiply(), multiply(), weights(7), multiply(k_tiles=15), HALT)
    program = (*eight, multiply(k_tiles=3), weights(), weights(5))
    assert rig.fault(*program) == (Fault.WEIGHT_OVERFLOW, 10, 5)
    rig.complete(*eight, multiply(k_tiles=4), weights(), weights(), HALT)


PRECEDENCE: list[tuple[bytes, Fault, int]] = [
    (patched(read(buffer=1024), 127, 1, 1), Fault.ILLEGAL_FIELD, 0),
    (read(buffer=1024, host=2), Fault.ILLEGAL_FIELD, 0),
    (read(buffer=1024, host=WINDOW), Fault.BUFFER_RANGE, 1024),
    (write(buffer=1024, host=WINDOW), Fault.BUFFER_RANGE, 1024),
    (parameters(parameter=32, host=WINDOW), Fault.PARAMETER_RANGE, 32),
    (table(table=15, host=WINDOW), Fault.TABLE_RANGE, 15),
    (multiply(buffer=1024, accumulator=256, k_tiles=2), Fault.BUFFER_RANGE, 1024),
    (multiply(accumulator=256, n_tiles=9), Fault.ACCUMULATOR_RANGE, 256),
    (
        activate(accumulator=256, buffer=1024, parameter=32, function=3, table=2),
        Fault.ACCUMULATOR_RANGE,
        256,
    ),
    (activate(buffer=1024, parameter=32, function=3, table=2), Fault.BUFFER_RANGE, 1024),
    (activate(parameter=32, function=3, table=2), Fault.PARAMETER_RANGE, 32),
    (table(table=15, host=2), Fault.ILLEGAL_FIELD, 0),
    (convolve(buffer=1024, accumulator=256, k_tiles=9, channels=5), Fault.WINDOW, 0),
    (convolve(buffer=1024, accumulator=256, k_tiles=99), Fault.BUFFER_RANGE, 1024),
    (convolve(accumulator=256, k_tiles=99), Fault.ACCUMULATOR_RANGE, 256),
    (depthwise(buffer=1024, taps=1025, destination=1026), Fault.BUFFER_RANGE, 1024),
    (depthwise(taps=1025, destination=1026), Fault.BUFFER_RANGE, 1025),
    (depthwise(taps=1023, destination=1023, blocks=2), Fault.BUFFER_RANGE, 1023),
    (depthwise(destination=0, parameter=32), Fault.OVERLAP, 0),
    (pool(buffer=1024, destination=1026), Fault.BUFFER_RANGE, 1024),
    (pool(destination=1024, parameter=32), Fault.BUFFER_RANGE, 1024),
    (pool(destination=0, parameter=32), Fault.OVERLAP, 0),
    (vector(buffer=1024, operand=1025, destination=1026), Fault.BUFFER_RANGE, 1024),
    (vector(operand=1025, destination=1026), Fault.BUFFER_RANGE, 1025),
    (vector(destination=1, rows=2, parameter=32, function=3, table=2), Fault.OVERLAP, 1),
    (vector(parameter=32, function=3, table=2), Fault.PARAMETER_RANGE, 32),
    (vector(function=3, table=2), Fault.TABLE_RANGE, 2),
]


@pytest.mark.parametrize(("word", "cause", "address"), PRECEDENCE)
def test_precedence(word: bytes, cause: Fault, address: int) -> None:
    assert Rig(SQUARE, tiles=TILES).fault(Windows().word, word, HALT) == (cause, 1, address)


@pytest.mark.parametrize(
    ("config", "word", "opcode"),
    [
        (NO_TABLES, table(table=15, host=WINDOW), 0x13),
        (TINY, multiply(buffer=1024, accumulator=256, wide_vectors=1), 0x30),
        (TINY, activate(buffer=1024, accumulator=256, parameter=32, wide=1), 0x40),
        (NO_TABLES, activate(accumulator=256, function=Function.TABLE, table=9), 0x40),
        (TINY, depthwise(buffer=1024, destination=200, parameter=32), 0x41),
        (TINY, vector(buffer=1024, parameter=32, wide_operands=1), 0x43),
        (NO_TABLES, vector(destination=1, rows=2, function=Function.TABLE, table=9), 0x43),
    ],
)
def test_unavailable_comes_before_the_ranges(config: Config, word: bytes, opcode: int) -> None:
    """And before WINDOW: none is set here."""
    assert Rig(config).fault(word, HALT) == (Fault.UNAVAILABLE, 0, opcode)


def test_weight_window_before_overflow() -> None:
    rig = Rig(TINY, tiles=TILES)
    program = (*[weights()] * 8, weights(3, TILES))
    assert rig.fault(*program) == (Fault.WEIGHT_WINDOW, 8, 3)


FAULTY = [
    bytes(16),
    patched(write(buffer=1), 127, 1, 1),
    write(host=WINDOW, buffer=1),
    read(buffer=1020, rows=5, host=64),
    read(host=WINDOW - 4, rows=2, stride=4),
    parameters(host=64, parameter=31, count=2),
    table(host=64, table=2),
    weights(0, TILES + 1),
    multiply(rows=256, n_tiles=2),
    multiply(k_tiles=4),
    activate(buffer=1020, rows=5),
    activate(buffer=5, function=Function.TABLE, table=2),
    encode(Opcode.END_LOOP),
    convolve(),
    depthwise(),
    pool(),
    vector(destination=1, rows=2),
    vector(parameter=32),
    vector(wide=1),
]


@pytest.mark.parametrize("word", FAULTY)
def test_precise(word: bytes) -> None:
    """Older instructions have completed, the faulty one and younger ones left no trace."""
    rig = Rig(TINY, tiles=TILES)
    rng = np.random.default_rng(1)
    machine = rig.machine
    for memory in (machine.buffer, machine.accumulators, machine.parameters, machine.tables):
        memory[:] = rng.integers(0, 100, memory.shape)
    rig.host[:1024] = rng.integers(0, 100, 1024)
    before = (
        write(host=32, buffer=9, tail=4),
        encode(Opcode.INTERRUPT_HOST, code=7),
        weights(0, 3),
    )
    after = (encode(Opcode.INTERRUPT_HOST, code=8), write(host=40, buffer=10, tail=4), HALT)

    rig.place(b"".join((*before, word, *after)))
    host = rig.host.copy()
    host[32:36] = machine.buffer[9].view(np.uint8)
    held = [
        memory.copy()
        for memory in (machine.buffer, machine.accumulators, machine.parameters, machine.tables)
    ]
    outcome = rig.run(*before, word, *after)
    assert outcome.fault is not None
    assert (outcome.fault.pc, outcome.executed, outcome.interrupts) == (3, 3, (7,))
    assert np.array_equal(rig.host, host)
    now = (machine.buffer, machine.accumulators, machine.parameters, machine.tables)
    for left, right in zip(held, now, strict=True):
        assert np.array_equal(left, right)
    rig.complete(HALT)
