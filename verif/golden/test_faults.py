# SPDX-License-Identifier: Apache-2.0
"""Every fault: its limit, its address, its precedence, and that nothing else happens."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from systola.arch.config import Config, preset
from systola.arch.isa import Fault, Function, Opcode, encode
from systola.verif.golden.rig import PAGE, Rig

# 4x4, buses of 4 bytes, 1024 lines, 256 accumulator rows, 32 parameter entries, 2 tables.
TINY = preset("tiny")
# 6 input elements: pitch 8; 3 output elements: pitch 4; host bus of 4 bytes.
TALL = dataclasses.replace(TINY, name="tall", rows=6, cols=3, columns_per_stage=3)
WIDE = dataclasses.replace(TINY, name="wide", rows=3, cols=6)
HALT = encode(Opcode.HALT)
WINDOW = 2 * PAGE
TILES = 16


def read(**changes: int) -> bytes:
    at = {"host": 0, "buffer": 0, "rows": 1, "stride": 0, "blocks": 1, "tail": 1}
    return encode(Opcode.READ_HOST_MEMORY, **{**at, **changes})


def write(**changes: int) -> bytes:
    at = {"host": 0, "buffer": 0, "rows": 1, "stride": 0, "blocks": 1, "tail": 1}
    return encode(Opcode.WRITE_HOST_MEMORY, **{**at, **changes})


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
]


@pytest.mark.parametrize(("legal", "faulty", "cause", "address"), LIMITS)
def test_limits(legal: bytes, faulty: bytes, cause: Fault, address: int) -> None:
    rig = Rig(TINY, tiles=TILES)
    rig.complete(legal, HALT)
    rig = Rig(TINY, tiles=TILES)
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
            multiply(k_tiles=4, n_tiles=4),
            multiply(k_tiles=17, n_tiles=1),
            Fault.WEIGHT_UNDERFLOW,
            TILES,
        ),
        (multiply(k_tiles=16), multiply(k_tiles=9, n_tiles=2), Fault.WEIGHT_UNDERFLOW, TILES),
    ):
        Rig(TINY, tiles=TILES).complete(load, legal, HALT)
        assert Rig(TINY, tiles=TILES).fault(load, faulty, HALT) == (cause, 1, address)


def test_window_counts_whole_pitches_of_the_right_vector() -> None:
    for config, access, pitch in (
        (TALL, read, 8),
        (TALL, write, 4),
        (WIDE, read, 4),
        (WIDE, write, 8),
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
        (read(), 121),
        (write(), 121),
        (parameters(), 64),
        (table(), 44),
        (weights(), 56),
        (multiply(), 85),
        (activate(), 107),
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
    Rig(TALL).complete(read(tail=6), write(tail=3), HALT)
    Rig(WIDE).complete(read(tail=3), write(tail=6), HALT)


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
]


@pytest.mark.parametrize(("word", "cause", "address"), PRECEDENCE)
def test_precedence(word: bytes, cause: Fault, address: int) -> None:
    assert Rig(TINY, tiles=TILES).fault(word, HALT) == (cause, 0, address)


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
