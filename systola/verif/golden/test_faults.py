# SPDX-License-Identifier: Apache-2.0
"""Tests of faults: missing hardware, fetch, weight queue, their order, and no other effect."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from systola.arch.config import Config
from systola.arch.isa import Fault, Function, Opcode, encode
from systola.verif.golden.rig import HALT, SQUARE, TINY, Rig
from systola.verif.golden.windows import Windows
from systola.verif.golden.words import (
    NO_TABLES,
    TILES,
    WINDOW,
    activate,
    convolve,
    depthwise,
    multiply,
    parameters,
    patched,
    pool,
    read,
    requirement,
    table,
    vector,
    weights,
    write,
)


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


# A machine with different numbers of rows, of columns, and of bytes of each bus.
ODD = dataclasses.replace(TINY, name="odd", rows=3, cols=5, columns_per_lane=1)
ODD = dataclasses.replace(ODD, host_bus_bytes=8, weight_bus_bytes=16)
NUMBERS = {"rows": 3, "columns": 5, "host_bus": 8, "weight_bus": 16}


def test_the_machine_that_a_program_requires() -> None:
    Rig(TINY).complete(requirement(), encode(Opcode.NOP), requirement(), HALT)
    Rig(ODD).complete(requirement(**NUMBERS), HALT)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("change", [1, 2, 4, 8, 16, 32, 64, 128, 256])
def test_another_machine(name: str, change: int) -> None:
    wrong = requirement(**{**NUMBERS, name: NUMBERS[name] ^ change})
    assert Rig(ODD).fault(requirement(**NUMBERS), wrong, HALT) == (Fault.OTHER_MACHINE, 1, 0)


def test_what_does_not_move_bytes_is_not_required() -> None:
    """Check that Require_Machine accepts any machine with the same array and the same buses."""
    for config in (SQUARE, dataclasses.replace(TINY, buffer_lines=2048, accumulator_rows=2)):
        Rig(config).complete(requirement(), HALT)


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
    # No weight tile is left in the queue from the stopped program.
    assert rig.fault(multiply()) == (Fault.WEIGHT_UNDERFLOW, 0, 0)


def test_weight_overflow() -> None:
    eight = (weights(0, 2),) * 8
    rig = Rig(TINY, tiles=TILES)
    rig.complete(*eight, HALT)
    assert rig.fault(*eight, weights(7, 1), HALT) == (Fault.WEIGHT_OVERFLOW, 8, 7)
    # A Read_Weights leaves the queue only when both of its tiles are used, not one.
    assert rig.fault(*eight, multiply(), weights(7)) == (Fault.WEIGHT_OVERFLOW, 9, 7)
    rig.complete(*eight, multiply(k_tiles=2), weights(7), HALT)
    rig.complete(*eight, multiply(), multiply(), weights(7), multiply(k_tiles=15), HALT)
    program = (*eight, multiply(k_tiles=3), weights(), weights(5))
    assert rig.fault(*program) == (Fault.WEIGHT_OVERFLOW, 10, 5)
    rig.complete(*eight, multiply(k_tiles=4), weights(), weights(), HALT)


PRECEDENCE: list[tuple[bytes, Fault, int]] = [
    (patched(read(buffer=1024), 15, 1, 1), Fault.ILLEGAL_FIELD, 0),
    (read(buffer=1024, host=2), Fault.ILLEGAL_FIELD, 0),
    (patched(requirement(rows=5), 56, 1, 1), Fault.ILLEGAL_FIELD, 0),
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
    """Check that UNAVAILABLE is reported before faults of ranges, and before a missing window."""
    assert Rig(config).fault(word, HALT) == (Fault.UNAVAILABLE, 0, opcode)


def test_weight_window_before_overflow() -> None:
    rig = Rig(TINY, tiles=TILES)
    program = (*[weights()] * 8, weights(3, TILES))
    assert rig.fault(*program) == (Fault.WEIGHT_WINDOW, 8, 3)


FAULTY = [
    bytes(16),
    patched(write(buffer=1), 15, 1, 1),
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
    """Check that faults are precise.

    All instructions before a faulty instruction complete. The faulty instruction and the younger
    instructions have no effect.
    """
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
