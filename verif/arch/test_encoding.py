# SPDX-License-Identifier: Apache-2.0
"""The encoding, against a layout and bytes worked out by hand from the text of the ISA."""

from __future__ import annotations

import itertools
import random

import pytest

from systola.arch.config import PRESETS
from systola.arch.isa import (
    INSTRUCTIONS,
    EncodingError,
    Fault,
    Opcode,
    decode,
    encode,
    reserved_bits,
)
from systola.verif.kit.seeds import random_seed

MATRIX = {
    "host": (39, 8),
    "buffer": (59, 40),
    "rows": (75, 60),
    "stride": (99, 76),
    "blocks": (111, 100),
    "tail": (120, 112),
}
LAYOUT: dict[str, tuple[int, dict[str, tuple[int, int]]]] = {
    "nop": (0x01, {}),
    "halt": (0x02, {}),
    "synchronize": (0x03, {}),
    "interrupt_host": (0x04, {"code": (23, 8)}),
    "read_host_memory": (0x10, MATRIX),
    "write_host_memory": (0x11, MATRIX),
    "load_parameters": (0x12, {"host": (39, 8), "parameter": (51, 40), "count": (63, 52)}),
    "load_table": (0x13, {"host": (39, 8), "table": (43, 40)}),
    "read_weights": (0x20, {"tile": (31, 8), "count": (55, 32)}),
    "matrix_multiply": (
        0x30,
        {
            "buffer": (27, 8),
            "accumulator": (43, 28),
            "rows": (59, 44),
            "k_tiles": (71, 60),
            "n_tiles": (83, 72),
            "accumulate": (84, 84),
        },
    ),
    "activate": (
        0x40,
        {
            "accumulator": (23, 8),
            "buffer": (43, 24),
            "rows": (59, 44),
            "n_tiles": (71, 60),
            "parameter": (83, 72),
            "function": (85, 84),
            "rounding": (86, 86),
            "zero_point": (94, 87),
            "ceiling": (102, 95),
            "table": (106, 103),
        },
    ),
}
"""Opcode and (most, least significant bit) of each field."""
SIGNED = {"zero_point", "ceiling"}
MINIMUM_ONE = {"rows", "blocks", "tail", "count", "k_tiles", "n_tiles"}


def extremes(name: str, span: tuple[int, int]) -> tuple[int, int]:
    width = span[0] - span[1] + 1
    if name in SIGNED:
        return -(2 ** (width - 1)), 2 ** (width - 1) - 1
    return int(name in MINIMUM_ONE), 2**width - 1


def packed(opcode: int, spans: dict[str, tuple[int, int]], operands: dict[str, int]) -> bytes:
    word = opcode
    for name, (high, low) in spans.items():
        word += operands[name] % 2 ** (high - low + 1) * 2**low
    return word.to_bytes(16, "little")


def test_the_table_is_complete() -> None:
    assert [entry.mnemonic for entry in INSTRUCTIONS] == list(LAYOUT)


@pytest.mark.parametrize("mnemonic", LAYOUT)
def test_extremes(mnemonic: str) -> None:
    """Each field at both ends while the others are at both ends."""
    number, spans = LAYOUT[mnemonic]
    opcode = Opcode(number)
    ends = {name: extremes(name, span) for name, span in spans.items()}
    for values in itertools.product(*ends.values()):
        operands = dict(zip(spans, values, strict=True))
        word = encode(opcode, **operands)
        assert word == packed(number, spans, operands)
        decoded = decode(word)
        assert decoded is not None
        entry, fields = decoded
        assert (entry.opcode, fields, reserved_bits(entry, word)) == (opcode, operands, 0)
    for name, (low, high) in ends.items():
        legal = {other: ends[other][1] for other in spans}
        for value in (low - 1, high + 1):
            with pytest.raises(EncodingError, match=f"{mnemonic}: {name}={value}"):
                encode(opcode, **{**legal, name: value})


@pytest.mark.parametrize("mnemonic", LAYOUT)
def test_random_words(mnemonic: str) -> None:
    rng = random.Random(random_seed())
    number, spans = LAYOUT[mnemonic]
    for _ in range(200):
        operands = {name: rng.randint(*extremes(name, span)) for name, span in spans.items()}
        assert encode(Opcode(number), **operands) == packed(number, spans, operands)


