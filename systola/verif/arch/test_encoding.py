# SPDX-License-Identifier: Apache-2.0
"""Tests of instruction encoding, against a layout and bytes written by hand."""

from __future__ import annotations

import itertools
import random

import pytest

from systola.arch.config import PRESETS
from systola.arch.isa import (
    BY_OPCODE,
    LINK_OPCODES,
    EncodingError,
    Fault,
    Opcode,
    decode,
    encode,
    reserved_bits,
)
from systola.verif.arch.layout import LAYOUT, extremes, packed
from systola.verif.kit.seeds import random_seed


def test_the_table_is_complete() -> None:
    assert [entry.mnemonic for entry in BY_OPCODE.values()] == list(LAYOUT)


def test_places() -> None:
    """Check that each field of a word begins at a multiple of four bits.

    Single bits, index registers and short fields such as `function` may follow the field before.
    """
    together = {
        *("register", "first", "second", "third", "side", "source", "bits", "value"),
        *("function", "table", "rounding", "reduction", "operation", "exponent"),
        *("shift_a", "shift_b"),
    }
    for _, spans in LAYOUT.values():
        end = 7
        for name, (high, low) in spans.items():
            assert end < low <= high < 128
            beside = name in together or name.endswith("_register") or high == low
            assert low % 4 == 0 or (beside and low == end + 1)
            end = high


@pytest.mark.parametrize("mnemonic", LAYOUT)
def test_extremes(mnemonic: str) -> None:
    """Check each field's extreme values, combined with extreme values of all other fields."""
    number, spans = LAYOUT[mnemonic]
    opcode = Opcode(number)
    ends = extremes(mnemonic)
    for name, end, others in itertools.product(spans or ("",), (0, 1), (0, 1)):
        operands = {other: ends[other][end if other == name else others] for other in spans}
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
        operands = {name: rng.randint(*ends) for name, ends in extremes(mnemonic).items()}
        assert encode(Opcode(number), **operands) == packed(number, spans, operands)


def test_index_registers() -> None:
    """Check which operands can have an index register, which a field of three bits names."""
    indexed = {
        entry.mnemonic: [field.indexes for field in entry.fields if field.indexes]
        for entry in BY_OPCODE.values()
    }
    matrix = ["host", "buffer"]
    assert {name: operands for name, operands in indexed.items() if operands} == {
        "loop": ["count"],
        "read_host_memory": matrix,
        "write_host_memory": matrix,
        "load_parameters": ["host", "parameter"],
        "load_table": ["host"],
        "read_host_memory_alternate": matrix,
        "write_host_memory_alternate": matrix,
        "read_weights": ["tile"],
        "matrix_multiply": ["buffer", "accumulator", "weights"],
        "convolve": ["buffer", "accumulator"],
        "activate": ["accumulator", "buffer", "parameter"],
        "depthwise": ["buffer", "destination"],
        "pool": ["buffer", "destination"],
        "vector": ["buffer", "operand", "destination"],
        "measure": ["accumulator", "buffer"],
        "transpose": ["buffer", "destination"],
        "random": ["destination", "counter"],
        "send": ["buffer", "accumulator"],
        "receive": ["buffer"],
        "reduce": ["accumulator"],
    }
    for entry in BY_OPCODE.values():
        for field in entry.fields:
            if field.indexes:
                assert (field.name, field.width) == (f"{field.indexes}_register", 3)


def test_no_flipped_bit_makes_an_instruction_one_of_the_links() -> None:
    for number in LINK_OPCODES:
        others = {number ^ 1 << bit for bit in range(8)} - set(LINK_OPCODES)
        assert not others & set(BY_OPCODE)


def test_bytes_by_hand() -> None:
    assert encode(Opcode.HALT) == b"\x02" + bytes(15)
    assert encode(Opcode.INTERRUPT_HOST, code=0x1234) == b"\x04\x34\x12" + bytes(13)
    word = encode(Opcode.LOAD_TABLE, host=0x12345678, table=5)
    assert word == b"\x13\x00\x00\x00\x78\x56\x34\x12\x05" + bytes(7)
    word = encode(Opcode.READ_WEIGHTS, tile=0xABCDEF, count=0x010203)
    assert word == b"\x20\x00\x00\x00\xef\xcd\xab\x03\x02\x01" + bytes(6)
    word = encode(
        Opcode.READ_HOST_MEMORY,
        host=0x01020304,
        buffer=0xABCDE,
        rows=0x1234,
        stride=0x56789A,
        blocks=0xBCD,
        tail=0x100,
        host_register=5,
        buffer_register=2,
    )
    # In the expected word, from its top bit on, each field has whole hexadecimal digits; `tail` is
    # stored less one. Two reserved bits and the registers 2 and 5 follow (00 010 101).
    digits = "ffbcd56789aabcde0102030412341510"
    assert word == bytes.fromhex(digits)[::-1]
    # From bit 8 of the word on there are `first` 1, `second` 4 and `register` 7: in binary,
    # 111 100 001.
    word = encode(Opcode.SET_REGISTER, register=7, value=-2, first=1, second=4)
    number = 0xFFFFFFFE << 24 | 0b111_100_001
    assert word == b"\x08" + number.to_bytes(15, "little")
    word = encode(
        Opcode.SET_CONFIG_WINDOW,
        height=0x123,
        width=0x456,
        pitch=0x789,
        kernel_height=0xAB,
        kernel_width=0xCD,
        stride_y=1,
        stride_x=2,
        dilation_y=3,
        dilation_x=4,
        top=-1,
        left=0,
        out_height=0xDEF,
        out_width=0x012,
    )
    # In the word, the fields `left`, `top`, `dilation_x` ... `stride_y` lie between other fields.
    assert word == bytes.fromhex("012def00fff430201cdab7894561230c")[::-1]


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
        "wide": 0,
        "accumulate": 0,
        "accumulator_register": 0,
        "buffer_register": 0,
        "parameter_register": 0,
        "exponent": 0,
        "stochastic": 0,
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


