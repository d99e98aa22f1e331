# SPDX-License-Identifier: Apache-2.0
"""The encoding, against a layout and bytes worked out by hand from the text of the ISA."""

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
from systola.verif.kit.seeds import random_seed

LAYOUT: dict[str, tuple[int, dict[str, tuple[int, int]]]] = {
    "nop": (0x01, {}),
    "halt": (0x02, {}),
    "synchronize": (0x03, {}),
    "interrupt_host": (
        0x04,
        {
            "code": (23, 8),
        },
    ),
    "synchronize_host": (0x05, {}),
    "debug_tag": (
        0x06,
        {
            "tag": (23, 8),
            "wait": (27, 24),
        },
    ),
    "set_register": (
        0x08,
        {
            "register": (10, 8),
            "value": (42, 11),
            "first": (45, 43),
            "second": (48, 46),
        },
    ),
    "loop": (
        0x09,
        {
            "count": (39, 8),
            "count_register": (42, 40),
        },
    ),
    "end_loop": (0x0A, {}),
    "set_config_window": (
        0x0C,
        {
            "height": (19, 8),
            "width": (31, 20),
            "pitch": (43, 32),
            "kernel_height": (51, 44),
            "kernel_width": (59, 52),
            "stride_y": (66, 60),
            "stride_x": (73, 67),
            "dilation_y": (77, 74),
            "dilation_x": (81, 78),
            "top": (94, 82),
            "left": (103, 95),
            "out_height": (115, 104),
            "out_width": (127, 116),
        },
    ),
    "set_config_scale": (
        0x0D,
        {
            "multiplier_a": (38, 8),
            "shift_a": (43, 39),
            "multiplier_b": (74, 44),
            "shift_b": (79, 75),
            "zero_a": (87, 80),
            "zero_b": (95, 88),
            "ceiling": (103, 96),
            "limit": (118, 104),
        },
    ),
    "read_host_memory": (
        0x10,
        {
            "host": (39, 8),
            "buffer": (59, 40),
            "rows": (75, 60),
            "stride": (99, 76),
            "blocks": (111, 100),
            "tail": (120, 112),
            "host_register": (123, 121),
            "buffer_register": (126, 124),
        },
    ),
    "write_host_memory": (
        0x11,
        {
            "host": (39, 8),
            "buffer": (59, 40),
            "rows": (75, 60),
            "stride": (99, 76),
            "blocks": (111, 100),
            "tail": (120, 112),
            "host_register": (123, 121),
            "buffer_register": (126, 124),
        },
    ),
    "load_parameters": (
        0x12,
        {
            "host": (39, 8),
            "parameter": (51, 40),
            "count": (63, 52),
            "host_register": (66, 64),
            "parameter_register": (69, 67),
        },
    ),
    "load_table": (
        0x13,
        {
            "host": (39, 8),
            "table": (43, 40),
            "host_register": (46, 44),
        },
    ),
    "read_host_memory_alternate": (
        0x14,
        {
            "host": (39, 8),
            "buffer": (59, 40),
            "rows": (75, 60),
            "stride": (99, 76),
            "blocks": (111, 100),
            "tail": (120, 112),
            "host_register": (123, 121),
            "buffer_register": (126, 124),
        },
    ),
    "write_host_memory_alternate": (
        0x15,
        {
            "host": (39, 8),
            "buffer": (59, 40),
            "rows": (75, 60),
            "stride": (99, 76),
            "blocks": (111, 100),
            "tail": (120, 112),
            "host_register": (123, 121),
            "buffer_register": (126, 124),
        },
    ),
    "read_weights": (
        0x20,
        {
            "tile": (31, 8),
            "count": (55, 32),
            "tile_register": (58, 56),
        },
    ),
    "matrix_multiply": (
        0x30,
        {
            "buffer": (27, 8),
            "accumulator": (43, 28),
            "rows": (59, 44),
            "k_tiles": (71, 60),
            "n_tiles": (83, 72),
            "accumulate": (84, 84),
            "wide_vectors": (85, 85),
            "wide_weights": (86, 86),
            "buffer_register": (89, 87),
            "accumulator_register": (92, 90),
            "from_buffer": (93, 93),
            "weights": (113, 94),
            "weights_register": (116, 114),
        },
    ),
    "convolve": (
        0x31,
        {
            "buffer": (27, 8),
            "accumulator": (43, 28),
            "plane": (63, 44),
            "k_tiles": (75, 64),
            "n_tiles": (87, 76),
            "accumulate": (88, 88),
            "channels": (96, 89),
            "fill": (104, 97),
            "buffer_register": (107, 105),
            "accumulator_register": (110, 108),
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
            "function": (86, 84),
            "rounding": (87, 87),
            "zero_point": (95, 88),
            "ceiling": (103, 96),
            "table": (107, 104),
            "wide": (108, 108),
            "accumulate": (109, 109),
            "accumulator_register": (112, 110),
            "buffer_register": (115, 113),
            "parameter_register": (118, 116),
            "exponent": (121, 119),
            "stochastic": (122, 122),
        },
    ),
    "depthwise": (
        0x41,
        {
            "buffer": (27, 8),
            "taps": (47, 28),
            "destination": (67, 48),
            "blocks": (79, 68),
            "parameter": (91, 80),
            "function": (93, 92),
            "rounding": (94, 94),
            "zero_point": (102, 95),
            "ceiling": (110, 103),
            "fill": (118, 111),
            "buffer_register": (121, 119),
            "destination_register": (124, 122),
        },
    ),
    "pool": (
        0x42,
        {
            "buffer": (27, 8),
            "destination": (47, 28),
            "blocks": (59, 48),
            "parameter": (71, 60),
            "reduction": (73, 72),
            "rounding": (74, 74),
            "zero_point": (82, 75),
            "floor": (90, 83),
            "ceiling": (98, 91),
            "buffer_register": (101, 99),
            "destination_register": (104, 102),
        },
    ),
    "vector": (
        0x43,
        {
            "operation": (9, 8),
            "buffer": (29, 10),
            "operand": (49, 30),
            "destination": (69, 50),
            "rows": (85, 70),
            "parameter": (97, 86),
            "function": (100, 98),
            "rounding": (101, 101),
            "zero_point": (109, 102),
            "table": (113, 110),
            "wide_operands": (114, 114),
            "wide": (115, 115),
            "accumulate": (116, 116),
            "buffer_register": (119, 117),
            "operand_register": (122, 120),
            "destination_register": (125, 123),
            "exponent": (127, 126),
        },
    ),
    "measure": (
        0x44,
        {
            "source": (9, 8),
            "exponent": (12, 10),
            "accumulator": (28, 13),
            "buffer": (48, 29),
            "rows": (64, 49),
            "bits": (69, 65),
            "first": (72, 70),
            "second": (75, 73),
            "third": (78, 76),
            "value": (86, 79),
            "accumulator_register": (89, 87),
            "buffer_register": (92, 90),
        },
    ),
    "transpose": (
        0x45,
        {
            "buffer": (27, 8),
            "destination": (47, 28),
            "count": (59, 48),
            "step": (75, 60),
            "buffer_register": (78, 76),
            "destination_register": (81, 79),
        },
    ),
    "random": (
        0x46,
        {
            "destination": (27, 8),
            "rows": (43, 28),
            "seed": (74, 44),
            "counter": (106, 75),
            "destination_register": (109, 107),
            "counter_register": (112, 110),
        },
    ),
    "send": (
        0x58,
        {
            "side": (8, 8),
            "sums": (9, 9),
            "buffer": (29, 10),
            "accumulator": (45, 30),
            "rows": (61, 46),
            "buffer_register": (64, 62),
            "accumulator_register": (67, 65),
        },
    ),
    "receive": (
        0x59,
        {
            "side": (8, 8),
            "buffer": (28, 9),
            "rows": (44, 29),
            "buffer_register": (47, 45),
        },
    ),
    "reduce": (
        0x5A,
        {
            "side": (8, 8),
            "accumulator": (24, 9),
            "rows": (40, 25),
            "accumulate": (41, 41),
            "accumulator_register": (44, 42),
        },
    ),
    "barrier": (0x5B, {}),
}
"""Opcode and (most, least significant bit) of each field."""
SIGNED = {"zero_point", "ceiling", "floor", "fill", "zero_a", "zero_b", "value", "top", "left"}
MINIMUM_ONE = {
    *("rows", "blocks", "tail", "count", "k_tiles", "n_tiles", "register"),
    *("height", "width", "pitch", "kernel_height", "kernel_width", "out_height", "out_width"),
    *("stride_y", "stride_x", "dilation_y", "dilation_x"),
}