def test_bytes_by_hand() -> None:
    assert encode(Opcode.HALT) == b"\x02" + bytes(15)
    assert encode(Opcode.INTERRUPT_HOST, code=0x1234) == b"\x04\x34\x12" + bytes(13)
    word = encode(Opcode.LOAD_TABLE, host=0x12345678, table=5)
    assert word == b"\x13\x78\x56\x34\x12\x05" + bytes(10)
    word = encode(Opcode.READ_WEIGHTS, tile=0xABCDEF, count=0x010203)
    assert word == b"\x20\xef\xcd\xab\x03\x02\x01" + bytes(9)
    word = encode(
        Opcode.READ_HOST_MEMORY,
        host=0x01020304,
        buffer=0xABCDE,
        rows=0x1234,
        stride=0x56789A,
        blocks=0xBCD,
        tail=0x100,
    )
    # From the top: seven reserved bits and `tail`, then whole hexadecimal digits for each field.
    digits = "0100bcd56789a1234abcde0102030410"
    assert word == bytes.fromhex(digits)[::-1]


def test_defaults() -> None:
    least = {"accumulator": 0, "buffer": 0, "rows": 1, "n_tiles": 1, "parameter": 0}
    decoded = decode(encode(Opcode.ACTIVATE, **least))
    assert decoded is not None
    assert decoded[1] == {
        **least,
        "function": 0,
        "rounding": 0,
        "zero_point": 0,
        "ceiling": 127,
        "table": 0,
    }


def test_missing_and_unknown_operands() -> None:
    with pytest.raises(EncodingError, match="load_table needs operand 'table'"):
        encode(Opcode.LOAD_TABLE, host=0)
    with pytest.raises(EncodingError, match="halt has no operand 'host'"):
        encode(Opcode.HALT, host=0)


def test_decode_refuses_only_opcodes() -> None:
    known = {number for number, _ in LAYOUT.values()}
    for opcode in range(256):
        assert (decode(bytes([opcode]) + b"\xff" * 15) is not None) == (opcode in known)


def test_reserved_bits_are_those_above_the_fields() -> None:
    for number, spans in LAYOUT.values():
        width = max([8] + [high + 1 for high, _ in spans.values()])
        word = b"\xff" * 16
        decoded = decode(bytes([number]) + word[1:])
        assert decoded is not None
        assert reserved_bits(decoded[0], word) == 2 ** (128 - width) - 1


def test_checks_are_faults_that_an_instruction_can_raise() -> None:
    assert {entry.mnemonic: entry.checks for entry in INSTRUCTIONS if entry.checks} == {
        "read_host_memory": (Fault.BUFFER_RANGE, Fault.HOST_WINDOW),
        "write_host_memory": (Fault.BUFFER_RANGE, Fault.HOST_WINDOW),
        "load_parameters": (Fault.PARAMETER_RANGE, Fault.HOST_WINDOW),
        "load_table": (Fault.TABLE_RANGE, Fault.HOST_WINDOW),
        "read_weights": (Fault.WEIGHT_WINDOW, Fault.WEIGHT_OVERFLOW),
        "matrix_multiply": (
            Fault.BUFFER_RANGE,
            Fault.ACCUMULATOR_RANGE,
            Fault.WEIGHT_UNDERFLOW,
        ),
        "activate": (
            Fault.ACCUMULATOR_RANGE,
            Fault.BUFFER_RANGE,
            Fault.PARAMETER_RANGE,
            Fault.TABLE_RANGE,
        ),
    }


@pytest.mark.parametrize("name", PRESETS)
def test_fields_reach_every_preset(name: str) -> None:
    """One instruction over the whole of each memory, and the last element of each, encode."""
    config = PRESETS[name]
    vectors = config.accumulator_rows
    encode(
        Opcode.MATRIX_MULTIPLY,
        buffer=config.buffer_lines - 1,
        accumulator=config.accumulator_rows - 1,
        rows=vectors,
        k_tiles=min(config.buffer_lines, 4095),
        n_tiles=min(config.accumulator_rows, 4095),
    )
    encode(
        Opcode.ACTIVATE,
        accumulator=config.accumulator_rows - 1,
        buffer=config.buffer_lines - 1,
        rows=vectors,
        n_tiles=config.parameter_entries,
        parameter=config.parameter_entries - 1,
        table=config.tables - 1,
    )
    encode(
        Opcode.READ_HOST_MEMORY,
        host=2**32 - config.host_bus_bytes,
        buffer=config.buffer_lines - 1,
        rows=min(config.buffer_lines, 65535),
        stride=4095 * config.input_pitch,
        blocks=4095,
        tail=config.rows,
    )
    encode(
        Opcode.LOAD_PARAMETERS,
        host=0,
        parameter=config.parameter_entries - 1,
        count=config.parameter_entries,
    )
    # The original's 8 GiB of weight memory, where a tile has at least 64 KiB.
    tiles = min(2**33 // config.tile_bytes, 2**24)
    encode(Opcode.READ_WEIGHTS, tile=tiles - 1, count=tiles - 1)