def test_reserved_bits_are_those_of_no_field() -> None:
    for number, spans in LAYOUT.values():
        used = {bit for high, low in spans.values() for bit in range(low, high + 1)}
        word = b"\xff" * 16
        decoded = decode(bytes([number]) + word[1:])
        assert decoded is not None
        mask = sum(2**bit for bit in range(8, 128) if bit not in used)
        assert reserved_bits(decoded[0], word) == mask


def test_checks_are_faults_that_an_instruction_can_raise() -> None:
    copies = (Fault.BUFFER_RANGE, Fault.HOST_WINDOW)
    assert {entry.mnemonic: entry.checks for entry in BY_OPCODE.values() if entry.checks} == {
        "require_machine": (Fault.OTHER_MACHINE,),
        "loop": (Fault.LOOP,),
        "end_loop": (Fault.LOOP,),
        "read_host_memory": copies,
        "write_host_memory": copies,
        "load_parameters": (Fault.PARAMETER_RANGE, Fault.HOST_WINDOW),
        "load_table": (Fault.UNAVAILABLE, Fault.TABLE_RANGE, Fault.HOST_WINDOW),
        "read_host_memory_alternate": copies,
        "write_host_memory_alternate": copies,
        "read_weights": (Fault.WEIGHT_WINDOW, Fault.WEIGHT_OVERFLOW),
        "matrix_multiply": (
            Fault.UNAVAILABLE,
            Fault.BUFFER_RANGE,
            Fault.ACCUMULATOR_RANGE,
            Fault.WEIGHT_OVERFLOW,
            Fault.WEIGHT_UNDERFLOW,
        ),
        "convolve": (
            Fault.WINDOW,
            Fault.BUFFER_RANGE,
            Fault.ACCUMULATOR_RANGE,
            Fault.WEIGHT_UNDERFLOW,
        ),
        "activate": (
            Fault.UNAVAILABLE,
            Fault.ACCUMULATOR_RANGE,
            Fault.BUFFER_RANGE,
            Fault.PARAMETER_RANGE,
            Fault.TABLE_RANGE,
        ),
        "depthwise": (
            Fault.UNAVAILABLE,
            Fault.WINDOW,
            Fault.BUFFER_RANGE,
            Fault.OVERLAP,
            Fault.PARAMETER_RANGE,
        ),
        "pool": (Fault.WINDOW, Fault.BUFFER_RANGE, Fault.OVERLAP, Fault.PARAMETER_RANGE),
        "vector": (
            Fault.UNAVAILABLE,
            Fault.BUFFER_RANGE,
            Fault.OVERLAP,
            Fault.PARAMETER_RANGE,
            Fault.TABLE_RANGE,
        ),
        "measure": (Fault.UNAVAILABLE, Fault.ACCUMULATOR_RANGE, Fault.BUFFER_RANGE),
        "transpose": (Fault.UNAVAILABLE, Fault.BUFFER_RANGE, Fault.OVERLAP),
        "random": (Fault.UNAVAILABLE, Fault.BUFFER_RANGE),
        "send": (Fault.UNAVAILABLE, Fault.BUFFER_RANGE, Fault.ACCUMULATOR_RANGE),
        "receive": (Fault.UNAVAILABLE, Fault.BUFFER_RANGE),
        "reduce": (Fault.UNAVAILABLE, Fault.ACCUMULATOR_RANGE),
        "barrier": (Fault.UNAVAILABLE,),
    }


@pytest.mark.parametrize("name", PRESETS)
def test_fields_reach_every_preset(name: str) -> None:
    """Check that fields are wide enough for each preset's memories, up to the last element."""
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
    encode(
        Opcode.CONVOLVE,
        buffer=config.buffer_lines - 1,
        accumulator=config.accumulator_rows - 1,
        plane=config.buffer_lines - 1,
        k_tiles=min(config.buffer_lines, 4095),
        n_tiles=min(config.accumulator_rows, 4095),
        channels=min(config.rows, 255),
    )
    encode(
        Opcode.VECTOR,
        operation=0,
        buffer=config.buffer_lines - 1,
        operand=config.buffer_lines - 1,
        destination=config.buffer_lines - 1,
        rows=min(config.buffer_lines, 65535),
        parameter=config.parameter_entries - 1,
        table=config.tables - 1,
    )
    # The weight memory has the 8 GiB of the original TPU, but at most 2^24 tiles.
    tiles = min(2**33 // config.tile_bytes, 2**24)
    encode(Opcode.READ_WEIGHTS, tile=tiles - 1, count=tiles - 1)