def extremes(mnemonic: str) -> dict[str, tuple[int, int]]:
    """Smallest and largest value of each field."""
    ends: dict[str, tuple[int, int]] = {}
    for name, (high, low) in LAYOUT[mnemonic][1].items():
        width = high - low + 1
        if name in SIGNED:
            ends[name] = -(2 ** (width - 1)), 2 ** (width - 1) - 1
        else:
            # Loop may say 0: its index register adds to it.
            least = name in MINIMUM_ONE and mnemonic != "loop"
            ends[name] = int(least or (mnemonic, name) == ("measure", "exponent")), 2**width - 1
    return ends


def packed(opcode: int, spans: dict[str, tuple[int, int]], operands: dict[str, int]) -> bytes:
    word = opcode
    for name, (high, low) in spans.items():
        word += operands[name] % 2 ** (high - low + 1) * 2**low
    return word.to_bytes(16, "little")


def test_the_table_is_complete() -> None:
    assert [entry.mnemonic for entry in BY_OPCODE.values()] == list(LAYOUT)


def test_the_fields_follow_one_another() -> None:
    for _, spans in LAYOUT.values():
        lowest = 8
        for high, low in spans.values():
            assert low == lowest <= high
            lowest = high + 1
        assert lowest <= 128


@pytest.mark.parametrize("mnemonic", LAYOUT)
def test_extremes(mnemonic: str) -> None:
    """Each field at both ends while the others are all at one end."""
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
    """Each index field of three bits belongs to the operand that it is named after."""
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
        host_register=5,
        buffer_register=2,
    )
    # From the top: a reserved bit, registers 2 and 5 and `tail` (0 010 101 1 0000 0000), then whole
    # hexadecimal digits for each field.
    digits = "2b00bcd56789a1234abcde0102030410"
    assert word == bytes.fromhex(digits)[::-1]
    # register 7, value -2 (all ones and a zero), first 1, second 4: 100 001 1..10 111 in binary.
    word = encode(Opcode.SET_REGISTER, register=7, value=-2, first=1, second=4)
    number = 0b100_001 << 35 | 0xFFFFFFFE << 3 | 7
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
    # `left`, `top`, `dilation_x` ... `stride_y` between the whole digits of the others.
    middle = 0b000000000_1111111111111_0100_0011_0000010_0000001
    digits = f"012def{middle:011x}cdab7894561230c"
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


def test_reserved_bits_are_those_above_the_fields() -> None:
    for number, spans in LAYOUT.values():
        width = max([8] + [high + 1 for high, _ in spans.values()])
        word = b"\xff" * 16
        decoded = decode(bytes([number]) + word[1:])
        assert decoded is not None
        assert reserved_bits(decoded[0], word) == 2 ** (128 - width) - 1


def test_checks_are_faults_that_an_instruction_can_raise() -> None:
    copies = (Fault.BUFFER_RANGE, Fault.HOST_WINDOW)
    assert {entry.mnemonic: entry.checks for entry in BY_OPCODE.values() if entry.checks} == {
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
    # The original's 8 GiB of weight memory, where a tile has at least 64 KiB.
    tiles = min(2**33 // config.tile_bytes, 2**24)
    encode(Opcode.READ_WEIGHTS, tile=tiles - 1, count=tiles - 1)
